"""The options that encodings with cursors share."""

import math
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from pezoo.base import Shape
from pezoo.cursors.controllers import CONTROLLERS
from pezoo.functional import inverse_frequencies
from pezoo.spec import choice

CHOICES = {"similarity": ("cosine", "geometric"), "controller": CONTROLLERS}
RANGES = {  # the smallest and the largest value
    "cursors": (1, 1000), "hidden": (1, 100_000), "window": (1, 1000), "stride": (1, 100),
    "copy_every": (0, math.inf), "gate_noise": (0, math.inf), "state_noise": (0, math.inf),
    "orthogonal": (0, math.inf), "top_weight": (0, math.inf),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class CursorOptions:
    """Options of prism and prism_spectral, with the defaults of both.

    pezoo.encodings.prism.PRISM has a line for each, with the paper's symbol and equation. d_pe and
    hidden follow from the model where they are None: d_pe = 2 d_head, hidden = 100/64 d_model.

    Errors: ValueError for an option out of range.
    """

    cursors: int = 3
    d_pe: int | None = None
    similarity: str = "geometric"
    base: float = 100.0
    top: float = 1.0
    mu: float = 0.0
    alpha: float = 1.5
    top_weight: float = 4.0
    lead: bool = False
    stride: int = 2
    before: str | int = "0"
    controller: str = "latch"
    hidden: int | None = None
    window: int = 1
    copy_every: int = 3
    copy_gate: bool = True
    gate_scale: float = 1.5
    reset_bias: float = -2.5
    key_bias: float = 2.0
    query_bias: float = 3.0
    gate_noise: float = 1.0
    state_noise: float = 0.0
    orthogonal: float = 0.0

    def __post_init__(self) -> None:
        for name, (least, most) in RANGES.items():
            value = getattr(self, name)
            if value is None:
                continue
            if value < least:
                raise ValueError(f"{name} must be at least {least}, got {value}")
            if value > most:
                raise ValueError(f"{name} must be at most {most}, got {value}")
        if self.d_pe is not None and (self.d_pe < 2 or self.d_pe % 2):
            raise ValueError(f"d_pe must be even and at least 2, got {self.d_pe}")
        if self.gate_scale <= 0:
            raise ValueError(f"gate_scale must be above 0, got {self.gate_scale}")
        for name, known in CHOICES.items():
            choice(name, getattr(self, name), known)
        if not 0 < self.top <= 1:
            raise ValueError(f"top must be above 0 and at most 1, got {self.top}")
        self.frequencies()  # raises for a base that has none

    def sized(self, shape: Shape) -> Self:
        """Return the options for a model, without None."""
        d_pe = 2 * shape.d_head if self.d_pe is None else self.d_pe
        hidden = round(shape.d_model * 100 / 64) if self.hidden is None else self.hidden
        return replace(self, d_pe=d_pe, hidden=hidden)

    @property
    def width(self) -> int:
        """d_pe after `sized`, else the least one."""
        return self.d_pe or 2

    @property
    def units(self) -> int:
        """hidden after `sized`, else the least one."""
        return self.hidden or 1

    def frequencies(self, device: torch.device | None = None) -> Tensor:
        """Return (d_pe/2,) float32 frequencies w of the streams.

        sum_m cos(w_m r) / (d_pe/2) is the similarity of two offsets r apart.

            cosine     base^(-2m/d_pe), the Transformer's grid (Lee 2025, Section 5.2)
            geometric  top pi base^(-2m/d_pe): its shortest period is 2 / top offsets; at top = 1,
                       the highest frequency that integers can carry, it tells odd from even offsets
        """
        highest = self.top * math.pi if self.similarity == "geometric" else 1.0
        return highest * inverse_frequencies(self.width, self.base, device)
