"""PRISM: learned relative positions, held as histograms."""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from pezoo.base import Context, Encoding, ParamGroup, Shape
from pezoo.functional import at_least_float32, sinusoid
from pezoo.kernels.histogram import Gates, histogram_scan
from pezoo.registry import register


@register("prism")
class PRISM(Encoding):
    """Cursors that reset, step forward, step back or stay, as the text tells them to.

    A GRU reads the token embeddings and sets, per token and cursor, Pr(reset) and Pr(incr, decr,
    keep). Each cursor's position is a histogram h over offsets, moved by those gates and sharpened
    to h^gamma (pezoo.kernels.histogram). What attention sees is the histogram's superposition of
    sinusoids.

        stream   e_t = sum_d h_t[d] f(d), f a sinusoid of width d_pe          (Algorithm 2)
        scaling  over the C cursors of a head                                 (Algorithm 3)
        score    mu q k / sqrt(K) + (1-mu) sum_c |alpha_c| <e_q, e_k> / sqrt(C d_pe)      (Eq. 9)

    Example: a query cursor that counts down from "=" and a key cursor that counts up to it meet at
    equal offsets: attention finds the token to be copied, at any length.

    Shapes: ctx.x (B, T, D) in `prepare`; q, k (B, H, T, K) -> (B, H, T, K + C d_pe), so that the
    score is one inner product. The streams are float32 whatever the dtype of the model.

    Options: cursors C per head and layer, as many for queries as for keys; d_pe even; gamma is the
    initial sharpness, learned per cursor above 1 (1.0 turns sharpening off); norm "frobenius"
    (sqrt(d_pe) over the norm across cursors) or "scale" (fixed sqrt(2/C)); absolute adds a branch
    with the true position; base of the sinusoids; reset_bias on every reset logit and key_bias on
    the key cursors' increment logit, at the start;
    orthogonal is the weight of the penalty |W W' - 1|^2 on the GRU's hidden-to-hidden blocks.
    Errors: ValueError without ctx.x or for an option out of range.

    Paper: Lee 2025, "Position as Probability", Sections 5-6, Algorithms 1-4. The number of cursors
    per layer, eps and the initial gate biases are not given there: each layer has its own
    cursors, eps is 1e-8, resets start rare and key cursors start by counting tokens.
    """

    summary = "learned histograms over relative positions"
    paper = "Lee 2025"

    def __init__(
        self,
        shape: Shape,
        *,
        cursors: int = 4,
        d_pe: int = 340,
        hidden: int = 100,
        gamma: float = 2.0,
        norm: str = "frobenius",
        absolute: bool = False,
        base: float = 10_000.0,
        reset_bias: float = -2.0,
        key_bias: float = 2.0,
        orthogonal: float = 1e-3,
        eps: float = 1e-8,
    ) -> None:
        super().__init__(shape)
        _check_options(cursors, d_pe, gamma, norm)
        self.cursors, self.d_pe, self.norm, self.absolute = cursors, d_pe, norm, absolute
        self.base, self.orthogonal, self.eps = base, orthogonal, eps
        self.relative = not absolute
        layers, heads = shape.n_layers, shape.n_heads
        self.total = 2 * layers * heads * cursors  # queries first, then keys
        self.gru = nn.GRU(shape.d_model, hidden, batch_first=True)
        self.gate = nn.Linear(hidden, 4 * self.total)
        self.alpha = nn.Parameter(torch.ones(layers, heads, cursors + absolute))
        self.mu = nn.Parameter(torch.zeros(layers, heads))
        self.raw_gamma = (
            nn.Parameter(torch.full((self.total,), math.log(math.expm1(gamma - 1))))
            if gamma > 1
            else None
        )
        with torch.no_grad():
            bias = self.gate.bias.view(self.total, 4)
            bias[:, 0] += reset_bias
            bias[self.total // 2 :, 1] += key_bias
            for block in self._recurrent_blocks():
                nn.init.orthogonal_(block)

    @property
    def gamma(self) -> Tensor | None:
        """(total,) sharpness per cursor, at least 1; None when sharpening is off."""
        return None if self.raw_gamma is None else 1 + softplus(self.raw_gamma)

    def prepare(self, ctx: Context) -> Context:
        if ctx.x is None:
            raise ValueError("prism reads the token embeddings: prepare needs ctx.x (B, T, D)")
        mask = ctx.key_mask[:, -ctx.new :].expand(ctx.x.shape[0], -1)
        order = None if bool(mask.all()) else _padding_last(mask)
        x = ctx.x if order is None else _take(ctx.x, order)
        hidden0, state0 = ctx.memo.get("prism.state", (None, None))
        hidden, _ = self.gru(x, hidden0)
        h = self.histograms(hidden, state0)
        ctx.memo["prism.state"] = _last_token(hidden, h, hidden0, state0, mask)
        stream = self._stream(h)
        if order is not None:
            stream = _take(stream, order.argsort(1))
        stream = self._with_absolute(stream, ctx)
        ctx.memo["prism.stream"] = stream, self._scaling(stream)
        return ctx

    def gates(self, hidden: Tensor) -> Gates:
        """(B, T, total) probabilities of each move from the GRU's states (B, T, hidden)."""
        logits = at_least_float32(self.gate(hidden))
        logits = logits.view(*logits.shape[:-1], self.total, 4)
        incr, decr, _ = logits[..., 1:].softmax(-1).unbind(-1)
        return Gates(logits[..., 0].sigmoid(), incr, decr)

    def histograms(self, hidden: Tensor, state: Tensor | None = None) -> Tensor:
        """(B, T, total, L) histograms after each token."""
        gamma = self.gamma
        gamma = None if gamma is None else at_least_float32(gamma)
        return histogram_scan(self.gates(hidden), gamma, state, self.eps)

    def transform(self, q: Tensor, k: Tensor, ctx: Context) -> tuple[Tensor, Tensor]:
        stream, scaling = ctx.memo["prism.stream"]
        e_q, e_k = stream[:, :, :, ctx.layer].unbind(2)  # (B, T, H, C, d_pe)
        s_q, s_k = scaling[:, :, :, ctx.layer].unbind(2)  # (B, T, H, 1, 1)
        mu = at_least_float32(self.mu[ctx.layer]).sigmoid()[:, None, None]  # (H, 1, 1)
        size = math.sqrt(self.shape.d_head / (e_q.shape[-2] * self.d_pe))
        alpha = at_least_float32(self.alpha[ctx.layer]).abs()[:, :, None] * (1 - mu) * size
        e_q = (e_q * (alpha * s_q)).flatten(-2).transpose(1, 2)  # (B, H, T, C d_pe)
        e_k = (e_k * s_k).flatten(-2).transpose(1, 2)
        q = torch.cat([q * mu.to(q.dtype), e_q.to(q.dtype)], -1)
        return q, torch.cat([k, e_k.to(k.dtype)], -1)

    def param_groups(self) -> list[ParamGroup]:
        return [ParamGroup([self.alpha], lr=0.03, betas=(0.8, 0.92), weight_decay=0.0)]

    def penalty(self) -> Tensor | None:
        if not self.orthogonal:
            return None
        blocks = self._recurrent_blocks()
        eye = torch.eye(blocks.shape[-1], device=blocks.device, dtype=blocks.dtype)
        return (blocks @ blocks.mT - eye).square().sum() * self.orthogonal

    def _recurrent_blocks(self) -> Tensor:
        """(3, hidden, hidden) the GRU's hidden-to-hidden matrices."""
        weight: Tensor = self.gru.get_parameter("weight_hh_l0")
        return weight.view(3, -1, weight.shape[1])

    def _stream(self, h: Tensor) -> Tensor:
        """(B, T, total, L) -> (B, T, 2, layers, heads, C, d_pe)."""
        reach = h.shape[-1] // 2
        offsets = torch.arange(-reach, reach + 1, device=h.device)
        e = h @ sinusoid(offsets, self.d_pe, self.base).to(h.dtype)
        layers, heads = self.shape.n_layers, self.shape.n_heads
        return e.view(*h.shape[:2], 2, layers, heads, self.cursors, self.d_pe)

    def _with_absolute(self, e: Tensor, ctx: Context) -> Tensor:
        """Append a cursor that stands at the true position, if asked for."""
        if not self.absolute:
            return e
        f = sinusoid(ctx.query_pos, self.d_pe, self.base).to(e.dtype)
        f = f[:, :, None, None, None, None].expand(*e.shape[:5], 1, -1)
        return torch.cat([e, f], -2)

    def _scaling(self, e: Tensor) -> Tensor:
        """(B, T, 2, layers, heads, 1, 1), what a head's cursors are multiplied with."""
        if self.norm == "scale":
            return e.new_full((*e.shape[:5], 1, 1), math.sqrt(2 / e.shape[-2]))
        norm: Tensor = torch.linalg.vector_norm(e, dim=(-2, -1), keepdim=True)
        return math.sqrt(self.d_pe) / norm


def _check_options(cursors: int, d_pe: int, gamma: float, norm: str) -> None:
    if cursors < 1 or d_pe < 2 or d_pe % 2:
        raise ValueError(f"cursors must be at least 1 and d_pe even, were {cursors} and {d_pe}")
    if gamma < 1:
        raise ValueError(f"gamma must be at least 1, was {gamma}")
    if norm not in ("frobenius", "scale"):
        raise ValueError(f"norm must be frobenius or scale, was {norm!r}")


def _padding_last(mask: Tensor) -> Tensor:
    """(B, T) an order that puts the tokens first, so that recurrences never see padding."""
    return (~mask).to(torch.int8).argsort(dim=1, stable=True)


def _take(x: Tensor, order: Tensor) -> Tensor:
    """x (B, T, ...) with its second axis in that order."""
    index = order.reshape(*order.shape, *[1] * (x.dim() - 2)).expand(-1, -1, *x.shape[2:])
    return x.gather(1, index)


def _last_token(
    hidden: Tensor, h: Tensor, hidden0: Tensor | None, h0: Tensor | None, mask: Tensor
) -> tuple[Tensor, Tensor]:
    """GRU state (1, B, hidden) and histogram (B, total, L) after each row's last token."""
    count = mask.sum(1)
    row = torch.arange(mask.shape[0], device=mask.device)
    state, histogram = hidden[row, count - 1], h[row, count - 1]
    if bool((count == 0).any()):  # rows of padding alone stay where they were
        none = (count == 0)[:, None]
        old = torch.zeros_like(state) if hidden0 is None else hidden0[0]
        state = torch.where(none, old, state)
        start = h.new_ones(*histogram.shape[:2], 1) if h0 is None else h0
        margin = (histogram.shape[-1] - start.shape[-1]) // 2
        start = torch.nn.functional.pad(start, (margin, margin))
        histogram = torch.where(none[..., None], start, histogram)
    return state[None], histogram
