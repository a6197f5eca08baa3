"""ALiBi: a penalty linear in the distance."""

from typing import Unpack

import torch
from torch import Tensor

from pezoo.base import BiasForm, Context, Encoding, FormKind, ScoreMod, Shape, Sizes
from pezoo.registry import register


@register("alibi")
class ALiBi(Encoding):
    """Subtract from each logit the distance times the head's slope.

    Formula: b_ij = -m_h |i - j|, m_h = 2^(-8h/H) for h = 1..H when H is a power of two. Otherwise
    the slopes for the power of two P below H, then every other slope of 2P heads, from the first.
    With `asymmetric`: b_ij = -m_h (|i - j| - 1/2 [j < i]), so that the two sides differ.

    Example: H = 8, first head: m = 1/2; the token three back gets -1.5, asymmetric -1.25.

    Shapes: -> (B|1, H, T, S), no parameters. Distances are integers, products float32.
    Options: asymmetric, for encoders: the two sides differ.

    Paper: Press et al. 2022, Section 3, and the released code for other head counts. It is for
    decoders; |i - j| is the usual symmetric form for encoders, `asymmetric` the one in the code of
    Ruoss et al. 2023. With a causal mask the latter adds m_h/2 to all keys but the token itself.
    Their randomized form draws the bias values, that is distances, not positions.
    """

    summary = "a penalty linear in the distance, one slope per head"
    paper = "Press et al. 2022"
    reports = "trained at 1,024, as good at 2,048 as sinusoidal positions trained there"
    reads = "distance"
    prf_text = "|i - j|; asymmetric, i - j"
    relative = True
    reads_distance = True
    random_distances = True

    def __init__(
        self, shape: Shape | None = None, *, asymmetric: bool = False, **sizes: Unpack[Sizes]
    ) -> None:
        super().__init__(shape, **sizes)
        self.asymmetric = asymmetric

    def prf(self, ctx: Context) -> Tensor:
        distance = ctx.distance()[0]
        return distance if self.asymmetric else distance.abs()

    def bias_form(self, q: Tensor, k: Tensor, ctx: Context, kind: FormKind) -> BiasForm | None:
        if kind is not ScoreMod:
            return None
        slope = slopes(self.shape.n_heads, ctx.pos.device)

        def value(h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            distance = ctx.distance(i, j)
            far = distance.abs() - 0.5 * (distance > 0) if self.asymmetric else distance.abs()
            return -slope[h] * far

        return ScoreMod(value)


def slopes(heads: int, device: torch.device | None = None) -> Tensor:
    """Return the slope m_h of each head, (H,).

    >>> slopes(2), slopes(3)
    (tensor([0.0625, 0.0039]), tensor([0.0625, 0.0039, 0.2500]))
    """
    power = 1 << heads.bit_length() - 1
    found = torch.arange(1, power + 1, device=device, dtype=torch.float32) / power
    if heads > power:
        rest = torch.arange(1, 2 * (heads - power), 2, device=device, dtype=torch.float32)
        found = torch.cat([found, rest / (2 * power)])
    return torch.exp2(-8 * found)
