"""PRISM: learned relative positions, held as histograms."""

from collections.abc import Sequence
from dataclasses import dataclass

from pezoo.base import Pass
from pezoo.cursors.encoding import CursorEncoding
from pezoo.cursors.options import CursorOptions
from pezoo.cursors.pictures import pictures
from pezoo.cursors.positions import Histograms
from pezoo.pictures import Picture
from pezoo.registry import register
from pezoo.spec import choice


@dataclass(frozen=True, kw_only=True)
class PRISMOptions(CursorOptions):
    """Options of prism: those of CursorOptions with leads, and how histograms sharpen.

    Errors: ValueError for an option out of range.
    """

    lead: bool = True
    gamma: float = 1.2
    eps: float = 1e-8
    support: str = "symmetric"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.gamma < 1:
            raise ValueError(f"gamma must be at least 1, got {self.gamma}")
        if self.eps <= 0:
            raise ValueError(f"eps must be above 0, got {self.eps}: sharpening takes logarithms")
        choice("support", self.support, ("symmetric", "one_sided"))
        if self.stride > 1 and self.support == "one_sided":
            raise ValueError(f"support=one_sided needs stride=1, got {self.stride}")


@register("prism")
class PRISM(CursorEncoding):
    """Track positions by cursors, which a network moves as it reads the text.

    A gate network reads the token embeddings and sets, per token and cursor, Pr(reset) and
    Pr(incr, decr, keep). Each cursor's position is a histogram h over offsets, moved by those gates
    and sharpened to h^gamma (Algorithm 1, pezoo.kernels.histogram). Attention sees the histogram's
    superposition of sinusoids.

        stream   e_t = sum_d h_t[d] f(d), f a sinusoid of width d_pe          (Algorithm 2)
        scaling  over the C cursors of a head                                 (Algorithm 3)
        score    mu q k / sqrt(K) + (1-mu) sum_c |alpha_c| <e_q, e_k> / sqrt(C d_pe)      (Eq. 9)

    In every head one cursor looks tokens up and two walk. The one that looks up begins undecided: a
    gate says when it takes the position of an earlier token, a softmax, which begins with equal
    tokens, of which; its key cursor counts tokens. The others begin with one of the steps +1, -1,
    +2, -2 and 0 each, in turn over the heads; their key cursors begin by counting. Gates read the
    present token and which tokens have occurred, so that they cannot count: cursors must.

    Example: a query cursor that counts down from "=" and a key cursor that counts up to it meet at
    equal offsets: attention finds the token to be copied, at any length. Of 5839472,3= the cursor
    that looks up takes the position of the 3 when it reads "3" after the comma, and steps +1 then.

    `prism_2025` is the paper's encoding: a GRU, cosine frequencies, four undecided cursors a head.

    Shapes: those of pezoo.cursors.encoding.

    Options of the positions
        cursors     C per head and layer, as many for queries as for keys
        d_pe        width of a stream, even; None is 2 d_head
        gamma       initial sharpness, learned per cursor above 1 (1.0 turns sharpening off)
        eps         added to every bin before sharpening, above 0
        support     "symmetric" (Algorithm 1) or "one_sided" (Section 5.1: no offset below 0)
        similarity  frequencies of a stream: "cosine" (the Transformer's) or "geometric", with base
        top         the highest frequency of "geometric", in units of pi
        norm        "frobenius" (sqrt(d_pe) over the norm across cursors) or "scale" (sqrt(2/C))
        absolute    one more cursor at the true position; ablate_absolute replaces it with zeros
                    (Algorithm 3's flag). C counts it in Equation 9 and in the width of q and k
        mu          initial hybrid gate before its sigmoid, learned per head; at -4 heads start by
                    looking at positions alone
        alpha       initial weight of each pair of cursors in the score, learned
        top_weight  initial weight of the highest frequency in each pair's inner product, learned;
                    the others weigh 1. 0 leaves all at 1, without a parameter. At top=1.0 it tells
                    odd from even offsets
        lead        each pair of cursors learns a number, from 0, that is added to the query
                    cursor's position where the two are compared
        stride      the largest step of a cursor, 1 in the paper
    Options of the gates
        before      layers that cursors are computed before, from 0: "0", "0+3"
        controller  "gru" or "latch" (pezoo.cursors.controllers)
        hidden      its units; None is 100/64 d_model
        window      tokens that "latch" looks at
        copy_every  one in so many query cursors has a copy branch; 0 for none
        copy_gate   copying is a gate of its own, and the source starts with equal tokens
                    (pezoo.cursors.gates); otherwise one softmax has a slot for no copy
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

    Paper: Lee 2025, "Position as Probability", Sections 5-6, Algorithms 1-4. It does not say how
    cursors are spread over layers, what eps is, and where mu, alpha, the copy branch and the GRU's
    W_hh start: each layer has its own cursors, eps is 1e-8, W_hh starts orthogonal.
    Deviation: there all actions start equally likely (Figure 11; reset_bias=0, key_bias=0), here
    resets start rare and key cursors count tokens. Noise, gate_scale, query_bias, copy_gate (there
    one softmax has a slot for no copy), "geometric", the latch, stride, top_weight, lead and the
    mode are ours. alpha has an AdamW group of its own, as there; top_weight and lead share it, and
    none of them decays, which is ours. How the defaults were chosen, and what they do on fresh
    seeds: docs/findings/one-setting.md.
    """

    summary = "learned histograms over relative positions"
    paper = "Lee 2025"
    version = 3
    also = (
        (
            "prism_2025",
            "prism(alpha=1.0,base=10000.0,controller=gru,copy_every=0,copy_gate=False,cursors=4,"
            "d_pe=340,gamma=2.0,gate_noise=0.0,gate_scale=1.0,hidden=100,key_bias=0.0,lead=False,"
            "orthogonal=0.001,query_bias=0.0,reset_bias=0.0,similarity=cosine,stride=1,"
            "top_weight=0.0)",
        ),
    )
    Options = PRISMOptions
    options: PRISMOptions

    def scan(self, cursors: int) -> Histograms:
        own = self.options
        one_sided = own.support == "one_sided"
        return Histograms(cursors, own.gamma, own.eps, one_sided, own.frequencies, own.copy_every)

    def pictures(self, layers: Sequence[Pass]) -> list[Picture]:
        return pictures(self, layers)
