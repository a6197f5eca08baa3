"""CoPE: distances counted in the tokens that the query finds worth counting."""

from typing import Unpack

import torch
from torch import Tensor, nn

from pezoo.adapters import attention_mask
from pezoo.base import Encoding, Pass, Shape, Sizes
from pezoo.functional import at_least_float32, for_each_head, full_precision
from pezoo.registry import register


@register("cope")
class CoPE(Encoding):
    """Add a learned vector to each key, by the number of tokens that gates count from there on.

    Formula: g_ij = s(q_i k_j / sqrt(K)), s the sigmoid; p_ij = min(g_ij + ... + g_ii, P - 1); b_ij
    = q_i e[p_ij], e[p] interpolated between its neighbours e[floor p] and e[ceil p].

    Example: all gates 1: b_ij = q_i e[i - j + 1], a learned vector for each distance. All gates
    1/2: the token itself has p = .5 and half of e[0] and e[1] each.

    Shapes: q, k (B, H, T, K) -> (B, H, T, S). Per layer e (P, K), for all heads, at the start 0.
    Gates and sums are float32 at least. Gates count the keys that a decoder's query sees: none
    that are padding or of another document.
    Options: max_pos, the number P, which the paper keeps well below the length of its texts.
    Errors: ValueError for a max_pos below 2.

    Paper: Golovneva et al. 2024, "Contextual Position Encoding", with the code of Appendix B, which
    divides q k by sqrt(K) and q e not. At the start gates are near 1/2, so that all keys
    beyond 2P tokens share e[P - 1]; and with e = 0 the gates have no gradient of their own until e
    has moved.
    """

    summary = "a learned vector by a count of tokens, gated by content"
    paper = "Golovneva et al. 2024"
    reports = "solves selective copying, counting and Flip-Flop, which usual encodings do not"
    reads = "text"
    relative = True
    causal_only = True

    def __init__(
        self, shape: Shape | None = None, *, max_pos: int = 64, **sizes: Unpack[Sizes]
    ) -> None:
        super().__init__(shape, **sizes)
        if max_pos < 2:
            raise ValueError(f"max_pos must be at least 2, got {max_pos}")
        self.max_pos = max_pos
        self.e = nn.Parameter(torch.zeros(self.shape.n_layers, max_pos, self.shape.d_head))

    def counts(self, q: Tensor, k: Tensor, ctx: Pass) -> Tensor:
        """Return p, (B, H, T, S)."""
        k = for_each_head(k, q)
        gates: Tensor = torch.sigmoid(q @ k.mT * self.shape.d_head**-0.5) * attention_mask(ctx)
        return gates.flip(-1).cumsum(-1).flip(-1).clamp(max=self.max_pos - 1)

    def bias(self, q: Tensor, k: Tensor, ctx: Pass) -> Tensor:
        with full_precision(q.device.type):
            q = at_least_float32(q)
            p, values = self.counts(q, k.to(q.dtype), ctx), q @ self.e[ctx.layer].to(q.dtype).mT
            low, high = (values.gather(-1, at.long()) for at in (p.floor(), p.ceil()))
            return torch.lerp(low, high, p - p.floor())
