"""Descriptions of encodings, tasks and protocols, as `harness.settings.catalog` reads them.

Plug-ins have none; pages then leave out the description.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from experiment.config import Protocol, Train, encoding_version
from experiment.protocol import base
from leaderboard.record.schema import Record
from leaderboard.record.tuning import MARK, tuned_name
from pezoo.registry import parse
from pezoo.spec import SpecError, bare

ORACLE, CONTROL = "oracle", "control"  # encodings that are not ranked

HOOKS = {
    "draw": "draws what is random and checks positions, before a forward pass",
    "prepare": "rewrites positions or reads the input, once per forward pass",
    "embed": "adds to the token embeddings",
    "transform": "rotates, scales or widens queries and keys",
    "bias": "adds to the logits",
    "bias_form": "adds to the logits, in a form that fused kernels take",
    "scores": "replaces the product of queries and keys",
    "ways": "gives the products that replace it one by one, for FlexAttention",
    "weights": "replaces the softmax",
}


Matrix = tuple[tuple[int, ...], ...]  # a row for each query i, a column for each key j


@dataclass(frozen=True)
class PRFMaps:
    """phi(i, j) of queries i and keys j from 0 on: panels of a title and a square matrix."""

    panels: tuple[tuple[str, Matrix], ...]
    words: str  # what the numbers are


@dataclass(frozen=True, kw_only=True)
class ClassDoc:
    """An encoding's or a task's class as its file describes it."""

    name: str
    cls: str
    module: str
    path: str  # from the root of the repository
    source: str
    doc: str
    hooks: tuple[str, ...]
    summary: str = ""
    paper: str = ""
    reports: str = ""  # what an encoding's paper reports
    reads: str = ""  # what an encoding's values depend on
    picture: tuple[str, ...] = ()  # of an encoding: an SVG, and its caption
    prf_text: str = ""  # an encoding's positional relation function
    prf_maps: PRFMaps | None = None  # its values; None without one
    example: str = ""
    family: str = ""  # groups tasks; by default, those of one paper
    best_constant: tuple[tuple[int, float], ...] = ()  # a task's, by length
    version: int = 1
    versioned_by: tuple[str, ...] = ()  # a task's options that make its version
    wraps: str | None = None
    changes: str = ""  # a wrapper: the part of attention, whatever it wraps
    prefix_stable: bool = True  # False: an encoding without a cache
    needs_scale: bool = False  # an encoding that receives the length of the instance
    needs_slots: bool = False  # an encoding that receives positions of the task's own
    oracle: bool = False  # an encoding that receives part of the task's solution
    control: bool = False  # an encoding that shows what a part of another does alone


@dataclass(frozen=True)
class ProtocolDoc:
    """A protocol's TOML file; `seeds` is the number of seeds of a published table.

    `versions`: the current file, then the files in protocols/earlier/, newest first.
    """

    name: str
    description: str
    seeds: int
    settings: dict[str, Any]
    versions: tuple[Protocol, ...]

    def chosen(self, encodings: Iterable[str], record: Record) -> set[str]:
        """Return the encodings whose options were chosen on the record's task, by its protocol."""
        own, task = (self.version_of(record) or self.versions[0]).chosen_on, bare(record.task)
        return {one for one in encodings if any(task in own.get(n, ()) for n in _names(one))}

    def version_of(self, record: Record) -> Protocol | None:
        """Return the version whose settings the record has, apart from those that a sweep chose.

        None where there is none, or where the record's name and its sweep do not match.
        """
        given, tuning = record.config, record.provenance.tuning
        name = tuned_name(self.name, tuning.grid, tuning.seeds) if tuning else self.name
        if record.protocol.partition(MARK)[0] == self.name and record.protocol != name:
            return None
        chosen = set(tuning.grid) if tuning else set()
        for version in self.versions:
            model, train, test = version.settings(record.task)
            same = given.track == version.track and _alike(given.train, train, chosen)
            if same and given.model == model and given.eval == test:
                return version
        return None


