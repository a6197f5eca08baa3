"""PRISM: learned relative positions, held as histograms."""

from __future__ import annotations

from collections.abc import Sequence

from pezoo.base import Context, Shape
from pezoo.cursors.encoding import CursorEncoding
from pezoo.cursors.histograms import Histograms
from pezoo.cursors.options import CursorOptions
from pezoo.cursors.pictures import pictures
from pezoo.pictures import Picture
from pezoo.registry import register
from pezoo.spec import choice


@register("prism")
class PRISM(CursorEncoding):
    """Cursors that reset, step forward, step back or stay, as the text tells them to.

    A gate network reads the token embeddings and sets, per token and cursor, Pr(reset) and
    Pr(incr, decr, keep). Each cursor's position is a histogram h over offsets, moved by those gates
    and sharpened to h^gamma (Algorithm 1, pezoo.kernels.histogram). What attention sees is the
    histogram's superposition of sinusoids. pezoo.prism_math has further equations of the paper.

        stream   e_t = sum_d h_t[d] f(d), f a sinusoid of width d_pe          (Algorithm 2)
        scaling  over the C cursors of a head                                 (Algorithm 3)
        score    mu q k / sqrt(K) + (1-mu) sum_c |alpha_c| <e_q, e_k> / sqrt(C d_pe)      (Eq. 9)

    Example: a query cursor that counts down from "=" and a key cursor that counts up to it meet at
    equal offsets: attention finds the token to be copied, at any length.

    Shapes: those of pezoo.cursors.encoding.

    Options of the positions
        cursors     C per head and layer, as many for queries as for keys
        d_pe        width of a stream, even
        gamma       initial sharpness, learned per cursor above 1 (1.0 turns sharpening off)
        eps         added to every bin before sharpening, above 0
        support     "symmetric" (Algorithm 1) or "one_sided" (Section 5.1: no offset below 0)
        stride      the largest step of a cursor, which the paper has at 1
        similarity  "cosine", "geometric", "rbf" or "laplacian", with base or bandwidth
        top         the highest frequency of "geometric", in units of pi
        norm        "frobenius" (sqrt(d_pe) over the norm across cursors) or "scale" (sqrt(2/C))
        absolute    one more cursor, which stands at the true position; with ablate_absolute zeros
                    take its place (Algorithm 3's flag). In Equation 9 and in the width of q and k
                    C then counts it too
        mu          initial hybrid gate before its sigmoid, learned per head; at -4 heads start by
                    looking at positions alone
        alpha       initial weight of each pair of cursors in the score, learned
        top_weight  initial weight of the highest frequency in each pair's inner product, learned;
                    the others weigh 1. 0 leaves all at 1, with no parameter. At top=1.0 it tells
                    odd from even offsets
        lead        whether each pair of cursors learns a number, from 0, that is added to the query
                    cursor's place where the two are compared: at 1/2 it is between two offsets
    Options of the gates
        before      layers that cursors are computed before, from 0: "0", "0+3"
        controller  "gru", "latch", "conv" or "token", of `hidden` units (pezoo.cursors.controllers)
        window      tokens that "conv" and "latch" look at
        copy_every  one in so many query cursors has a copy branch; 0 for none
        copy_keys   "fixed": the key cursors that are copied only count; "trained": they learn
        copy_gate   whether to copy is a gate of its own, and what to copy starts with equal tokens
                    (pezoo.cursors.copying); else one softmax has a slot for no copy
        gate_scale, reset_bias, key_bias, query_bias   logits = gate_scale (W features + b); b
                    starts with reset_bias on resets, key_bias on the key cursors' increment and
                    query_bias on one step of each query cursor, the steps in turn
                    (with copy_gate, of each that does not copy)
        gate_noise, state_noise   standard deviations, in training, on the logits and inside the
                    GRU's recurrence; they grow over the first half of training
        w_hh        the GRU's hidden-to-hidden blocks W: "free", "orthogonal" (parametrised) or
                    "normalised" (in Frobenius norm, footnote 8)
        orthogonal  weight of the penalty |W W' - 1|^2 where they are free
    Mode "snapped": gates are rounded, so that every cursor is an integer counter.
    Errors: ValueError without ctx.x or for an option out of range.

    Paper: Lee 2025, "Position as Probability", Sections 5-6, Algorithms 1-4. How cursors are
    spread over layers, eps, where mu, alpha and the copy branch start and how the GRU's W_hh does
    are not given there: each layer has its own cursors, eps is 1e-8, W_hh starts orthogonal.
    Deviation: there all actions start equally likely (Figure 11; reset_bias=0, key_bias=0), here
    resets start rare and key cursors count tokens. Noise, gate_scale, query_bias, copy_gate (there
    one softmax has a slot for no copy), "geometric", the gate networks but "gru", stride,
    top_weight, lead and the mode are ours. alpha has an AdamW group of its own, as there; that
    top_weight and lead share it, and that none decays, is ours.
    """

    summary = "learned histograms over relative positions"
    paper = "Lee 2025"
    version = 2

    def __init__(  # noqa: PLR0913  options of an encoding are keywords
        self,
        shape: Shape,
        *,
        cursors: int = 4,
        d_pe: int = 340,
        gamma: float = 2.0,
        eps: float = 1e-8,
        support: str = "symmetric",
        similarity: str = "cosine",
        base: float = 10_000.0,
        bandwidth: float = 1.0,
        top: float = 0.9,
        norm: str = "frobenius",
        absolute: bool = False,
        ablate_absolute: bool = False,
        mu: float = 0.0,
        alpha: float = 1.0,
        stride: int = 1,
        top_weight: float = 0.0,
        lead: bool = False,
        before: str | int = "0",
        controller: str = "gru",
        hidden: int = 100,
        window: int = 4,
        copy_every: int = 0,
        copy_keys: str = "fixed",
        copy_gate: bool = False,
        gate_scale: float = 1.0,
        reset_bias: float = -2.0,
        key_bias: float = 2.0,
        query_bias: float = 0.0,
        gate_noise: float = 0.0,
        state_noise: float = 0.0,
        orthogonal: float = 1e-3,
        w_hh: str = "free",
    ) -> None:
        if gamma < 1:
            raise ValueError(f"gamma must be at least 1, was {gamma}")
        if eps <= 0:
            raise ValueError(f"eps must be above 0, was {eps}: sharpening takes logarithms")
        choice("support", support, ("symmetric", "one_sided"))
        if stride > 1 and support == "one_sided":
            raise ValueError(f"support=one_sided needs stride=1, was {stride}")
        options = CursorOptions(
            cursors=cursors, d_pe=d_pe, similarity=similarity, base=base, bandwidth=bandwidth,
            top=top, norm=norm, absolute=absolute, mu=mu, before=before,
            ablate_absolute=ablate_absolute, copy_every=copy_every, copy_keys=copy_keys,
            copy_gate=copy_gate, alpha=alpha, top_weight=top_weight, lead=lead, stride=stride,
            controller=controller, hidden=hidden, window=window,
            gate_scale=gate_scale, reset_bias=reset_bias, key_bias=key_bias, query_bias=query_bias,
            gate_noise=gate_noise, state_noise=state_noise, orthogonal=orthogonal, w_hh=w_hh,
        )  # fmt: skip
        one_sided = support == "one_sided"
        super().__init__(
            shape,
            options,
            lambda total: Histograms(total, gamma, eps, one_sided, options.frequencies),
        )

    def pictures(self, layers: Sequence[Context]) -> list[Picture]:
        return pictures(self, layers)
