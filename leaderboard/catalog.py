"""What this checkout knows of encodings, tasks and protocols, read as text: nothing is imported.

Where the packages are missing, or a plug-in brings something, pages do without the description.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from leaderboard.seeds import parse_seeds
from pezoo.scan import ClassText, classes

HOOKS = {
    "prepare": "rewrites positions or reads the input once per forward pass",
    "embed": "adds to the token embeddings",
    "transform": "rotates, scales or widens queries and keys",
    "bias": "adds to the logits",
    "weights": "replaces the softmax",
}


@dataclass(frozen=True)
class EncodingDoc:
    """One encoding's class as its file describes it."""

    name: str
    cls: str
    module: str
    path: str  # from the root of the repository
    source: str
    doc: str
    summary: str
    paper: str
    version: int
    wraps: str | None
    hooks: tuple[str, ...]


@dataclass(frozen=True)
class TaskDoc:
    """One task's class as its file describes it. `family` groups tasks: by default, its source."""

    name: str
    path: str
    doc: str
    summary: str
    paper: str
    example: str
    family: str
    version: int


@dataclass(frozen=True)
class ProtocolDoc:
    """A protocol's TOML file; `seeds` is how many a published table should have."""

    name: str
    description: str
    seeds: int
    settings: dict[str, Any]


@dataclass(frozen=True)
class Catalog:
    """Everything known, by name."""

    encodings: dict[str, EncodingDoc] = field(default_factory=dict)
    tasks: dict[str, TaskDoc] = field(default_factory=dict)
    protocols: dict[str, ProtocolDoc] = field(default_factory=dict)

    def parts(self, encoding: str) -> list[EncodingDoc]:
        """The known parts of `randomized:rope`, from the outside."""
        return [self.encodings[name] for name in encoding.split(":") if name in self.encodings]

    def version(self, encoding: str) -> int | None:
        """The version of an encoding and of what it wraps, as records write it; None: unknown."""
        names = encoding.split(":")
        if len(names) == 1 and names[0] in self.encodings:
            names += [name] if (name := self.encodings[names[0]].wraps) else []
        if any(name not in self.encodings for name in names):
            return None
        total = 0
        for name in names:
            total = total * 1000 + self.encodings[name].version
        return total


def read() -> Catalog:
    """The catalogue of the packages beside this one."""
    return Catalog(
        {one.name: one for one in _encodings()},
        {one.name: one for one in _tasks()},
        {one.name: one for one in _protocols()},
    )


def _folder(package: str, *names: str) -> Path | None:
    spec = find_spec(package)
    places = spec.submodule_search_locations if spec else None
    folder = Path(next(iter(places))).joinpath(*names) if places else None
    return folder if folder and folder.is_dir() else None


def _classes(package: str, name: str) -> Iterator[tuple[Path, ClassText]]:
    """Every class in the files of a package's folder."""
    folder = _folder(package, name)
    for path in sorted(folder.glob("*.py")) if folder else ():
        for found in classes(path, path.parents[1]).values():
            yield path, found


def _encodings() -> Iterator[EncodingDoc]:
    for path, found in _classes("pezoo", "encodings"):
        if found.registered:
            yield EncodingDoc(
                name=found.registered,
                cls=found.name,
                module=f"pezoo.encodings.{path.stem}",
                path=f"pezoo/encodings/{path.name}",
                source=path.read_text(encoding="utf-8"),
                doc=found.doc,
                summary=found.constants.get("summary", ""),
                paper=found.constants.get("paper", ""),
                version=found.constants.get("version", 1),
                wraps=found.constants.get("wraps"),
                hooks=tuple(h for h in HOOKS if found.methods.get(h, "Encoding") != "Encoding"),
            )


def _tasks() -> Iterator[TaskDoc]:
    for path, found in _classes("harness", "tasks"):
        if isinstance(name := found.constants.get("name"), str):
            paper = found.constants.get("paper", "")
            yield TaskDoc(
                name=name,
                path=f"harness/tasks/{path.name}",
                doc=found.doc,
                summary=found.constants.get("summary", ""),
                paper=paper,
                example=found.constants.get("example", ""),
                family=found.constants.get("family", paper),
                version=found.constants.get("version", 1),
            )


def _protocols() -> Iterator[ProtocolDoc]:
    folder = _folder("harness", "settings", "protocols")
    for path in sorted(folder.glob("*.toml")) if folder else ():
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
        name = str(raw.get("name", path.stem))
        seeds = len(parse_seeds(str(raw.get("seeds", "0"))))
        yield ProtocolDoc(name, str(raw.get("description", "")), seeds, raw)


def sections(doc: str) -> list[tuple[str, str]]:
    """The paragraphs of a docstring with their headings; "" before the first.

    >>> sections("Turn it.\\n\\nFormula: b = 1\\n\\nPaper: A 2020.")
    [('', 'Turn it.'), ('Formula', 'b = 1'), ('Paper', 'A 2020.')]
    """
    found: list[tuple[str, str]] = []
    for paragraph in doc.split("\n\n"):
        lines = re.split(r"\n(?=[A-Z][a-z]+: )", paragraph)
        for line in lines:
            head = re.match(r"([A-Z][a-z]+): (?=\S)", line)
            found.append((head[1], line[head.end() :]) if head else ("", line))
    return found
