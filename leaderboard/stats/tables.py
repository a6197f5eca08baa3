"""Tables with their titles, file names, settings and warnings."""

import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

from experiment.files import slug
from experiment.protocol import base
from experiment.seeds import spans
from leaderboard.catalog import Catalog
from leaderboard.escape import command_text
from leaderboard.record.schema import Record
from leaderboard.record.tuning import values_text
from leaderboard.stats.rows import Row
from leaderboard.stats.summary import summarise, table_key

PROTOCOL, TUNED, CHANGED, EARLIER = "protocol", "tuned", "changed", "earlier"

Key = tuple[str, str, str]  # protocol, task, hash of the settings
Ran = dict[str, dict[str, set[str]]]  # what: where, or on what: encodings


@dataclass(frozen=True)
class Table:
    """The rows, best first, and the records that they were computed from.

    `policy` says how the settings were chosen: the protocol's own; those of an earlier version of
    the protocol, or of the task; changed for all encodings alike; or tuned, for each encoding the
    best cell of one grid, chosen on seeds set apart. `warnings` are what weakens a comparison;
    `kernels` what computed which encodings, where that differs: costs differ by it, results by
    rounding. `changes` are (setting, value here, the
    protocol's value). `version` names an earlier version, `newer` counts those after it, and
    `about` is the description of the version that the runs had.
    """

    slug: str
    title: str
    rows: tuple[Row, ...]
    records: tuple[Record, ...]
    warnings: tuple[str, ...]
    kernels: tuple[str, ...]
    policy: str
    changes: tuple[tuple[str, str, str], ...]
    version: str = ""
    newer: int = 0
    about: str = ""

    @property
    def first(self) -> Record:
        return self.records[0]

    @property
    def base(self) -> str:
        """The protocol's name without the suffix of changed settings."""
        return base(self.first.protocol)

    @property
    def of_encoders(self) -> bool:
        return self.first.config.track == "encoder"

    @property
    def named(self) -> str:
        """The protocol, and how the settings differ from its own, as `quick, 200 steps`."""
        return self.base if self.policy == PROTOCOL else f"{self.base}, {self.settings_name}"

    @property
    def settings_name(self) -> str:
        """A description of how the settings differ from the protocol's own."""
        if self.policy == PROTOCOL:
            return "the protocol's own"
        changes = [_in_words(*change) for change in self.changes]
        changes[4:] = [f"{len(changes) - 4} more"] * (len(changes) > 4)
        other = self.version or ", ".join(changes)
        if tuning := self.first.provenance.tuning:
            return f"tuned: {tuning.grid_words()}" + f"; {other}" * bool(other)
        return other or f"settings {self.first.shared_hash}"

    def settings(self) -> list[tuple[str, str]]:
        """Return every setting that the runs share, as ("train.steps", "1500")."""
        return sorted(flat("", self.first.shared()))

    def commands(self) -> list[str]:
        """Return a command for each set of seeds of ranked rows, else those of the runs."""
        plain = [row for row in self.rows if row.competes and row.seeds]
        if self.policy != PROTOCOL or not plain:
            return sorted({command_text(record.provenance.command) for record in self.records})
        found: dict[str, set[str]] = defaultdict(set)
        for row in plain:
            found[spans(row.seeds)].add(row.encoding)
        start = ["pezoo", "bench", "--protocol", self.base, "--task", self.first.task]
        return [
            command_text(shlex.join([*start, "--pe", ",".join(sorted(own)), "--seeds", seeds]))
            for seeds, own in sorted(found.items())
        ]

    def command(self, row: Row) -> str:
        """Return the shortest command that repeats one row."""
        known = {record.run: record for record in self.records}
        given = known[row.runs[0]].provenance.command
        own = {
            "--protocol": self.base,
            "--task": self.first.task,
            "--pe": row.encoding,
            "--seeds": spans(known[run].seed for run in row.runs),
        }
        words = ["pezoo", "bench"] + [part for pair in own.items() for part in pair]
        kept = "--set", "--tune", "--tune-seeds"
        if any(one in given for one in kept):
            words += [part for pair in pairwise(_split(given)) if pair[0] in kept for part in pair]
        return command_text(shlex.join(words))


