"""The loss of a run, which stays on the device until it is read."""

from __future__ import annotations

import math

import torch
from torch import Tensor


class Diverged(RuntimeError):
    """The loss is no longer a finite number."""


class Losses:
    """The last loss, or the first one that was not finite, and its step.

    >>> losses = Losses()
    >>> losses.note(0, torch.tensor(2.0))
    >>> losses.read()
    2.0
    """

    def __init__(self) -> None:
        self._loss: Tensor | None = None
        self._step: Tensor | None = None

    def note(self, step: int, loss: Tensor) -> None:
        """Keep the loss () of a step. Does not synchronise with the device."""
        loss = loss.detach()
        now = torch.full_like(loss, step, dtype=torch.int64)
        if self._loss is None or self._step is None:
            self._loss, self._step = loss, now
            return
        healthy = self._loss.isfinite()
        self._step = torch.where(healthy, now, self._step)
        self._loss = torch.where(healthy, loss, self._loss)

    def read(self) -> float:
        """Return the loss, NaN before the first step. Synchronises with the device.

        Errors: Diverged if a loss was not finite.
        """
        if self._loss is None or self._step is None:
            return math.nan
        loss = float(self._loss)
        if not math.isfinite(loss):
            raise Diverged(f"loss is {loss} at step {int(self._step)}")
        return loss
