"""Pictures of what an encoding has learned, as values that `pezoo show` draws."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor


@dataclass(frozen=True)
class Axis:
    """The label of an axis and its ticks; None means the tokens of the sequence."""

    label: str
    ticks: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Picture:
    """Panels of one kind with the same axes and the same limits.

    values      (panel, row, column); NaN where there is nothing
    kind        "heat": the first row on top. "bars": one row, whose label is that of the height.
    limits      the ends of the colour scale; None means the extremes of the values
    lines       (panel, column) int64, a row in each column, drawn as a line over a heat map
    importance  (panel,) panels with higher values are shown first; None keeps their order
    group       number of neighbouring panels that belong together, with equal importance
    meets       True if panels are pairs, a query's and a key's, that attend where rows are equal

    A picture with an axis of tokens shows one sequence, any other one the parameters alone.

    >>> import torch
    >>> axes = Axis("slope", ("",)), Axis("head", ("0", "1"))
    >>> Picture("Slopes", "Per head.", ("layer 0",), torch.ones(1, 1, 2), *axes, "bars").of_tokens
    False

    Errors: ValueError for shapes that do not match.
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
    meets: bool = False

    def __post_init__(self) -> None:
        if self.values.dim() != 3:
            raise ValueError(f"values must be (panel, row, column), got {self.values.shape}")
        panels, rows, columns = self.values.shape
        if self.kind == "bars" and (rows != 1 or self.columns.ticks is None):
            raise ValueError(f"bars need one row and ticks for the columns, got {rows} rows")
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
                    f"{tuple(self.values.shape)}, got {size}"
                )

    @property
    def of_tokens(self) -> bool:
        """True if it shows a sequence, not the parameters alone."""
        return self.rows.ticks is None or self.columns.ticks is None
