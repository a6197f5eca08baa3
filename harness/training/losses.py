"""The losses of a run, or of several side by side, which stay on the device until they are read."""

from __future__ import annotations

import math

import torch
from torch import Tensor


class Diverged(RuntimeError):
    """The loss is no longer a finite number."""


class Losses:
    """The last loss of each run, and where one was not finite, the first such and its step.

    >>> losses = Losses()
    >>> for step, loss in enumerate([2.0, math.inf, math.nan]):
    ...     losses.note(step, torch.tensor([loss]))
    >>> losses.read()
    ([inf], [Diverged('loss is inf at step 1')])
    """

    def __init__(self) -> None:
        self._last: Tensor | None = None  # (M,) losses, and their steps
        self._steps: Tensor | None = None

    def note(self, step: int, losses: Tensor) -> None:
        """The losses (M,) of that step; nothing waits for them."""
        losses = losses.detach()
        now = torch.full_like(losses, step, dtype=torch.int64)
        if self._last is None or self._steps is None:
            self._last, self._steps = losses, now
            return
        healthy = self._last.isfinite()
        self._steps = torch.where(healthy, now, self._steps)
        self._last = torch.where(healthy, losses, self._last)

    def read(self) -> tuple[list[float], list[Diverged | None]]:
        """The losses, and for each that is not finite the error. Waits for the device."""
        if self._last is None or self._steps is None:
            return [], []
        losses = self._last.tolist()
        errors = [
            None if math.isfinite(loss) else Diverged(f"loss is {loss} at step {step}")
            for loss, step in zip(losses, self._steps.tolist(), strict=True)
        ]
        return losses, errors
