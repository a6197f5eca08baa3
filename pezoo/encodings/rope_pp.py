"""RoPE++: rope's complex product, its real part for some heads and its imaginary for others."""

from collections.abc import Mapping
from typing import Any, Unpack

import torch
from torch import Tensor

from pezoo.base import Pass, Shape, Sizes
from pezoo.encodings.rope import RoPE
from pezoo.registry import register


@register("rope_pp")
class RoPEPlusPlus(RoPE):
    """Give each pair of heads one product of q and k: its real part is rope, -Im the other head.

    Formula: with complex pairs q_m and k_m and c_ij = sum_m q_im conj(k_jm) e^(i w_m (i - j)) /
    sqrt(K), w_m = base^(-2m/K), head 2n has Re c_ij and head 2n + 1 has Im c_ij, which is -Im for
    the paper's conj(q) k. The second is the first with q turned by -pi/2: both have q and k of head
    2n, since a head with a q of its own could learn that turn, and would be rope.

    Example: K = 2, w_0 = 1, q = k = (1, 0): cos(d) and sin(d) at distance d. The second head is 0
    at the token itself. Over many pairs it is the smaller one near by, the larger one far away.

    Shapes: q, k (B, H, T, K) -> q the same, k with as many heads or H, float32 at least. Angles as
    in rope. What odd heads have for q is not read, nor for k where no pair shares it. The last of
    an odd number of heads has rope.
    Options: base, layout and rope_parameters as in rope.
    Errors: those of rope.

    Paper: Liu et al. 2025, "Beyond Real: Imaginary Extension of Rotary Position Embeddings for
    Long-Context LLMs", and the authors' code. A pair shares its value too there, which is up to the
    model: with H/2 key-value heads it is RoPE++_EH (imag1), and RoPE++_EC (imag2) with twice as
    many heads of the same K besides.
    """

    summary = "real and imaginary parts of rope's product, in pairs of heads"
    paper = "Liu et al. 2025"
    reports = "better than rope on long contexts, as good on short ones"
    rope_within = 0

    def __init__(
        self,
        shape: Shape | None = None,
        *,
        base: float = 10_000.0,
        layout: str = "half",
        rope_parameters: Mapping[str, Any] | str = "default",
        **sizes: Unpack[Sizes],
    ) -> None:
        super().__init__(shape, base=base, layout=layout, rope_parameters=rope_parameters, **sizes)

    def transform(self, q: Tensor, k: Tensor, ctx: Pass) -> tuple[Tensor, Tensor]:
        turn, share = self.rotation(ctx), q.shape[1] // k.shape[1]
        head = torch.arange(q.shape[1], device=q.device)
        read = head // 2 * 2
        if share % 2:  # with an even number, pairs share their keys
            k = k.repeat_interleave(share, 1)[:, read]
        turns = torch.where((head > read)[:, None, None], -1j * turn, turn)
        return self.rotated(q[:, read], turns), self.rotated(k, turn)
