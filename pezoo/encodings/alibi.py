"""ALiBi: a penalty linear in the distance."""

import torch
from torch import Tensor

from pezoo.base import Context, Encoding, Shape
from pezoo.registry import register


@register("alibi")
class ALiBi(Encoding):
    """Subtract from each logit the distance times the head's slope.

    Formula: b_ij = -m_h |i - j|, m_h = 2^(-8h/H) for h = 1..H when H is a power of two. Otherwise
    the slopes for the power of two P below H, then every other slope of 2P heads, from the first.
    With `asymmetric`: b_ij = -m_h (|i - j| - 1/2 [j < i]), so that the two sides differ.

    Example: H = 8, first head: m = 1/2; the token three back gets -1.5, asymmetric -1.25.

    Shapes: -> (B|1, H, T, S), no parameters. Distances are integers, products float32 at least.
    Options: asymmetric.

    Paper: Press et al. 2022, Section 3, and the released code for other head counts. It is for
    decoders; |i - j| is the usual symmetric form for encoders, `asymmetric` the one in the code of
    Ruoss et al. 2023. With a causal mask the latter adds m_h/2 to all keys but the token itself.
    """

    summary = "a penalty linear in the distance, one slope per head"
    paper = "Press et al. 2022"
    relative = True
    reads_distance = True

    def __init__(self, shape: Shape, *, asymmetric: bool = False) -> None:
        super().__init__(shape)
        self.asymmetric = asymmetric

    def bias(self, q: Tensor, k: Tensor, ctx: Context) -> Tensor:
        distance = ctx.distance()[:, None]  # (B|1, 1, T, S)
        exact = torch.promote_types(q.dtype, torch.float32)
        far = distance.abs().to(exact)
        if self.asymmetric:
            far = far - 0.5 * (distance > 0)
        m = torch.tensor(slopes(self.shape.n_heads), dtype=exact, device=q.device)
        return (-m[:, None, None] * far).to(q.dtype)


def slopes(heads: int) -> list[float]:
    """m_h for each head.

    >>> slopes(2), slopes(3)
    ([0.0625, 0.00390625], [0.0625, 0.00390625, 0.25])
    """
    power = 1 << heads.bit_length() - 1
    own = [2 ** (-8 * h / power) for h in range(1, power + 1)]
    return own if power == heads else own + slopes(2 * power)[::2][: heads - power]