def tables(records: Sequence[Record], catalog: Catalog | None = None) -> list[Table]:
    """Return all tables, sorted by protocol and task, the protocol's own settings first.

    Records with the name of a protocol in `catalog`, but settings of no version of it, are in a
    table of changed settings. Options that the protocol does not set are shown as if typed.

    A title includes the settings' hash only if the protocol's name is ambiguous. Tuning runs are in
    no table.
    """
    catalog = catalog or Catalog()
    records = list(_called((one for one in records if not one.for_tuning), catalog))
    runs: dict[Key, list[Record]] = defaultdict(list)
    rows: dict[Key, list[Row]] = defaultdict(list)
    for record in records:
        runs[table_key(record)].append(record)
    for row in summarise(records, catalog.receives):
        rows[row.protocol, row.task, row.settings].append(row)

    age = {key: catalog.age(own[0]) for key, own in runs.items()}
    foreign = {key for key, own in runs.items() if catalog.foreign(own[0])}

    def order(key: Key) -> tuple[object, ...]:
        """The protocol itself before its changes; of several versions of it the file's own first.

        When a run finished decides only where the catalogue does not.
        """
        if "+" in key[0] or key in foreign:
            return *_family(key), True, key
        newest = max(record.finished.timestamp() for record in runs[key])
        return *_family(key), False, age[key], -newest, key

    found = []
    for _, family in groupby(sorted(runs, key=order), key=_family):
        keys = list(family)
        own = runs[keys[0]][0]
        outdated = any(age[keys[0]]) or "+" in keys[0][0] or keys[0] in foreign
        for key in keys:
            several = [other[:2] for other in keys if other not in foreign].count(key[:2]) > 1
            record, main = runs[key][0], key == keys[0] and not outdated
            now = (outdated and catalog.current(record)) or own
            policy, changes = (PROTOCOL, ()) if main else (EARLIER, tuple(_changes(record, now)))
            if key in foreign:
                policy, several = CHANGED, True
            version = catalog.earlier(record), age[key][0], catalog.about(record)
            found.append(_table(rows[key], runs[key], policy, changes, several, *version))
    return found


