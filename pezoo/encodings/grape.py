"""GRAPE: penalties summed along the text, and rotations with learned frequencies."""

from collections.abc import Mapping
from typing import Any, Unpack

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, logsigmoid, pad, rms_norm

from pezoo.adapters import attention_mask
from pezoo.base import Encoding, Pass, Shape, Sizes
from pezoo.encodings.alibi import slopes
from pezoo.encodings.rope import RoPE
from pezoo.functional import at_least_float32, full_precision
from pezoo.registry import register
from pezoo.spec import choice


@register("grape")
class GRAPE(Encoding):
    """Add a penalty for each token between key and query, which query and token decide together.

    Formula: b_ij = sum_l psi_il over the tokens j < l <= i, psi_il = m_h log s(p_i (R_l p_l) / P),
    s the sigmoid, m_h the slopes of `alibi`, p_l = RMSNorm(W LN(x_l)) of width P; R_l turns each
    pair (c, c + P/2) of p_l by the angle -l. x is the layer's input, LN a layer norm without
    weights.

    Example: W = 0: the token d back gets -m_h d log 2, as in ALiBi with slopes of .69 m_h.

    Shapes: x (B, T, D) -> (B, H, T, S). Per layer W (H, P, D), at the start N(0, 1/D): its size
    does not matter. Sums and angles are float32 at least.

    Options
        bias    "path" as above; "gate": psi_il = log s(w LN(x_l) + b), which is `fox`; "none"
        width   P, even; 8 in the paper's runs
        rotary  turns q and k too, as `rope`, and learns the frequencies w_m of each layer as
                exp(u_m); at the start they are those of rope
        base, layout, rope_parameters  of these, as in rope

    Errors: ValueError without ctx.x for a bias, for an unknown bias, a width that is odd or below
    2, neither bias nor rotary, and frequencies that depend on the length of the text.

    Paper: Zhang et al. 2026, "Group Representational Position Encoding", Equations 5.1 and 5.2
    (GRAPE-AP), and Section 2 for rotary with commuting planes (GRAPE-M). It is neither the
    distance nor l - i that turns p_l, but l itself. In the authors' code p_i is not normalised on
    the query's side, and u is divided by 16, which slows its learning down.
    """

    summary = "a penalty summed over the tokens between, by query and token"
    paper = "Zhang et al. 2026"
    reports = "contains rope, alibi and fox as special cases"
    reads = "text, positions"
    causal_only = True

    def __init__(
        self,
        shape: Shape | None = None,
        *,
        bias: str = "path",
        width: int = 8,
        rotary: bool = False,
        base: float = 10_000.0,
        layout: str = "half",
        rope_parameters: Mapping[str, Any] | str = "default",
        **sizes: Unpack[Sizes],
    ) -> None:
        super().__init__(shape, **sizes)
        choice("bias", bias, ("path", "gate", "none"))
        if width < 2 or width % 2 or not (rotary or bias != "none"):
            raise ValueError(
                f"width must be even, and a bias or rotary set; got {width=}, {bias=}, {rotary=}"
            )
        self.kind, self.width, self.rotary = bias, width, rotary
        self.relative = bias != "path"
        shape = self.shape
        if bias != "none":
            size = shape.n_layers, shape.n_heads, width if bias == "path" else 1, shape.d_model
            self.w = nn.Parameter(torch.randn(size) * shape.d_model**-0.5)
        if bias == "gate":
            self.b = nn.Parameter(torch.zeros(shape.n_layers, shape.n_heads, 1))
        if rotary:
            self.rope = RoPE(shape, base=base, layout=layout, rope_parameters=rope_parameters)
            w, self.factor = self.rope.fixed_frequencies(self.name)
            log = w.clamp(min=1e-30).log()  # a pair may stand still
            self.log_w = nn.Parameter(log.repeat(shape.n_layers, 1))
            self.rope_within = RoPE.rope_within if bias == "none" else 0

    def transform(self, q: Tensor, k: Tensor, ctx: Pass) -> tuple[Tensor, Tensor]:
        if not self.rotary:
            return q, k
        w = at_least_float32(self.log_w[ctx.layer]).exp()
        angle = ctx.query_pos[:, None, :, None].to(w.dtype) * w
        turn = torch.polar(torch.full_like(angle, self.factor), angle)
        return self.rope.rotated(q, turn), self.rope.rotated(k, turn)

    def bias(self, q: Tensor, k: Tensor, ctx: Pass) -> Tensor | None:
        if self.kind == "none":
            return None
        with full_precision(q.device.type):
            total = self.edges(ctx) * attention_mask(ctx)
            return pad(total.flip(-1).cumsum(-1).flip(-1)[..., 1:], (0, 1))

    def edges(self, ctx: Pass) -> Tensor:
        """Return psi, (B, H, T, S); (B, H, 1, S) where queries share it."""
        x = at_least_float32(ctx.x_for(self.name))
        w = self.w[ctx.layer].to(x.dtype)
        p = torch.einsum("btd,hpd->bhtp", layer_norm(x, x.shape[-1:]), w)
        if self.kind == "gate":
            gate = logsigmoid(p.mT + self.b[ctx.layer].to(x.dtype)[:, None])
            return ctx.with_earlier(self.name, gate)
        p = rms_norm(p, p.shape[-1:])
        angle = ctx.query_pos[:, None, :, None].float()
        cos, sin = angle.cos().to(p.dtype), angle.sin().to(p.dtype)
        a, b = p.chunk(2, -1)
        turned = ctx.with_earlier(
            self.name, torch.cat([a * cos + b * sin, b * cos - a * sin], -1).mT
        )
        slope = slopes(self.shape.n_heads, x.device)[:, None, None]
        return slope * logsigmoid(p @ turned / self.width)
