"""The options that encodings with cursors share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

LEAST = {  # the smallest value of an option
    "cursors": 1, "hidden": 1, "window": 1, "copy_every": 0,
    "gate_noise": 0, "state_noise": 0, "orthogonal": 0,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class CursorOptions:
    """The docstrings of the encodings say what each does. Errors: ValueError out of range."""

    cursors: int
    d_pe: int
    hidden: int
    controller: str
    window: int
    norm: str
    absolute: bool
    mu: float
    before: str
    copy_every: int
    stride: int = 1
    gate_scale: float
    reset_bias: float
    key_bias: float
    query_bias: float
    gate_noise: float
    state_noise: float
    orthogonal: float
    frequencies: Callable[[torch.device], Tensor] = field(repr=False)

    def __post_init__(self) -> None:
        for name, least in LEAST.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, was {getattr(self, name)}")
        if self.d_pe < 2 or self.d_pe % 2:
            raise ValueError(f"d_pe must be even and at least 2, was {self.d_pe}")
        if self.gate_scale <= 0:
            raise ValueError(f"gate_scale must be above 0, was {self.gate_scale}")
        if self.norm not in ("frobenius", "scale"):
            raise ValueError(f"norm must be frobenius or scale, was {self.norm!r}")
        self.frequencies(torch.device("cpu"))  # raises for what it cannot make
