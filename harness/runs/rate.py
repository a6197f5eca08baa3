"""Training speed, once a second."""

from __future__ import annotations

import math
import time


class Rate:
    """Steps per second since the first step, which may have had to compile kernels.

    >>> Rate().due(step=101) is None  # the clock starts here
    True
    """

    def __init__(self) -> None:
        self._first: tuple[int, float] | None = None
        self._reported = -math.inf

    def due(self, step: int) -> float | None:
        """Steps per second; None before the second step and within a second of the last answer."""
        now = time.perf_counter()
        step_0, began = self._first = self._first or (step, now)
        if step == step_0 or now - self._reported < 1:
            return None
        self._reported = now
        return (step - step_0) / (now - began)
