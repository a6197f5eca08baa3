"""One task per file. A file here that holds a Task subclass is found by its name.

>>> make("odds_first").example
'012345=135024'
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

from pezoo.spec import unknown

if TYPE_CHECKING:
    from harness.tasks.base import Task

ENTRY_POINTS = "pezoo.tasks"
_NOT_TASKS = {"__init__", "base", "digits", "testing"}


@cache
def _homes() -> dict[str, str]:
    """module:Class by task name; the class of a built-in task is found on import."""
    found = {p.stem: f"harness.tasks.{p.stem}" for p in sorted(Path(__file__).parent.glob("*.py"))}
    found = {name: home for name, home in found.items() if name not in _NOT_TASKS}
    for point in entry_points(group=ENTRY_POINTS):
        found.setdefault(point.name, point.value)
    return found


def names() -> list[str]:
    """The names of all tasks, sorted."""
    return sorted(_homes())


def check(name: str) -> str:
    """The name itself, if there is such a task. Errors: ValueError with the nearest name."""
    if name not in _homes():
        raise ValueError(unknown("task", name, names()))
    return name


def make(name: str) -> Task:
    """The task of that name. Errors: ValueError for an unknown name or a broken plug-in."""
    from harness.tasks.base import Task

    module, _, cls = _homes()[check(name)].partition(":")
    try:
        loaded = import_module(module)
    except Exception as error:
        raise ValueError(
            f"task {name!r} comes from {module!r}, which failed to import: "
            f"{type(error).__name__}: {error}"
        ) from error
    if cls:
        try:
            task: Task = getattr(loaded, cls)()
        except Exception as error:
            raise ValueError(
                f"task {name!r}, {module}:{cls}, cannot be made: {type(error).__name__}: {error}"
            ) from error
        if (own := getattr(task, "name", "")) != name:
            raise ValueError(
                f"the entry point {name} = {module}:{cls} has another name than its class, "
                f"{own!r}: records need one, make them equal"
            )
        return task
    there = [v for v in vars(loaded).values() if isinstance(v, type) and issubclass(v, Task)]
    for found in there:
        if getattr(found, "name", None) == name:
            return found()
    others = [repr(c.name) for c in there if getattr(c, "name", None)]
    raise ValueError(
        f"{module.replace('.', '/')}.py holds no Task whose name is {name!r}, its file's; "
        f"there: {', '.join(others) or 'none'}"
    )
