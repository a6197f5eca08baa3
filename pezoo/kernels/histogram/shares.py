"""Shares of mass, which the fused back ends take instead of gates."""

from __future__ import annotations

from torch import Tensor

from pezoo.kernels.histogram.reference import Copy


def shares(
    reset: Tensor, moves: Tensor, gamma: Tensor | None, state: Tensor | None, copy: Copy | None
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return start (B, C, L0), kept and fresh (B, T, C, J), source (B, T, C, S), gamma (B, C).

    kept and fresh are the shares of mass that make each step from their bin and from offset 0.
    S is 0 without a copy branch, and gamma is empty without sharpening.
    """
    b, t, c = reset.shape
    moves = moves.clamp(min=0)  # as `update` does
    stay, jump, source = 1 - reset, reset, reset.new_ones(b, t, c, 0)
    if copy is not None:
        stay, jump, source = stay * copy.none, jump * copy.none, copy.source
    powers = reset.new_ones(0) if gamma is None else gamma.expand(b, c)
    start = reset.new_ones(b, c, 1) if state is None else state
    return start, moves * stay[..., None], moves * jump[..., None], source, powers
