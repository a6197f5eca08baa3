"""CABLE: a bias that grows by learned steps between key and query, weighted by the query."""

from typing import Unpack

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, softplus

from pezoo.base import Encoding, Pass, Shape, Sizes
from pezoo.functional import at_least_float32, full_precision
from pezoo.registry import register
from pezoo.spec import choice


@register("cable")
class CABLE(Encoding):
    """Subtract from each logit the steps of the tokens after the key, times the query's weight.

    Formula: b_ij = -g_i (f_{j+1} + ... + f_i), f_l = relu(w LN(x_l) + a), g_i = softplus(v LN(x_i)
    + c). x is the layer's input, LN a layer norm without weights.

    Example: all steps 1: the token d back gets -d g_i, as in ALiBi with a slope of each query's.

    Shapes: x (B, T, D) -> (B, H, T, S). Per layer w and v (H, D), at the start N(0, 0.02^2), and a
    and c (H), 0. Sums are float32 at least.
    Options: weighted=false is CABLE_NW of the paper, g = 1; kernel="log" is its K-CABLE, -log(1 +
    b_ij^2) in place of b_ij, for few layers.
    Errors: ValueError without ctx.x and for an unknown kernel.

    Paper: Veisi et al. 2025, "Context-aware Biases for Length Extrapolation", Equations 2 to 7 and
    Section 5.6 of the published version. Equation 7 has no minus, which the text has in words
    (penalties that grow with distance). a, c and the starts are those of its code, released for
    the first version alone: f = softplus, g = 1, which is `fox`, and q k not divided by sqrt(K).
    """

    summary = "a penalty by learned steps between query and key, weighted by the query"
    paper = "Veisi et al. 2025"
    reports = "lower perplexity at 15 times the training length than at it; alibi's rises"
    reads = "text"
    relative = True
    causal_only = True

    def __init__(
        self,
        shape: Shape | None = None,
        *,
        weighted: bool = True,
        kernel: str = "linear",
        **sizes: Unpack[Sizes],
    ) -> None:
        super().__init__(shape, **sizes)
        choice("kernel", kernel, ("linear", "log"))
        self.kernel = kernel
        layers, heads, width = self.shape.n_layers, self.shape.n_heads, self.shape.d_model
        rows = heads * (1 + weighted)  # of w, then of v
        self.w = nn.Parameter(0.02 * torch.randn(layers, rows, width))
        self.a = nn.Parameter(torch.zeros(layers, rows))

    def bias(self, q: Tensor, k: Tensor, ctx: Pass) -> Tensor:
        x = at_least_float32(ctx.x_for(self.name))
        w, a = self.w[ctx.layer].to(x.dtype), self.a[ctx.layer].to(x.dtype)
        with full_precision(x.device.type):  # rounded steps would add up
            rows = (layer_norm(x, x.shape[-1:]) @ w.mT + a).mT  # (B, H or 2H, T)
            steps, weights = rows.tensor_split([self.shape.n_heads], 1)
            steps = steps.relu() * (ctx.query_pos >= 0)[:, None]
            sums = ctx.with_earlier(self.name, steps).cumsum(-1)
            bias = sums[..., None, :] - sums[..., -ctx.new :, None]
            if weights.shape[1]:
                bias = bias * softplus(weights)[..., None]
            return -bias.square().log1p() if self.kernel == "log" else bias
