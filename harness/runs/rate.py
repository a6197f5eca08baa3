"""How fast a run goes, once a second."""

from __future__ import annotations

import math
import time


class Pace:
    """Steps a second since the first step, which may have had to compile kernels.

    >>> Pace().due(step=101) is None  # the clock starts here
    True
    """

    def __init__(self) -> None:
        self._first: tuple[int, float] | None = None
        self._told = -math.inf

    def due(self, step: int) -> float | None:
        """Steps a second, if any were counted and none told within the last second."""
        now = time.perf_counter()
        step_0, began = self._first = self._first or (step, now)
        if step == step_0 or now - self._told < 1:
            return None
        self._told = now
        return (step - step_0) / (now - began)
