"""KERPLE: a learned penalty that grows with the distance, by its logarithm or a power of it."""

from typing import Unpack

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from pezoo.base import BiasForm, Context, Encoding, FormKind, ScoreMod, Shape, Sizes
from pezoo.functional import at_least_float32
from pezoo.registry import register
from pezoo.spec import choice


@register("kerple")
class Kerple(Encoding):
    """Subtract from each logit a learned, growing function of the distance, per head.

    Formula: b_ij = -p_h log(1 + a_h |i - j|), p and a above 0; with form="power"
    b_ij = -a_h |i - j|^p_h, a above 0 and p within (0, 2).

    Example: p = a = 1: the token before gets -log 2, the one three back -log 4.

    Shapes: -> (B|1, H, T, S). Per layer p and a (H,), stored as what softplus (for a power's p
    twice the sigmoid) maps to them; at the start p is uniform over 0.01..1.99 and a over 0.01..1.
    Distances are integers, logarithms float32 at least.
    Options: form "log" or "power".
    Errors: ValueError for an unknown form.

    Paper: Chi et al. 2022, "KERPLE: Kernelized Relative Positional Embedding for Length
    Extrapolation", for decoders; |i - j| serves encoders too. The start of the log form is the
    released code's but for the ends, and the power takes it over. Deviation: the code clamps p and
    a at 0.01, where they get no gradient any more; here a map keeps them positive.
    """

    summary = "a learned penalty, logarithm or power of the distance"
    paper = "Chi et al. 2022"
    reports = "better perplexity than alibi and t5, up to 32 times the training length"
    reads = "distance"
    prf_text = "|i - j|"
    relative = True
    reads_distance = True

    def __init__(
        self, shape: Shape | None = None, *, form: str = "log", **sizes: Unpack[Sizes]
    ) -> None:
        super().__init__(shape, **sizes)
        shape = self.shape
        choice("form", form, ("log", "power"))
        self.form = form
        size = shape.n_layers, shape.n_heads
        p = torch.empty(size).uniform_(0.01, 1.99)
        self.raw_p = nn.Parameter(_before_softplus(p) if form == "log" else torch.logit(p / 2))
        self.raw_a = nn.Parameter(_before_softplus(torch.empty(size).uniform_(0.01, 1)))

    def constants(self, layer: int) -> tuple[Tensor, Tensor]:
        """Return p and a of a layer, (H,) each, float32 at least."""
        p, a = at_least_float32(self.raw_p[layer]), softplus(at_least_float32(self.raw_a[layer]))
        return softplus(p) if self.form == "log" else 2 * p.sigmoid(), a

    def prf(self, ctx: Context) -> Tensor:
        return ctx.distance()[0].abs()

    def bias_form(self, q: Tensor, k: Tensor, ctx: Context, kind: FormKind) -> BiasForm | None:
        p, a = self.constants(ctx.layer)

        def value(h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            d = ctx.distance(i, j).abs().to(p.dtype)
            if self.form == "log":
                return -p[h] * torch.log1p(a[h] * d)
            # 0^p is 0, and its gradient too; autograd would take log 0 there.
            far = torch.where(d == 0, 0.0, d.clamp(min=1) ** p[h])
            return -a[h] * far

        return ScoreMod(value) if kind is ScoreMod else None


def _before_softplus(y: Tensor) -> Tensor:
    """Return x with softplus(x) = y, for y above 0."""
    return y + torch.log(-torch.expm1(-y))
