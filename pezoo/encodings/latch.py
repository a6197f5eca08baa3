"""PRISM's gate network without positions, around another encoding."""

from collections.abc import Callable
from typing import Unpack

from torch import Tensor, nn

from pezoo.base import Encoding, Pass, Shape, Sizes
from pezoo.functional import at_least_float32
from pezoo.initial import owned
from pezoo.registry import register
from pezoo.wrapper import Wrapper


@register("latch")
class Latch(Wrapper):
    """Add the output of PRISM's gate network to the token embeddings of another encoding.

    A control: it gives another encoding what prism's gates know of the text, and no positions.

    Formula: x_t + W_o sigmoid(W_g f_t + b_g), f_t = tanh(W x_t + U m_t + b) and
    m_t = max_{s<=t} tanh(V x_s), the maximum over the tokens of t's document so far.

    Example: m_t tells from "=" on that a "=" has occurred, but not how long ago.

    Shapes: x (B, T, D) -> the same; V and W (hidden, D), U (hidden, hidden), W_g (gates, hidden),
    W_o (D, gates). W_o is 0 at the start, so that training begins with the inner encoding.
    Options: hidden, by default 100/64 D as in prism; gates, by default 5.6 D: with both, latch
    adds as many parameters as prism does in `quick`.

    Paper: Lee 2025 has PRISM with a GRU; the network here is prism's own, without window and noise
    (pezoo.cursors.controllers.Latch).
    """

    summary = "another encoding, and PRISM's gate network without positions"
    paper = "Lee 2025"
    reads = "text"
    wraps = "rope"
    control = True

    def __init__(
        self,
        shape: Shape | None = None,
        make_inner: Callable[[Shape], Encoding] | None = None,
        *,
        hidden: int | None = None,
        gates: int | None = None,
        **sizes: Unpack[Sizes],
    ) -> None:
        super().__init__(shape, make_inner, **sizes)
        self.refuse_itself("one gate network is enough")
        self.order_blind = False
        d = self.shape.d_model
        hidden = round(d * 100 / 64) if hidden is None else hidden
        gates = round(5.6 * d) if gates is None else gates
        if hidden < 1 or gates < 1:
            raise ValueError(f"hidden and gates must be at least 1, got {hidden} and {gates}")
        self.read = nn.Linear(d, hidden)
        self.notice = nn.Linear(d, hidden, bias=False)
        self.hold = nn.Linear(hidden, hidden, bias=False)
        self.gates = nn.Linear(hidden, gates)
        self.out = owned(nn.Linear(gates, d, bias=False))
        nn.init.zeros_(self.out.weight)

    def held(self, x: Tensor, ctx: Pass) -> Tensor:
        """Return m, (B, T, hidden), of the new tokens."""
        noticed = at_least_float32(self.notice(x).tanh())
        noticed = noticed.masked_fill(ctx.query_pos[..., None] < 0, -1.0)
        # (B|1, 1, T): lifts each document above those before it
        above = 4.0 * ctx.document[:, None, -ctx.new :].to(noticed.dtype)
        noticed = ctx.with_earlier("latch", noticed.mT + above)  # (B, hidden, S)
        held = noticed.cummax(-1).values[..., -x.shape[1] :] - above
        return held.mT.to(x.dtype)

    def embed(self, x: Tensor, ctx: Pass) -> Tensor:
        features = (self.read(x) + self.hold(self.held(x, ctx))).tanh()
        return super().embed(x + self.out(self.gates(features).sigmoid()), ctx)