@dataclass(frozen=True)
class Catalog:
    """Descriptions by name."""

    encodings: dict[str, ClassDoc] = field(default_factory=dict)
    tasks: dict[str, ClassDoc] = field(default_factory=dict)
    protocols: dict[str, ProtocolDoc] = field(default_factory=dict)

    def foreign(self, record: Record) -> bool:
        """Return whether a record has a known protocol's name but none of its settings."""
        protocol, version = self._version(record)
        return protocol is not None and version is None

    def age(self, record: Record) -> tuple[int, bool]:
        """Return how many versions of its protocol are newer, and whether its task has changed.

        Unknown protocols and tasks count as current.
        """
        (protocol, version), task = self._version(record), self.task_version(record.task)
        newer = protocol.versions.index(version) if protocol and version else 0
        return newer, task not in (None, record.config.task_version)

    def earlier(self, record: Record) -> str:
        """Return `earlier version: 1, now 2` for a protocol or task; "" if current or unknown."""
        (protocol, _), (newer, old_task) = self._version(record), self.age(record)
        if protocol and newer:
            now = len(protocol.versions)
            return f"earlier version: {now - newer}, now {now}"
        if old_task:
            now = self.task_version(record.task)
            return f"earlier version of the task: {record.config.task_version}, now {now}"
        return ""

    def about(self, record: Record) -> str:
        """Return the description of the record's version of its protocol; "" if unknown."""
        known = self._version(record)[1] or self.protocols.get(base(record.protocol))
        return known.description if known else ""

    def current(self, record: Record) -> Record | None:
        """Return the record with the current settings of its protocol and task, if known."""
        known, task = self.protocols.get(base(record.protocol)), self.task_version(record.task)
        if known is None:
            return None
        model, train, test = known.versions[0].settings(record.task)
        now: dict[str, Any] = {"model": model, "train": train, "eval": test}
        now["track"] = known.versions[0].track
        now |= {"task_version": task} if task else {}
        return record.model_copy(update={"config": record.config.replace(**now)})

    def strange_options(self, record: Record) -> bool:
        """Return whether its encoding has options neither typed nor set by the protocol."""
        _, version = self._version(record)
        if version is None:
            return False
        try:
            return str(version.fill(record.task, parse(record.encoding))) != record.config.spec
        except SpecError:
            return True

    def _version(self, record: Record) -> tuple[ProtocolDoc | None, Protocol | None]:
        """Return the record's protocol and its version, as far as they are known."""
        protocol = self.protocols.get(record.protocol.partition(MARK)[0])
        return protocol, protocol and protocol.version_of(record)

    def parts(self, encoding: str) -> list[ClassDoc]:
        """Return the known parts of `randomized(max_len=64):rope`, outermost first."""
        return [self.encodings[name] for name in _names(encoding) if name in self.encodings]

    def receives(self, encoding: str) -> str:
        """Return what an encoding receives besides the sequence, or "control"; "" for neither."""
        parts = self.parts(encoding)
        if any(part.oracle for part in parts):
            return ORACLE
        if any(part.control for part in parts):
            return CONTROL
        if any(part.needs_scale for part in parts):
            return "receives the length"
        return "receives positions" if any(part.needs_slots for part in parts) else ""

    def task_version(self, task: str) -> int | None:
        """Return the current version of a task; None if unknown or set by an option."""
        known = self.tasks.get(bare(task))
        if known is None or any(f"{name}=" in task for name in known.versioned_by):
            return None
        return known.version

    def version(self, encoding: str) -> int | None:
        """Return one number for an encoding's version and those it wraps; None if unknown."""
        names = _names(encoding)
        if len(names) == 1 and names[0] in self.encodings:
            names += _names(wraps) if (wraps := self.encodings[names[0]].wraps) else []
        if any(name not in self.encodings for name in names):
            return None
        return encoding_version(self.encodings[name].version for name in names)


def _names(encoding: str) -> list[str]:
    """
    >>> _names("layers(every=4):rope(layout=half),nope")
    ['layers', 'rope', 'nope']
    """
    return re.split("[:,]", bare(encoding))


def _alike(one: Train, two: Train, apart: set[str]) -> bool:
    """Return whether two training settings are equal apart from the named ones."""
    return one == two.model_copy(update={key: own for key, own in one if key in apart})
