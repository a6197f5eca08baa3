"""Read the classes of Python files from their syntax trees, without importing anything.

`named_classes` finds the encodings and tasks of a folder; `classes` reads one file.
"""

import ast
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pezoo.spec import SpecError


@dataclass(frozen=True)
class ClassText:
    """A parsed class, with what it inherits from classes of its package."""

    name: str
    doc: str
    known_as: str | None  # what users type: "rope" under @register("rope"), or a literal name
    constants: dict[str, Any]  # attributes with literal values
    methods: dict[str, str]  # by name, the class that defines each
    options: tuple[str, ...]  # keyword-only parameters of __init__, or fields of a dataclass


@dataclass(frozen=True)
class NamedClass:
    """A class with a name that users type, and its file; with a `fault`, `text` is None."""

    path: Path
    text: ClassText | None
    fault: str = ""


def named_classes(folder: Path) -> dict[str, NamedClass]:
    """Return the encodings or tasks of a package's folder, by the names that users type.

    A file that cannot be parsed is listed under its own name, with the reason.
    Errors: SpecError where two classes share a name.
    """
    found: dict[str, NamedClass] = {}
    seen: dict[Path, dict[str, ClassText]] = {}
    for path in sorted(folder.glob("*.py")):
        own: list[tuple[str | None, NamedClass]]
        try:
            inside = classes(path, folder.parent, seen).values()
            own = [(text.known_as, NamedClass(path, text)) for text in inside]
        except SyntaxError as error:
            own = [(path.stem, NamedClass(path, None, f"{error.msg}, line {error.lineno}"))]
        except UnicodeDecodeError as error:
            own = [(path.stem, NamedClass(path, None, str(error)))]
        for name, one in own:
            if name in found:
                homes = f"{folder.name}/{found[name].path.name} and {folder.name}/{path.name}"
                raise SpecError(f"two classes have the name {name!r}, in {homes}: rename one")
            if name:
                found[name] = one
    return found


def classes(
    path: Path, package: Path, seen: dict[Path, dict[str, ClassText]] | None = None
) -> dict[str, ClassText]:
    """Return the classes of a file by name, with what they inherit within the package.

    `seen` keeps what was read, so that a base class in several files is parsed once.
    Errors: SyntaxError, UnicodeDecodeError.
    """
    seen = {} if seen is None else seen
    if path in seen:
        return seen[path]
    own: dict[str, ClassText] = {}
    known: dict[str, ClassText] = {}
    tree = ast.parse(path.read_text(encoding="utf-8"))
    needed = {name for node in tree.body for name in (*_bases(node), *_options(node))}
    for node in tree.body:
        match node:
            case ast.ImportFrom(module=str(module)) if module.startswith(f"{package.name}."):
                names = {alias.name for alias in node.names} & needed
                file = package.joinpath(*module.split(".")[1:]).with_suffix(".py")
                if names and file.is_file():
                    with suppress(SyntaxError, UnicodeDecodeError):
                        known |= {
                            name: text
                            for name, text in classes(file, package, seen).items()
                            if name in names
                        }
            case ast.ClassDef(name=name):
                own[name] = known[name] = _class(node, known)
    seen[path] = own
    return own


def _bases(node: ast.AST) -> Iterator[str]:
    for base in node.bases if isinstance(node, ast.ClassDef) else ():
        if isinstance(base, ast.Name):
            yield base.id


def _options(node: ast.AST) -> Iterator[str]:
    """Yield the name of the class that `Options = ...` assigns."""
    for part in node.body if isinstance(node, ast.ClassDef) else ():
        match part:
            case ast.Assign(targets=[ast.Name(id="Options")], value=ast.Name(id=name)):
                yield name


def _class(node: ast.ClassDef, known: dict[str, ClassText]) -> ClassText:
    constants: dict[str, Any] = {}
    methods: dict[str, str] = {}
    options: tuple[str, ...] = ()
    for parent in [known[base] for base in _bases(node) if base in known]:
        constants, methods = constants | parent.constants, methods | parent.methods
        options = options or parent.options
    for name in _options(node):
        options = known[name].options if name in known else options
    decorators = " ".join(map(ast.unparse, node.decorator_list))
    for part in node.body:
        match part:
            case ast.Assign(targets=targets, value=value):
                constants |= _named(targets, value)
            case ast.AnnAssign(target=ast.Name(id=name), value=value):
                constants |= _named([part.target], value) if value else {}
                if "dataclass" in decorators and name not in options:
                    options += (name,)
            case ast.FunctionDef(name=name):
                methods[name] = node.name
                more = part.args.kwarg
                sized = more and more.annotation and "Sizes" in ast.unparse(more.annotation)
                if name == "__init__" and (more is None or sized):
                    options = tuple(arg.arg for arg in part.args.kwonlyargs)
    named = constants.get("name")
    known_as = named if named and isinstance(named, str) else None
    for decorator in node.decorator_list:
        match decorator:
            case ast.Call(func=ast.Name(id="register"), args=[ast.Constant(value=str(name))]):
                known_as = name
    doc = ast.get_docstring(node) or ""
    return ClassText(node.name, doc, known_as, constants, methods, options)


def _named(targets: list[ast.expr], value: ast.expr) -> dict[str, Any]:
    """`a = b = 2` -> {"a": 2, "b": 2}; {} if the value is not a literal."""
    with suppress(ValueError):
        literal = _constant(value)
        return {target.id: literal for target in targets if isinstance(target, ast.Name)}
    return {}


def _constant(node: ast.expr) -> Any:
    """Evaluate a literal, or strings joined by "+". Errors: ValueError."""
    match node:
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return f"{_constant(left)}{_constant(right)}"
    return ast.literal_eval(node)
