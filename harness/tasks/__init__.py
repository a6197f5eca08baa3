"""One task per file. A file here whose class has a line `name = "..."` is found by the file's name.

>>> make("odds_first").example
'012345=135024'
"""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, cast

from pezoo.registry import check_values
from pezoo.spec import Spec, choice, parse

if TYPE_CHECKING:
    from harness.tasks.base import Task

ENTRY_POINTS = "pezoo.tasks"
_NAMED = re.compile(rb"""^    name = ["']""", re.MULTILINE)  # what a file of a task has


@cache
def _homes() -> dict[str, str]:
    """module:Class by task name; the class of a built-in task is found on import."""
    found = _files(Path(__file__).parent)
    for point in entry_points(group=ENTRY_POINTS):
        found.setdefault(point.name, point.value)
    return found


def _files(folder: Path) -> dict[str, str]:
    """The modules of a folder that hold a task, by name: those with a class that has one."""
    paths = (path for path in sorted(folder.glob("*.py")) if _NAMED.search(path.read_bytes()))
    return {path.stem: f"harness.tasks.{path.stem}" for path in paths}


def names() -> list[str]:
    """The names of all tasks, sorted."""
    return sorted(_homes())


def check(text: str) -> str:
    """The text itself, if it names a task. Errors: ValueError with the nearest name."""
    _parse(text)
    return text


def _parse(text: str) -> Spec:
    if "(" not in text:
        choice("task", text, names())
    spec = parse(text)
    if spec.inner is not None:
        raise ValueError(f"task {text!r}: a task stands alone, without a colon")
    choice("task", spec.name, names())
    return spec


def make(text: str) -> Task:
    """The task of that name, with its options: `make("odds_first(symbols=2)")`.

    Errors: ValueError for an unknown name or option, a wrong value, or a broken plug-in.
    """
    spec = _parse(text)
    cls = _load(spec.name)
    check_values(spec, cls)
    try:
        task = cls(**spec.options)
    except ValueError as error:
        raise ValueError(f"task {spec}: {error}") from error
    except (Exception, SystemExit) as error:
        raise ValueError(
            f"task {spec.name!r}, {_homes()[spec.name]}, cannot be made: "
            f"{type(error).__name__}: {error}"
        ) from error
    chance = getattr(task, "chance", 0)
    if not isinstance(chance, int | float) or not 0 <= chance <= 1:
        raise ValueError(f"task {spec}: chance must be a share from 0 to 1, was {chance!r}")
    if (own := getattr(task, "name", "")) != spec.name:
        raise ValueError(
            f"the entry point {spec.name} = {_homes()[spec.name]} has another name than its "
            f"class, {own!r}: records need one, make them equal"
        )
    return task


def canonical(text: str) -> str:
    """The one text of a task: options in order, without those that have their usual value.

    >>> canonical("odds_first( symbols=10 )")
    'odds_first'
    """
    spec = _parse(text)
    if not spec.options:
        return spec.name
    cls = _load(spec.name)
    check_values(spec, cls)
    usual = {name: p.default for name, p in signature(cls).parameters.items()}
    own = {key: value for key, value in spec.options.items() if value != usual[key]}
    return str(Spec(spec.name, own))


def _load(name: str) -> type[Task]:
    from harness.tasks.base import Task

    module, _, cls = _homes()[name].partition(":")
    try:
        loaded = import_module(module)
        named = cast("type[Task]", getattr(loaded, cls)) if cls else None
    except (Exception, SystemExit) as error:
        raise ValueError(
            f"task {name!r} comes from {module!r}, which failed to import: "
            f"{type(error).__name__}: {error}"
        ) from error
    if named is not None:
        return named
    there = [v for v in vars(loaded).values() if isinstance(v, type) and issubclass(v, Task)]
    for found in there:
        if getattr(found, "name", None) == name:
            return found
    others = [repr(c.name) for c in there if getattr(c, "name", None)]
    raise ValueError(
        f"{module.replace('.', '/')}.py holds no Task whose name is {name!r}, its file's; "
        f"there: {', '.join(others) or 'none'}"
    )
