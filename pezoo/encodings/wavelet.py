"""Wavelet positions: Ricker wavelets of the distance in the place of Shaw's vectors."""

import math
from typing import Unpack

import torch
from torch import Tensor

from pezoo.base import Context, Encoding, Pass, Shape, Sizes
from pezoo.functional import distinct
from pezoo.registry import register


@register("wavelet")
class Wavelet(Encoding):
    """Add K wavelets of the distance, each of another width and place, to the keys.

    Formula: a_ij = q_i (k_j + p(i - j)) / sqrt(K), p(d)_m = psi((d - b_m) / a_m) / sqrt(a_m) with
    the Ricker wavelet psi(t) = (1 - t^2) exp(-t^2 / 2), for n scales: a_m = 2^(m mod n), in tokens,
    and b_m = floor(m / n). The bias returned is the second term.

    Example: p(0)_0 = psi(0) = 1; p(1)_0 = psi(1) = 0; p(2)_1 = psi(2 / 2) = 0.

    Shapes: q (B, H, T, K) -> (B, H, T, S), no parameters. Wavelets are float32.
    Options: scales, the number n of widths.
    Errors: ValueError for scales that do not divide K, and for more than 24.

    Paper: Oka et al. 2025, "Wavelet-based Positional Representation for Long Context". Which widths
    and places the K wavelets have is our choice: powers of two, and the nearest tokens.
    """

    summary = "wavelets of the distance, added to the keys"
    paper = "Oka et al. 2025"
    reports = "better perplexity than rope and alibi within and beyond the training length"
    reads = "distance"
    prf_text = "i - j"
    relative = True
    reads_distance = True

    def __init__(
        self, shape: Shape | None = None, *, scales: int | None = None, **sizes: Unpack[Sizes]
    ) -> None:
        super().__init__(shape, **sizes)
        size = self.shape.d_head
        self.scales = math.gcd(size, 8) if scales is None else scales
        if not 1 <= self.scales <= 24 or size % self.scales:
            raise ValueError(f"scales must divide d_head={size} and be 1 to 24, got {self.scales}")

    def prf(self, ctx: Context) -> Tensor:
        return ctx.distance()[0]

    def bias(self, q: Tensor, k: Tensor, ctx: Pass) -> Tensor:
        distances, index = distinct(ctx.distance())  # (n,), (B|1, T, S)
        waves = self.waves(distances).to(q.dtype) / math.sqrt(self.shape.d_head)
        scores = torch.einsum("bhtk,nk->bhtn", q, waves)
        return scores.gather(-1, index[:, None].expand(*q.shape[:2], -1, -1))

    def waves(self, distance: Tensor) -> Tensor:
        """Return p (n, K) of distances (n,)."""
        m = torch.arange(self.shape.d_head, device=distance.device)
        width = 2.0 ** (m % self.scales).float()
        t = (distance[:, None] - m // self.scales) / width
        return (1 - t.square()) * torch.exp(-t.square() / 2) / width.sqrt()
