"""Pictures of what an encoding has learned: the encoding gives the values, its user draws them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor


@dataclass(frozen=True)
class Axis:
    """The label of an axis, and a word for each place on it; None: the tokens of the sequence."""

    label: str
    ticks: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Picture:
    """Panels of one kind with the same axes and the same limits.

    values      (panel, row, column); NaN where there is nothing
    kind        "heat": the first row on top. "bars": one row, whose label is that of the height.
    limits      the values at the two ends of the scale; None: the extremes of the values
    lines       (panel, column) int64, a row in each column, drawn as a line over a heat map
    importance  (panel,) which panels to show first; None: in their order
    group       so many neighbouring panels are read together and have equal importance

    A picture with an axis of tokens shows that sequence, any other one the parameters alone.

    >>> import torch
    >>> axes = Axis("slope", ("",)), Axis("head", ("0", "1"))
    >>> Picture("Slopes", "Per head.", ("layer 0",), torch.ones(1, 1, 2), *axes, "bars").of_tokens
    False

    Errors: ValueError where the shapes do not fit.
    """

    title: str
    caption: str
    panels: tuple[str, ...]
    values: Tensor
    rows: Axis
    columns: Axis
    kind: Literal["heat", "bars"] = "heat"
    limits: tuple[float, float] | None = None
    lines: Tensor | None = None
    importance: Tensor | None = None
    group: int = 1

    def __post_init__(self) -> None:
        if self.values.dim() != 3:
            raise ValueError(f"values must be (panel, row, column), were {self.values.shape}")
        panels, rows, columns = self.values.shape
        if self.kind == "bars" and (rows != 1 or self.columns.ticks is None):
            raise ValueError(f"bars have one row and words for the columns, were given {rows} rows")
        for name, given, expected in (
            ("panels", self.panels, panels),
            ("ticks of the rows", self.rows.ticks, rows),
            ("ticks of the columns", self.columns.ticks, columns),
            ("lines", self.lines, (panels, columns)),
            ("importance", self.importance, (panels,)),
        ):
            size = tuple(given.shape) if isinstance(given, Tensor) else len(given or ())
            if given is not None and size != expected:
                raise ValueError(
                    f"{self.title!r} needs {expected} {name} for values "
                    f"{tuple(self.values.shape)}, was given {size}"
                )

    @property
    def of_tokens(self) -> bool:
        """True when it is about the sequence, and not about the parameters alone."""
        return self.rows.ticks is None or self.columns.ticks is None
