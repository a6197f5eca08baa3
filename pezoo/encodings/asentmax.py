"""Adaptive-scalable entmax: sparse attention whose temperature follows content and length."""

import math
from collections.abc import Callable
from typing import Any, Unpack

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, pad, softplus

from pezoo.base import Encoding, Pass, Shape, Sizes
from pezoo.functional import at_least_float32, full_precision, visible_keys
from pezoo.registry import register
from pezoo.wrapper import ScaledQueries


@register("asentmax")
class ASEntmax(ScaledQueries):
    """Replace softmax by entmax, which gives most keys 0, at a temperature that each query learns.

    Formula: weights = [(alpha - 1) z - tau]_+^(1 / (alpha - 1)), tau such that they sum to 1; z_ij
    = f_i q_i k_j / sqrt(K) + b_ij, f_i = 1 + softplus(w_b x) log(n_i + 1)^(gamma tanh(w_g x)); x is
    the layer's input after a norm, n_i the keys of its document that query i sees, its own too.

    Example: alpha = 1.5: logits 2, 1 and -1 get .83, .17 and 0, where softmax gives .71, .26, .04.

    Shapes: those of the inner encoding, q in float32 at least. w_b and w_g (n_layers, h, D), at the
    start N(0, .02^2), so that f is about 1.7; over the last h heads: those without positions if
    only the first have them (`nape`, which the paper wraps), otherwise all. Others have f = 1.
    Options: alpha, from 1, which is softmax and needs no kernel of its own, to 2, sparsemax; gamma,
    the bound of the power. It is for decoders, as `ssmax`.
    Errors: ValueError for an alpha outside 1..2 and around an encoding that replaces softmax.

    Paper: Vasylenko et al. 2026, "Long-Context Generalization with Sparse Attention", and the
    authors' code, which has alpha = 1.5, gamma = 2, no bias in both projections and log(p + 2) at
    position p; x there comes from RMSNorm with a learned scale, here from LayerNorm without.
    """

    summary = "another encoding with sparse attention, its sharpness learned from text and length"
    paper = "Vasylenko et al. 2026"
    reports = "recalls at 1,000 and copies at 64 times the training length, around nape"
    reads = "text, number of keys"
    wraps = "nape"
    changes = "softmax"
    causal_only = True

    def __init__(
        self,
        shape: Shape | None = None,
        make_inner: Callable[[Shape], Encoding] | None = None,
        *,
        alpha: float = 1.5,
        gamma: float = 2.0,
        **sizes: Unpack[Sizes],
    ) -> None:
        super().__init__(shape, make_inner, **sizes)
        if not 1 <= alpha <= 2:
            raise ValueError(f"alpha must be within 1..2, got {alpha}")
        if self.inner.replaces_softmax:
            raise ValueError(f"{type(self.inner).__name__} has a softmax of its own")
        self.alpha, self.gamma = alpha, gamma
        size = self.shape.n_layers, self.shape.n_heads - self.first_free, self.shape.d_model
        self.w_b, self.w_g = (nn.Parameter(0.02 * torch.randn(size)) for _ in range(2))

    def factor(self, ctx: Pass) -> Tensor:
        """Return f, (B, H, T, 1), float32 at least. Errors: ValueError without ctx.x."""
        x = ctx.x_for(self.name)
        x = at_least_float32(layer_norm(x, x.shape[-1:]))
        with full_precision(x.device.type):
            b, g = (x @ w[ctx.layer].to(x.dtype).mT for w in (self.w_b, self.w_g))  # (B, T, h)
        n = visible_keys(ctx)[..., None].to(x.dtype)
        power = (self.gamma * g.tanh() * (n.clamp(min=1) + 1).log().log()).exp()
        factor = (1 + softplus(b) * power).mT[..., None]
        return pad(factor, (0, 0, 0, 0, self.first_free, 0), value=1.0)

    def weights(self, logits: Tensor, ctx: Pass) -> Tensor | None:
        return entmax(logits, self.alpha) if self.alpha > 1 else None

    @property
    def replaces_softmax(self) -> bool:
        return self.alpha > 1


def entmax(logits: Tensor, alpha: float) -> Tensor:
    """Return [(alpha - 1) z - tau]_+^(1 / (alpha - 1)) over the last axis, 1 < alpha <= 2."""
    weights: Tensor = _Entmax.apply(at_least_float32(logits), alpha)  # type: ignore[no-untyped-call]
    return weights.to(logits.dtype)


class _Entmax(torch.autograd.Function):
    """tau is the root of a convex function that falls, to which Newton's steps from the left climb.

    With s = w^(2 - alpha) where w > 0, the gradient g becomes s (g - s g / sum(s)), Peters et al.
    2019, Section 3.3.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(logits: Tensor, alpha: float) -> Tensor:
        power, z = 1 / (alpha - 1), (alpha - 1) * logits
        z = z - z.amax(-1, keepdim=True)
        tau = torch.full_like(z[..., :1], -1.0)
        for _ in range(9 + math.ceil(math.log(z.shape[-1]))):
            over = (z - tau).clamp(min=0)
            less = over ** (power - 1) if power > 1 else (over > 0).to(over.dtype)
            tau = tau + ((over * less).sum(-1, True) - 1) / (power * less.sum(-1, True))
        weights: Tensor = (z - tau).clamp(min=0) ** power
        return weights

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:
        ctx.save_for_backward(output)
        ctx.alpha = inputs[1]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (weights,) = ctx.saved_tensors
        live = weights > 0
        s = weights.where(live, 1.0) ** (2 - ctx.alpha) * live
        return s * (grad - (s * grad).sum(-1, keepdim=True) / s.sum(-1, keepdim=True)), None
