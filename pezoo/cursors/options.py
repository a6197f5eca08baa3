"""The options that encodings with cursors share."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pezoo.cursors.controllers import CONTROLLERS
from pezoo.functional import cursor_frequencies
from pezoo.spec import choice

CHOICES = {
    "norm": ("frobenius", "scale"),
    "copy_keys": ("fixed", "trained"),
    "controller": CONTROLLERS,
    "w_hh": ("free", "orthogonal", "normalised"),
}
LEAST = {  # the smallest value of an option
    "cursors": 1, "hidden": 1, "window": 1, "stride": 1, "copy_every": 0,
    "gate_noise": 0, "state_noise": 0, "orthogonal": 0, "top_weight": 0,
}  # fmt: skip
MOST = {"cursors": 1000, "hidden": 100_000, "window": 1000, "stride": 100}  # the largest


@dataclass(frozen=True, kw_only=True)
class CursorOptions:
    """The docstrings of the encodings say what each does. Errors: ValueError out of range."""

    cursors: int
    d_pe: int
    hidden: int
    controller: str
    window: int
    similarity: str
    base: float
    bandwidth: float
    top: float
    norm: str
    absolute: bool
    ablate_absolute: bool
    mu: float
    alpha: float
    top_weight: float
    lead: bool
    before: str | int
    copy_every: int
    copy_keys: str
    copy_gate: bool
    stride: int
    gate_scale: float
    reset_bias: float
    key_bias: float
    query_bias: float
    gate_noise: float
    state_noise: float
    orthogonal: float
    w_hh: str

    def __post_init__(self) -> None:
        for name, least in LEAST.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, was {getattr(self, name)}")
        for name, most in MOST.items():
            if getattr(self, name) > most:
                raise ValueError(f"{name} must be at most {most}, was {getattr(self, name)}")
        if self.d_pe < 2 or self.d_pe % 2:
            raise ValueError(f"d_pe must be even and at least 2, was {self.d_pe}")
        if self.gate_scale <= 0:
            raise ValueError(f"gate_scale must be above 0, was {self.gate_scale}")
        for name, known in CHOICES.items():
            choice(name, getattr(self, name), known)
        if self.ablate_absolute and not self.absolute:
            raise ValueError("ablate_absolute needs absolute=true: it puts zeros in that place")
        self.frequencies(torch.device("cpu"))  # raises for what it cannot make

    def frequencies(self, device: torch.device) -> Tensor:
        """(d_pe/2,) of the streams."""
        return cursor_frequencies(
            self.similarity, self.d_pe, self.base, self.bandwidth, device, top=self.top
        )
