"""Forgetting gates: a bias that the tokens between query and key decide (FoX)."""

from typing import Unpack

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, logsigmoid

from pezoo.base import BiasForm, Columns, Encoding, FormKind, Pass, Shape, Sizes
from pezoo.functional import at_least_float32, full_precision
from pezoo.registry import register


@register("fox")
class FoX(Encoding):
    """Subtract from each logit what the gates after the key forget, per head.

    This is the Forgetting Transformer, and the first version of CABLE, whose -softplus(y) is log
    sigmoid(-y); `cable` is the second.

    Formula: b_ij = log f_{j+1} + ... + log f_i = c_i - c_j, f_l = sigmoid(w LN(x_l) + b) and c the
    running sum of log f. x is the layer's input, LN a layer norm without weights.

    Example: all gates 1/2: the token d back gets -d log 2, as in ALiBi with a slope of 0.69.

    Shapes: x (B, T, D) -> (B, H, T, S). Per layer w (H, D), at the start N(0, 0.02^2), and b (H).
    Sums are float32 at least. As columns, the bias widens q and k by two numbers; in bfloat16 by
    six, three for each sum, since one would round it.
    Options: start, the value of b at the start, 0 in the paper's code. Gates of about 1/2 then
    hide what is more than some 20 tokens back, and its gradient with it; 5, the default of
    x-transformers, begins with gates of 0.993.
    Errors: ValueError without ctx.x.

    Paper: Lin et al. 2025, "Forgetting Transformer", Equation 6, which reads the layer's normalised
    input, whose learned scale w holds here. Its Pro block, with output gates, norms and shifted
    keys, is an architecture of its own.
    """

    summary = "a penalty by learned forgetting gates between query and key"
    paper = "Lin et al. 2025"
    reports = "better than rope on long texts and beyond the training length"
    reads = "text"
    relative = True
    causal_only = True

    def __init__(
        self, shape: Shape | None = None, *, start: float = 0.0, **sizes: Unpack[Sizes]
    ) -> None:
        super().__init__(shape, **sizes)
        shape = self.shape
        self.w = nn.Parameter(0.02 * torch.randn(shape.n_layers, shape.n_heads, shape.d_model))
        self.b = nn.Parameter(torch.full((shape.n_layers, shape.n_heads), start))

    def log_gates(self, ctx: Pass) -> Tensor:
        """Return log f of the new tokens, (B, H, T); 0 at padding."""
        x = at_least_float32(ctx.x_for(self.name))
        w, b = self.w[ctx.layer].to(x.dtype), self.b[ctx.layer].to(x.dtype)
        with full_precision(x.device.type):  # rounded gates would add up
            gates = logsigmoid(layer_norm(x, x.shape[-1:]) @ w.mT + b).mT
        return gates * (ctx.query_pos >= 0)[:, None]

    def sums(self, ctx: Pass) -> Tensor:
        """Return c, the sums of the log gates up to each token, (B, H, S)."""
        return ctx.with_earlier(self.name, self.log_gates(ctx)).cumsum(-1)

    def bias(self, q: Tensor, k: Tensor, ctx: Pass) -> Tensor:
        c = self.sums(ctx)
        return c[..., -ctx.new :, None] - c[..., None, :]

    def bias_form(self, q: Tensor, k: Tensor, ctx: Pass, kind: FormKind) -> BiasForm | None:
        if kind is not Columns or q.dtype == torch.float16:  # whose largest number is 65,504
            return None
        c = _parts(self.sums(ctx) * self.shape.d_head**0.5, q.dtype)  # (B, H, S, n)
        new, ones = c[..., -ctx.new :, :], torch.ones_like(c)
        q = torch.cat([q, new, ones[..., -ctx.new :, :]], -1)
        return Columns(q, torch.cat([k.to(q.dtype), ones, -c], -1))


def _parts(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return numbers of a dtype that add up to x (...), (..., 1), or (..., 3) in bfloat16."""
    parts = [x.to(dtype)]
    for _ in range(2 if dtype == torch.bfloat16 else 0):
        x = x - parts[-1]
        parts.append(x.to(dtype))
    return torch.stack(parts, -1)
