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


@dataclass(frozen=True, kw_only=True)
class PRISMOptions(CursorOptions):
    """Options of prism: those of CursorOptions with leads, and how histograms sharpen.

    Errors: ValueError for an option out of range.
    """

    lead: bool = True
    gamma: float = 1.2
    eps: float = 1e-8

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.gamma < 1:
            raise ValueError(f"gamma must be at least 1, got {self.gamma}")
        if self.eps <= 0:
            raise ValueError(f"eps must be above 0, got {self.eps}: sharpening takes logarithms")


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
        cursors     C, pairs of cursors per head and layer (Sec. 6.2)
        d_pe        d_pe, width of a stream, even; None: 2 d_head (Sec. 5.2)
        gamma       initial gamma_c, learned; 1.0: no sharpening (Sec. A.2)
        eps         epsilon, added to bins before sharpening (Alg. 1)
        similarity  w_m of f: "cosine" (Sec. 5.2), "geometric" (ours)
        base        w_m is base^(-2m/d_pe) (Sec. 5.2: 10000)
        top         w_m of "geometric" is top pi base^(-2m/d_pe) (ours)
        mu          initial mu_h before its sigmoid, learned (Eq. 9)
        alpha       initial alpha_hc, learned (Eq. 8)
        top_weight  initial weight of w_0 in <e_q, e_k>; 0: no weight (ours)
        lead        a learned number is added to each query cursor (ours)
        stride      largest step; 1: -1, 0 and +1 (Sec. 4.2.1), else ours
    Options of the gates
        before      layers that read new cursors, from 0: "0+3" (Sec. 6.2)
        controller  "gru" (Sec. 5.0.5) or "latch" (ours)
        hidden      its units; None: 100/64 d_model (Sec. 5.0.5)
        window      tokens that "latch" reads (ours)
        copy_every  one query cursor in so many copies; 0: none (Eq. 3.8')
        copy_gate   p_no-copy is a gate, not a slot of a softmax (ours)
        gate_scale  logits are gate_scale (W features + b) (ours; 1.0 there)
        reset_bias  initial b of p_reset (Figure 11: 0)
        key_bias    initial b of p_incr in key cursors (Figure 11: 0)
        query_bias  initial b of one step of a query cursor, in turn (ours)
        gate_noise  deviation of noise on logits in training (ours)
        state_noise  deviation of noise in the GRU's state in training (ours)
        orthogonal  weight of |W_hh W_hh' - 1|^2 (Sec. 6.3)
    "ours": not in the paper. Noise grows over the first half of training. With top=1.0, w_0 tells
    odd from even offsets.
    Mode "snapped": gates are rounded, so that every cursor is an integer counter.
    Errors: ValueError without ctx.x or for an option out of range.

    Paper: Lee 2025, "Position as Probability", Sections 5-6, Algorithms 1-4. It does not say how
    cursors are spread over layers, what eps is, and where mu, alpha, the copy branch and the GRU's
    W_hh start: each layer has its own cursors, eps is 1e-8, W_hh starts orthogonal.
    Deviation: there all actions start equally likely (Figure 11; reset_bias=0, key_bias=0), here
    resets start rare and key cursors count tokens. Noise, gate_scale, query_bias, copy_gate (there
    one softmax has a slot for no copy), "geometric", the latch, stride, top_weight, lead and the
    mode are ours. alpha has an AdamW group of its own, as there; top_weight and lead share it, and
    none of them decays, which is ours. On a CPU, where no gradient needs them, bins that sharpening
    has emptied count as equal, to eps/100. How the defaults were chosen, and what they do on fresh
    seeds: docs/findings/one-setting.md.
    """

    summary = "learned histograms over relative positions"
    paper = "Lee 2025"
    reports = "of prism_2025: exact up to ten times the training length on algorithmic tasks"
    reads = "text"
    picture = (
        "what-prism-learned/meeting.svg",
        "One counter copies 12 digits: queries (orange) attend to keys (blue) in the same row.",
    )
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
        return Histograms(cursors, own.gamma, own.eps, own.frequencies, own.copy_every)

    def pictures(self, layers: Sequence[Pass]) -> list[Picture]:
        return pictures(self, layers)
