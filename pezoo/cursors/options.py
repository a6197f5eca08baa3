"""The options that encodings with cursors share."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from pezoo.cursors.controllers import CONTROLLERS
from pezoo.functional import inverse_frequencies
from pezoo.spec import choice

CHOICES = {
    "similarity": ("cosine", "geometric"),
    "norm": ("frobenius", "scale"),
    "copy_keys": ("fixed", "trained"),
    "controller": CONTROLLERS,
    "w_hh": ("free", "orthogonal", "normalised"),
}
RANGES = {  # the smallest and the largest value
    "cursors": (1, 1000), "hidden": (1, 100_000), "window": (1, 1000), "stride": (1, 100),
    "copy_every": (0, math.inf), "gate_noise": (0, math.inf), "state_noise": (0, math.inf),
    "orthogonal": (0, math.inf), "top_weight": (0, math.inf),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class CursorOptions:
    """Options of prism, prism_spectral and prism_trio, with prism's defaults.

    pezoo.encodings.prism.PRISM documents each of them.

    Errors: ValueError for an option out of range.
    """

    cursors: int = 4
    d_pe: int = 340
    similarity: str = "cosine"
    base: float = 10_000.0
    top: float = 0.9
    norm: str = "frobenius"
    absolute: bool = False
    ablate_absolute: bool = False
    mu: float = 0.0
    alpha: float = 1.0
    top_weight: float = 0.0
    lead: bool = False
    stride: int = 1
    before: str | int = "0"
    controller: str = "gru"
    hidden: int = 100
    window: int = 4
    copy_every: int = 0
    copy_keys: str = "fixed"
    copy_gate: bool = False
    gate_scale: float = 1.0
    reset_bias: float = -2.0
    key_bias: float = 2.0
    query_bias: float = 0.0
    gate_noise: float = 0.0
    state_noise: float = 0.0
    orthogonal: float = 1e-3
    w_hh: str = "free"

    def __post_init__(self) -> None:
        for name, (least, most) in RANGES.items():
            value = getattr(self, name)
            if value < least:
                raise ValueError(f"{name} must be at least {least}, got {value}")
            if value > most:
                raise ValueError(f"{name} must be at most {most}, got {value}")
        if self.d_pe < 2 or self.d_pe % 2:
            raise ValueError(f"d_pe must be even and at least 2, got {self.d_pe}")
        if self.gate_scale <= 0:
            raise ValueError(f"gate_scale must be above 0, got {self.gate_scale}")
        for name, known in CHOICES.items():
            choice(name, getattr(self, name), known)
        if self.ablate_absolute and not self.absolute:
            raise ValueError("ablate_absolute needs absolute=true: it puts zeros in that place")
        if not 0 < self.top <= 1:
            raise ValueError(f"top must be above 0 and at most 1, got {self.top}")
        self.frequencies()  # raises for a base that has none

    def frequencies(self, device: torch.device | None = None) -> Tensor:
        """Return (d_pe/2,) float32 frequencies w of the streams.

        sum_m cos(w_m r) / (d_pe/2) is the similarity of two offsets r apart.

            cosine     base^(-2m/d_pe), the Transformer's grid (Lee 2025, Section 5.2)
            geometric  top pi base^(-2m/d_pe): its shortest period is 2 / top offsets; at top = 1,
                       the highest frequency that integers can carry, it tells odd from even offsets
        """
        highest = self.top * math.pi if self.similarity == "geometric" else 1.0
        return highest * inverse_frequencies(self.d_pe, self.base, device)
