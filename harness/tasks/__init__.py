"""Algorithmic tasks, one per file. A class with a literal `name = "..."` is found without imports.

>>> make("odds_first").example
'012345=135024'
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, cast

from pezoo.class_text import named_classes
from pezoo.plugin import bounded, guarded
from pezoo.registry import check_values
from pezoo.spec import Spec, SpecError, choice, parse

if TYPE_CHECKING:
    from harness.tasks.base import Task

ENTRY_POINTS = "pezoo.tasks"


@cache
def locations() -> dict[str, str]:
    """Return "module:Class" of every task by name. Nothing is imported."""
    found = {
        name: f"harness.tasks.{one.path.stem}:{one.text.name if one.text else ''}"
        for folder in __path__
        for name, one in named_classes(Path(folder)).items()
    }
    for point in entry_points(group=ENTRY_POINTS):
        found.setdefault(point.name, point.value)
    return found


def names() -> list[str]:
    """Return the names of all tasks, sorted."""
    return sorted(locations())


def check(text: str) -> str:
    """Return the text if it names a task. Errors: ValueError with the nearest name."""
    _parse(text)
    return text


def _parse(text: str) -> Spec:
    if "(" not in text:
        choice("task", text, names())
    spec = parse(text)
    if spec.inner is not None:
        raise ValueError(f"task {text!r}: a task cannot wrap another, remove the colon")
    choice("task", spec.name, names())
    return spec


def make(text: str) -> Task:
    """Build a task from its text form, for example `make("odds_first(symbols=2)")`.

    Errors: ValueError for an unknown name or option, a wrong value, or a broken plug-in.
    """
    spec = _parse(text)
    cls = _load(spec.name)
    check_values(spec, cls)
    with guarded(f"task {spec.name!r}, {locations()[spec.name]}, cannot be made"):
        try:
            task = cls(**spec.options)
        except ValueError as error:
            raise SpecError(f"task {spec}: {error}") from error
    chance = getattr(task, "chance", 0)
    if not isinstance(chance, int | float) or not 0 <= chance <= 1:
        raise ValueError(f"task {spec}: chance must be from 0 to 1, was {chance!r}")
    if (own := getattr(task, "name", "")) != spec.name:
        raise ValueError(
            f"the entry point {spec.name} = {locations()[spec.name]} loads a task named {own!r}: "
            "make the names equal"
        )
    return task


def canonical(text: str) -> str:
    """Return the canonical text of a task: options in order, without default values.

    >>> canonical("odds_first( symbols=10 )")
    'odds_first'
    """
    spec = _parse(text)
    if not spec.options:
        return spec.name
    cls = _load(spec.name)
    check_values(spec, cls)
    defaults = {name: p.default for name, p in signature(cls).parameters.items()}
    own = {key: value for key, value in spec.options.items() if value != defaults[key]}
    return str(Spec(spec.name, own))


def _load(name: str) -> type[Task]:
    from harness.tasks.base import Task

    module, _, cls = locations()[name].partition(":")
    with guarded(f"task {name!r} comes from {module!r}, which failed to import", module):
        with bounded(module):
            found = getattr(import_module(module), cls)
        if not callable(found) or (isinstance(found, type) and not issubclass(found, Task)):
            raise TypeError(f"{cls} is not a subclass of harness.tasks.base.Task")
        return cast("type[Task]", found)
