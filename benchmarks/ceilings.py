"""Measure this machine's peak rates, on the threads in use."""

from __future__ import annotations

from typing import NamedTuple

import torch

from harness.perf.timing import clock

COPY_BYTES = 2**28  # far beyond any cache, so that a copy runs at the speed of memory
MATMUL = 1024
TRIES = 7


class Ceilings(NamedTuple):
    """Floating-point operations and bytes per second.

    >>> Ceilings(flops=1e9, bandwidth=1e9).floor(flops=4e9, size=2e9)
    4.0
    """

    flops: float
    bandwidth: float

    def floor(self, flops: float, size: float) -> float:
        """The least seconds for that many operations and bytes, if both overlap perfectly."""
        return max(flops / self.flops, size / self.bandwidth)


def ceilings(device: str) -> Ceilings:
    """The best of several tries: a product of float32 matrices, and a copy of 256 MiB.

    A copy reads and writes, so it moves twice its size.
    """
    a, b = torch.randn(2, MATMUL, MATMUL, device=device)
    product = torch.empty_like(a)
    source = torch.ones(COPY_BYTES // 4, device=device)
    target = torch.ones_like(source)  # written once, so that no page is new to the copy
    torch.mm(a, b, out=product)
    multiply = min(clock(lambda: torch.mm(a, b, out=product), device)[0] for _ in range(TRIES))
    copy = min(clock(lambda: target.copy_(source), device)[0] for _ in range(TRIES))
    return Ceilings(2 * MATMUL**3 / multiply, 2 * COPY_BYTES / copy)
