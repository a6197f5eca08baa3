"""The classes of Python files, read as text: nothing is imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class ClassText:
    """A class as its file describes it, with what it inherits from classes of its package."""

    name: str
    doc: str
    registered: str | None  # "rope" under @register("rope")
    constants: dict[str, Any]  # attributes with literal values
    methods: dict[str, str]  # by name, the class that defines each
    options: tuple[str, ...]  # keyword-only parameters of __init__
    usual: dict[str, Any]  # their defaults, where these are literal
    kinds: dict[str, str]  # their annotations, as written


def classes(path: Path, package: Path) -> dict[str, ClassText]:
    """The classes of a file by name; bases are followed into other files of the package's folder.

    Errors: SyntaxError, UnicodeDecodeError.
    """
    own: dict[str, ClassText] = {}
    known: dict[str, ClassText] = {}
    tree = ast.parse(path.read_text(encoding="utf-8"))
    bases = {base for node in tree.body for base in _bases(node)}
    for node in tree.body:
        match node:
            case ast.ImportFrom(module=str(module)) if module.startswith(f"{package.name}."):
                names = {alias.name for alias in node.names} & bases
                file = package.joinpath(*module.split(".")[1:]).with_suffix(".py")
                if names and file.is_file():
                    with suppress(SyntaxError, UnicodeDecodeError):
                        known |= {k: v for k, v in classes(file, package).items() if k in names}
            case ast.ClassDef(name=name):
                parents = [known[base] for base in _bases(node) if base in known]
                own[name] = known[name] = _class(node, parents)
    return own


def _bases(node: ast.AST) -> Iterator[str]:
    for base in node.bases if isinstance(node, ast.ClassDef) else ():
        if isinstance(base, ast.Name):
            yield base.id


def _class(node: ast.ClassDef, parents: list[ClassText]) -> ClassText:
    constants: dict[str, Any] = {}
    methods: dict[str, str] = {}
    options: tuple[str, ...] = ()
    usual: dict[str, Any] = {}
    kinds: dict[str, str] = {}
    for parent in parents:
        constants, methods = constants | parent.constants, methods | parent.methods
        if not options:
            options, usual, kinds = parent.options, parent.usual, parent.kinds
    for part in node.body:
        match part:
            case ast.Assign(targets=targets, value=value):
                constants |= _named(targets, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                constants |= _named([target], value)
            case ast.FunctionDef(name=name):
                methods[name] = node.name
                if name == "__init__":
                    options = tuple(arg.arg for arg in part.args.kwonlyargs)
                    usual, kinds = _usual(part), _kinds(part)
    registered = None
    for decorator in node.decorator_list:
        match decorator:
            case ast.Call(func=ast.Name(id="register"), args=[ast.Constant(value=str(name))]):
                registered = name
    doc = ast.get_docstring(node) or ""
    return ClassText(node.name, doc, registered, constants, methods, options, usual, kinds)


def _named(targets: list[ast.expr], value: ast.expr) -> dict[str, Any]:
    """`a = b = 2` -> {"a": 2, "b": 2}; nothing where the value is no literal."""
    with suppress(ValueError):
        literal = _constant(value)
        return {target.id: literal for target in targets if isinstance(target, ast.Name)}
    return {}


def _usual(init: ast.FunctionDef) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for arg, value in zip(init.args.kwonlyargs, init.args.kw_defaults, strict=True):
        with suppress(ValueError):
            found[arg.arg] = _constant(value) if value else None
    return found


def _kinds(init: ast.FunctionDef) -> dict[str, str]:
    return {a.arg: ast.unparse(a.annotation) for a in init.args.kwonlyargs if a.annotation}


def _constant(node: ast.expr) -> Any:
    """A literal, or texts joined by "+". Errors: ValueError."""
    match node:
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return f"{_constant(left)}{_constant(right)}"
    return ast.literal_eval(node)
