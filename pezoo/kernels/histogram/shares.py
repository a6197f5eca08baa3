"""What the fused back ends take in place of gates: shares of mass."""

from __future__ import annotations

from torch import Tensor

from pezoo.kernels.histogram.reference import Copy


def shares(
    reset: Tensor, moves: Tensor, gamma: Tensor | None, state: Tensor | None, copy: Copy | None
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """start (B, C, L0), kept and fresh (B, T, C, J), source (B, T, C, S), gamma (B, C) or empty.

    kept and fresh are the shares of mass that take each step from where they are and from offset 0.
    S is 0 without a copy branch, gamma is empty without sharpening.
    """
    b, t, c = reset.shape
    moves = moves.clamp(min=0)  # as `update` does
    stay, jump, source = 1 - reset, reset, reset.new_ones(b, t, c, 0)
    if copy is not None:
        stay, jump, source = stay * copy.none, jump * copy.none, copy.source
    powers = reset.new_ones(0) if gamma is None else gamma.expand(b, c)
    start = reset.new_ones(b, c, 1) if state is None else state
    return start, moves * stay[..., None], moves * jump[..., None], source, powers
