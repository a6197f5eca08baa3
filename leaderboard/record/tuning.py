"""Tuned comparisons: every encoding runs with its best setting from one grid.

The grid is the same for all encodings, and its runs have seeds and test examples of their own.
`best` chooses one setting per encoding and task, which is then run on the seeds of the comparison.
The protocol's name ends in a hash of the grid and its seeds, so these runs share their own table.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from itertools import product
from math import inf, prod
from typing import Annotated, Self

from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass

from leaderboard.record.fields import CHECKED, Amount, Name, Part, RunId, Seed, Share, Text

MARK = "+tune-"
RUNS = "+tuning"  # ends the protocol's name of a run that serves to choose
EXAMPLES = "tuning"  # config.eval.examples of such a run
MOST_CELLS = 1000  # of a grid, each counted once for each of its seeds

Value = Annotated[int, Field(ge=-(2**63), lt=2**63)] | float | Text
Grid = Annotated[dict[Name, Annotated[list[Value], Field(min_length=1, max_length=1000)]],
                 Field(min_length=1, max_length=20)]  # fmt: skip
Seeds = Annotated[list[Seed], Field(min_length=1, max_length=1000)]


@dataclass(config=CHECKED, frozen=True, slots=True, kw_only=True)
class Trial:
    """One cell of the grid: means over the tuning seeds. A cell with a failed run has no `exact`.

    `exact`: exact match over all test lengths that have a number; `token` and `bits`: of encoders
    and of text alone, which are compared by them, token accuracy and bits per byte over the same;
    `validation`: exact match over the training lengths, 0 for text; `loss`: the last one. Of the
    default evaluation mode, after the last step.
    """

    values: dict[Name, Value]
    exact: Share | None
    validation: Share | None
    loss: Amount | None
    runs: Annotated[list[RunId], Field(max_length=1000)]
    token: Share | None = None
    bits: Amount | None = None

    @property
    def score(self) -> float | None:
        """The metric that chooses the best trial; of bits the fewest."""
        return next((one for one in (self.bits, self.token) if one is not None), self.exact)


class Tuning(Part):
    """The sweep that chose the settings of a run, and its cost."""

    grid: Grid
    seeds: Seeds
    chosen: dict[Name, Value]
    cells: Annotated[list[Trial], Field(min_length=1, max_length=MOST_CELLS)]
    cpu_seconds: Amount
    seconds: Amount

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if prod(map(len, self.grid.values())) != len(self.cells):
            raise ValueError(f"{len(self.cells)} cells are not those of the grid")
        return self

    def grid_words(self) -> str:
        """Describe the grid, as in "lr of 0.001, 0.003; steps of 2000"."""
        texts = (f"{name} of {', '.join(map(_text, values))}" for name, values in self.grid.items())
        return "; ".join(texts)


def tuned_name(protocol: str, grid: Mapping[str, Sequence[Value]], seeds: Sequence[int]) -> str:
    """Return the protocol's name with the hash of a grid and its seeds.

    >>> tuned_name("quick", {"lr": [0.001, 0.003]}, [100])
    'quick+tune-a19225cc'
    """
    text = json.dumps([{name: list(values) for name, values in grid.items()}, list(seeds)],
                      sort_keys=True)  # fmt: skip
    return f"{protocol}{MARK}{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def cells(grid: Mapping[str, Sequence[Value]]) -> list[dict[str, Value]]:
    """Return every combination of the grid's values; the last name varies fastest.

    >>> cells({"lr": [1, 2], "steps": [5, 6]})[:3]
    [{'lr': 1, 'steps': 5}, {'lr': 1, 'steps': 6}, {'lr': 2, 'steps': 5}]
    """
    names = sorted(grid)
    return [dict(zip(names, values, strict=True)) for values in product(*(grid[n] for n in names))]


def best(trials: Sequence[Trial]) -> Trial | None:
    """Return the best cell, by the same rule for every encoding; None if every cell failed.

    Best mean over all test lengths: the highest exact match of decoders and token accuracy of
    encoders, the fewest bits of text; then the highest exact match over the training lengths; then
    the lowest last loss; then the fewest steps; then the first of the grid.
    """

    def order(trial: Trial) -> tuple[float, ...]:
        steps = trial.values.get("steps")
        return (
            round(trial.score or 0.0, 9) * (-1 if trial.bits is None else 1),
            -round(trial.validation or 0.0, 9),
            inf if trial.loss is None else trial.loss,
            steps if isinstance(steps, int) else 0,
        )

    return min((trial for trial in trials if trial.exact is not None), key=order, default=None)


def values_text(values: Mapping[str, Value]) -> str:
    """
    >>> values_text({"lr": 0.001, "steps": 2000})
    'lr=0.001, steps=2000'
    """
    return ", ".join(f"{name}={_text(value)}" for name, value in values.items())


def _text(value: Value) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
