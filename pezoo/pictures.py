"""Pictures that an encoding offers of what it has learned; whoever asks for them draws them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor


@dataclass(frozen=True)
class Axis:
    """What an axis counts, and a word for each place on it; None: the tokens of the sequence."""

    label: str
    ticks: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Picture:
    """Panels of one kind that share their axes and their range.

    values   (panel, row, column); NaN where there is nothing
    kind     "heat": the first row on top. "bars": one row; its label is that of the height.
    span     the values at the two ends of the range; None: as far as the values go
    marks    (panel, column) a row in each column that stands out, int64
    weights  (panel,) which panels matter most where there are too many to show; None: the first
    group    so many neighbouring panels are read together, and have equal weights

    A picture with an axis of tokens is about that sequence, any other about the weights alone.

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
    span: tuple[float, float] | None = None
    marks: Tensor | None = None
    weights: Tensor | None = None
    group: int = 1

    def __post_init__(self) -> None:
        if self.values.dim() != 3:
            raise ValueError(f"values must be (panel, row, column), were {self.values.shape}")
        panels, rows, columns = self.values.shape
        if self.kind == "bars" and (rows != 1 or self.columns.ticks is None):
            raise ValueError(f"bars have one row and words for the columns, were given {rows} rows")
        expected: list[tuple[str, object, object]] = [("panels", len(self.panels), panels)]
        for name, axis, size in (("rows", self.rows, rows), ("columns", self.columns, columns)):
            if axis.ticks is not None:
                expected.append((f"ticks of the {name}", len(axis.ticks), size))
        if self.marks is not None:
            expected.append(("marks", tuple(self.marks.shape), (panels, columns)))
        if self.weights is not None:
            expected.append(("weights", tuple(self.weights.shape), (panels,)))
        for name, given, needed in expected:
            if given != needed:
                raise ValueError(
                    f"{self.title!r} needs {needed} {name} for values {tuple(self.values.shape)}, "
                    f"was given {given}"
                )

    @property
    def of_tokens(self) -> bool:
        """True when it is about the sequence, and not about the weights alone."""
        return self.rows.ticks is None or self.columns.ticks is None