def _split(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:  # a record's command may be any text
        return []


def leading(tables: Sequence[Table]) -> list[Table]:
    """Return, for each protocol, the tables in its own settings, or else of its newest version."""
    found = []
    for name in dict.fromkeys(table.base for table in tables):
        own = [table for table in tables if table.base == name]
        earlier = [table for table in own if table.policy == EARLIER]
        newest = min((table.newer for table in earlier), default=0)
        found += [table for table in own if table.policy == PROTOCOL] or [
            table for table in earlier if table.newer == newest
        ]
    return found


def _called(records: Iterable[Record], catalog: Catalog) -> Iterator[Record]:
    """Yield the records, with options that the protocol does not set as if they were typed."""
    strange: dict[tuple[str, ...], bool] = {}
    for record in records:
        key = *table_key(record), record.encoding, record.config.spec
        if key not in strange:
            strange[key] = catalog.strange_options(record)
        update = {"encoding": record.config.spec}
        yield record.model_copy(update=update) if strange[key] else record


def _family(key: Key) -> tuple[str, str]:
    return base(key[0]), key[1]


def _table(
    rows: Sequence[Row],
    records: Sequence[Record],
    policy: str,
    changes: tuple[tuple[str, str, str], ...],
    several: bool,
    version: str,
    newer: int,
    about: str,
) -> Table:
    """`several`: tables of other settings have the same protocol's name and task."""
    protocol, task, settings = table_key(records[0])
    title = f"{protocol} / {task}"
    if records[0].provenance.tuning and policy != CHANGED:
        policy, title = TUNED, f"{base(protocol)} / {task} (tuned)"
    elif "+" in protocol:
        policy = CHANGED
    version = "" if policy == CHANGED else version
    title += f" ({version})" if version else ""
    told, kernels = policy == PROTOCOL or not several, _kernels(records)
    return Table(
        slug=f"{protocol}.{slug(task)}" + ("" if told else f".{settings}"),
        title=title + ("" if told else f" (settings {settings})"),
        rows=tuple(rows),
        records=tuple(records),
        warnings=tuple(_warnings(records, kernels)),
        kernels=tuple(_differing(kernels)),
        policy=policy,
        changes=changes,
        version=version,
        newer=newer,
        about=about,
    )


def _changes(record: Record, own: Record) -> Iterator[tuple[str, str, str]]:
    here, there = (dict(flat("", one.shared())) for one in (record, own))
    tuning = record.provenance.tuning
    chosen = {f"train.{name}" for name in tuning.grid} if tuning else set()
    for key in sorted((here.keys() | there.keys()) - chosen):
        if key != "protocol" and not key.startswith("tuned.") and here.get(key) != there.get(key):
            yield key, here.get(key, "not set"), there.get(key, "not set")


def _in_words(key: str, value: str, own: str) -> str:
    """
    >>> _in_words("eval.lengths", "(10, 1000)", "(10, 100)"), _in_words("train.steps", "40", "9")
    ('longer test, to 1,000', '40 steps')
    """
    words = {"train.steps": "{} steps", "train.lr": "learning rate {}", "train.batch": "batch {}"}
    if key == "eval.lengths" and (here := re.findall(r"\d+", value)):
        most, usual = int(here[-1]), int(re.findall(r"\d+", own)[-1])
        far = abs(most - usual) > usual / 10
        kind = "other" if not far else "longer" if most > usual else "shorter"
        return f"{kind} test, to {most:,}"
    return words[key].format(value) if key in words else f"{key}={value}"


def _warnings(records: Sequence[Record], kernels: Ran) -> Iterator[str]:
    """Yield what weakens a comparison within the table."""
    checks = {"backbone_hash": "the backbones did not start from the same weights"}
    if records[0].provenance.tuning is None:  # where steps are tuned, data differ in amount
        checks["data_hash"] = "the runs did not see the same data"
    for what, text in checks.items():
        for seed in sorted({record.seed for record in records}):
            done = [r for r in records if r.seed == seed and r.status == "done"]
            found = {getattr(record, what) for record in done}
            if len(found - {None} if what == "data_hash" else found) > 1:
                yield f"seed {seed}: {text}"
    ran: Ran = defaultdict(lambda: defaultdict(set))
    for record in records:
        for what in ("device", "torch", "pezoo", "threads"):
            ran[what][str(getattr(record.env, what))].add(record.encoding)
    yield from (f"runs differ in {line}" for line in _differing(ran))
    for what, found_in in kernels.items():
        often = Counter(name for names in found_in.values() for name in names)
        if twice := {name for name, times in often.items() if times > 1}:
            yield f"runs of one encoding differ in {what}: {_few(twice)}"
    started = [one for one in records if one.start]
    if len({(one.seed, one.start.weights) for one in started}) > len({r.seed for r in started}):
        yield "runs of one seed did not start from the same weights"
    for verb, part in ("started without", "missing"), ("left over", "left"):
        for encoding, names in {one.encoding: getattr(one.start, part) for one in started}.items():
            if names:
                yield f"{encoding} {verb} weights: {', '.join(names)}"
    yield from _unlike_choices(records)
    if unclean := sum(record.env.dirty is not False for record in records):
        yield f"{unclean} of {len(records)} runs come from code that equals no known commit"


def _kernels(records: Sequence[Record]) -> Ran:
    """Return the back ends of every operation, and the encodings that each computed."""
    ran: Ran = defaultdict(lambda: defaultdict(set))
    for record in records:
        if record.env.attention_ran is None:  # an older record: what was chosen
            ran["attention"][str(record.env.attention)].add(record.encoding)
        for operation, back_end in kernels_of(record):
            ran[f"{operation} kernels"][back_end].add(record.encoding)
    return ran


def _differing(ran: Ran) -> Iterator[str]:
    for what, found_in in ran.items():
        if len(found_in) > 1:
            named = (f"{value} ({_few(names)})" for value, names in sorted(found_in.items()))
            yield f"{what}: {', '.join(named)}"


def _few(names: set[str]) -> str:
    """
    >>> _few({"rope", "alibi"}), _few({"rope", "alibi", "t5", "fire"})
    ('alibi, rope', '4 encodings')
    """
    return f"{len(names)} encodings" if len(names) > 3 else ", ".join(sorted(names))


def kernels_of(record: Record) -> Iterator[tuple[str, str]]:
    """Yield (operation, back end) for every operation in the record."""
    kernels, attention = record.env.kernels, record.env.attention_ran
    if kernels is not None:  # a record that names no other has torch's modules as layers
        yield from {"layer": "torch", **kernels}.items()
    for phase, words in (("train", "training"), ("eval", "evaluation")):
        if (names := (attention or {}).get(phase)) is not None:
            yield f"{words} attention", " with ".join(names)


def _unlike_choices(records: Sequence[Record]) -> Iterator[str]:
    found: dict[str, set[str]] = defaultdict(set)
    for record in records:
        if tuning := record.provenance.tuning:
            found[record.config.spec].add(values_text(tuning.chosen))
    for spec, chosen in found.items():
        if len(chosen) > 1:
            yield f"seeds of {spec} have different settings: {'; '.join(sorted(chosen))}"


def flat(prefix: str, values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield nested settings as ("train.steps", "1500")."""
    for key, value in values.items():
        name = f"{prefix}.{key}" if prefix else key
        if isinstance(value, dict):
            yield from flat(name, value)
        else:
            yield name, str(value)
