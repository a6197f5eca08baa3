"""What this checkout knows of encodings, tasks and protocols, read as text: nothing is imported.

Where the packages are missing, or a plug-in brings something, pages do without the description.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from leaderboard.seeds import parse_seeds

HOOKS = {
    "prepare": "rewrites positions or reads the input once per forward pass",
    "embed": "adds to the token embeddings",
    "transform": "rotates, scales or widens queries and keys",
    "bias": "adds to the logits",
    "weights": "replaces the softmax",
}


Classes = dict[str, tuple[ast.ClassDef, dict[str, Any]]]


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


def _classes(package: str, name: str) -> Iterator[tuple[Path, str, ast.ClassDef, dict[str, Any]]]:
    """(file, its text, class, constant attributes with those of its bases in the package)."""
    folder = _folder(package, name)
    files: dict[Path, Classes] = {}
    for path in sorted(folder.glob("*.py")) if folder else ():
        source = path.read_text(encoding="utf-8")
        for node, found in _read(path, path.parents[1], files).values():
            yield path, source, node, found


def _read(path: Path, package: Path, files: dict[Path, Classes]) -> Classes:
    """The classes of one file by name; `files` holds those that were read before."""
    if path in files:
        return files[path]
    classes = files[path] = {}
    imports: dict[str, Path] = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        match node:
            case ast.ImportFrom(module=str(module)) if module.startswith(f"{package.name}."):
                file = package.joinpath(*module.split(".")[1:]).with_suffix(".py")
                imports |= {alias.asname or alias.name: file for alias in node.names}
            case ast.ClassDef():
                merged: dict[str, Any] = {}
                for base in (base.id for base in node.bases if isinstance(base, ast.Name)):
                    known = classes
                    if base in imports and base != "Encoding" and imports[base].is_file():
                        known = _read(imports[base], package, files)
                    merged |= known[base][1] if base in known else {}
                classes[node.name] = node, merged | _attributes(node, merged.get("hooks", ()))
    return classes


def _attributes(node: ast.ClassDef, inherited: tuple[str, ...]) -> dict[str, Any]:
    own: dict[str, Any] = {}
    for part in node.body:
        match part:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                with suppress(ValueError):
                    own[name] = _constant(value)
    methods = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
    own["hooks"] = tuple(hook for hook in HOOKS if hook in methods or hook in inherited)
    return own


def _constant(node: ast.expr) -> Any:
    """A literal, or texts joined by "+". Errors: ValueError."""
    match node:
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return f"{_constant(left)}{_constant(right)}"
    return ast.literal_eval(node)


def _encodings() -> Iterator[EncodingDoc]:
    for path, source, node, found in _classes("pezoo", "encodings"):
        if not (name := _registered(node)):
            continue
        yield EncodingDoc(
            name,
            node.name,
            f"pezoo.encodings.{path.stem}",
            f"pezoo/encodings/{path.name}",
            source,
            ast.get_docstring(node) or "",
            str(found.get("summary", "")),
            str(found.get("paper", "")),
            int(found.get("version", 1)),
            found.get("wraps"),
            found["hooks"],
        )


def _registered(node: ast.ClassDef) -> str | None:
    for decorator in node.decorator_list:
        match decorator:
            case ast.Call(func=ast.Name(id="register"), args=[ast.Constant(value=str(name))]):
                return name
    return None


def _tasks() -> Iterator[TaskDoc]:
    for path, _, node, found in _classes("harness", "tasks"):
        if isinstance(name := found.get("name"), str):
            paper = str(found.get("paper", ""))
            yield TaskDoc(
                name,
                f"harness/tasks/{path.name}",
                ast.get_docstring(node) or "",
                str(found.get("summary", "")),
                paper,
                str(found.get("example", "")),
                str(found.get("family", paper)),
                int(found.get("version", 1)),
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
