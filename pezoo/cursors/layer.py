"""One layer of cursors: tokens in, position streams out, for some layers of the model."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from pezoo.base import Context, Pass, Shape
from pezoo.cursors.controllers import CONTROLLERS
from pezoo.cursors.gates import CopyBranch, GatedCopyBranch, GateHead
from pezoo.cursors.memory import Past
from pezoo.cursors.options import CursorOptions
from pezoo.cursors.positions import Gates, Scan
from pezoo.kernels.histogram import Copy

# (B|1, T) indices that put padding last, so that recurrences see tokens only, and their inverse
ORDER, BACK = "cursors.order", "cursors.back"
# Their sizes hold the number and the length of documents, because hooks cannot read values.
DOCUMENTS, LONGEST = "cursors.documents", "cursors.longest"


class CursorLayer(nn.Module):
    """Cursors for the queries and keys of `heads` heads: controller, gates, copy branch, scan.

    x (B, T, D) -> streams (B, T, 2 heads C, d_pe), the queries' first.
    """

    def __init__(
        self,
        shape: Shape,
        heads: int,
        options: CursorOptions,
        scan: Callable[[int], Scan],
        *,
        key: str,
    ) -> None:
        """`key` is the prefix of the names in ctx.drawn for this layer."""
        super().__init__()
        self.options, self.key = options, key
        total = 2 * heads * options.cursors
        make = CONTROLLERS[options.controller]
        self.controller = make(shape.d_model, options.units, options.window)
        every = options.copy_every
        self.copying = list(range(0, total // 2, every)) if every else []
        undecided = self.copying if options.copy_gate else ()
        self.gate = GateHead(total, options, undecided)
        self.scan = scan(total - len(self.copying))
        if self.copying:
            self.copy_scan = scan(len(self.copying))
            branch = GatedCopyBranch if options.copy_gate else CopyBranch
            self.copy_branch = branch(shape.d_model, len(self.copying), options)

    def noise(
        self, size: tuple[int, int], ramp: float, generator: torch.Generator | None
    ) -> dict[str, Tensor]:
        """Draw normal noise for (B, T) tokens in training, for the recurrence and the gates."""
        state, gates = self.options.state_noise, self.options.gate_noise
        if not self.training:
            return {}
        weight = self.gate.linear.weight

        def draw(*more: int) -> Tensor:
            device = weight.device if generator is None else generator.device
            sizes = (*size, *more)
            return torch.randn(sizes, generator=generator, device=device, dtype=weight.dtype)

        found = {}
        if state and self.controller.noisy:
            found[f"{self.key}.state_noise"] = draw(self.options.units) * (state * ramp)
        if gates:
            shape = self.gate.cursors, self.gate.choices
            found[f"{self.key}.gate_noise"] = draw(*shape) * (gates * ramp)
            if self.copying and self.options.copy_gate:
                found[f"{self.key}.copy_noise"] = draw(len(self.copying)) * (gates * ramp)
        return found

    def forward(self, x: Tensor, ctx: Pass, past: Past | None) -> tuple[Tensor, Past]:
        """Compute streams; x may begin with tokens that are read again, before the ctx.new ones."""
        order, back = _order(ctx, x.shape[1])
        mask = None if order is None else ctx.key_mask[:, -x.shape[1] :].expand(len(x), -1)
        count = None if mask is None else mask.sum(1)
        tokens = take(x, order)
        before = past and past.known()
        features = self.features(tokens, ctx, before)
        reset, moves = self.gates(features, ctx)
        full = x.new_full((len(x),), x.shape[1], dtype=torch.long) if count is None else count
        last = partial(self.controller.last, tokens, features, before, full)
        copy, seen = None, None
        if self.copying:
            copy, seen = self.copy_branch(
                x,
                take(features, back),
                mask,
                past and past.seen,
                ctx.mode == "snapped",
                self._noise("copy_noise", ctx, x.shape[1]),
            )
            copy = Copy(*(take(part, order) for part in copy))
        state = past.scan if past else None
        streams, end = self.scan(Gates(reset, moves, self.gamma, copy), state, count)
        return take(streams, back), Past(last if self.training else last(), end, seen)

    def features(self, x: Tensor, ctx: Pass, state: Tensor | None = None) -> Tensor:
        """Return the controller's features (B, T, size) of tokens x (B, T, D) after `state`."""
        noise = self._noise("state_noise", ctx, x.shape[1])
        features: Tensor = self.controller(x, state, noise)
        return features

    def gates(self, features: Tensor, ctx: Pass) -> tuple[Tensor, Tensor]:
        """Return reset (B, T, C) and moves (B, T, C, J), those of copied key cursors fixed."""
        noise = self._noise("gate_noise", ctx, features.shape[1])
        reset, moves = self.gate(features, noise, ctx.mode == "snapped")
        if self.copying:
            fixed = self._copies(features.device).roll(self.gate.cursors // 2)
            count = torch.arange(self.gate.choices - 1, device=moves.device) == 0
            reset = reset.masked_fill(fixed, 0.0)
            moves = torch.where(fixed[:, None], count.to(moves.dtype), moves)
        return reset, moves

    def _noise(self, which: str, ctx: Pass, t: int) -> Tensor | None:
        """Return the noise (B, t, ...) in ctx.drawn, zero for tokens that are read again."""
        noise = (ctx.drawn or {}).get(f"{self.key}.{which}")
        if noise is None or noise.shape[1] == t:
            return noise
        return pad(noise, (0, 0) * (noise.dim() - 2) + (t - noise.shape[1], 0))

    @property
    def gamma(self) -> Tensor | None:
        """(2 heads C,) the sharpness of each cursor; None without sharpening."""
        scans = (self.copy_scan, self.scan) if self.copying else (self.scan,)
        found = [scan.gamma for scan in scans if scan.gamma is not None]
        if not self.copying or not found:
            return found[0] if found else None
        copies = self._copies(found[0].device)
        later = len(self.copying) + (~copies).cumsum(0)
        return torch.cat(found)[torch.where(copies, copies.cumsum(0), later) - 1]

    def _copies(self, device: torch.device) -> Tensor:
        """Return (2 heads C,) bool, True for query cursors that copy."""
        number = torch.arange(self.gate.cursors, device=device)
        return (number < self.gate.cursors // 2) & (number % self.options.copy_every == 0)


def tokens_first(pos: Tensor) -> dict[str, Tensor]:
    """Return the order of positions (B|1, T) with padding last, and its inverse."""
    order = (pos < 0).to(torch.int8).argsort(dim=1, stable=True)
    return {ORDER: order, BACK: order.argsort(1)}


def _order(ctx: Pass, t: int) -> tuple[Tensor | None, Tensor | None]:
    """Return ORDER and BACK of the last t tokens, or None if `draw` found no padding."""
    drawn = ctx.drawn or {}
    if t > ctx.new:
        drawn = tokens_first(ctx.pos[:, -t:])
    return drawn.get(ORDER), drawn.get(BACK)


def take(x: Tensor, order: Tensor | None) -> Tensor:
    """Return columns (B|1, n) of x (B, T, ...); None returns x."""
    if order is None:
        return x
    index = order.expand(len(x), -1)
    index = index.reshape(*index.shape, *[1] * (x.dim() - 2))
    return x.gather(1, index.expand(-1, -1, *x.shape[2:]))


def documents(ctx: Context, read: int) -> dict[str, Tensor]:
    """Return DOCUMENTS (M,), the most in a row, and LONGEST (L,), in tokens; {} without documents.

    Documents that begin among the first `read` tokens do not count.
    """
    if not ctx.packed:
        return {}
    number = ctx.document
    if read and not bool((number[:, -1] > number[:, read - 1]).any()):
        return {}
    most = int(number.max()) + 1
    longest = int(_counts(ctx, most).max())
    return {DOCUMENTS: torch.zeros(most), LONGEST: torch.zeros(longest)}


def by_document(layer: CursorLayer, x: Tensor, ctx: Pass) -> tuple[Tensor, Past]:
    """Run `layer` over packed documents, each in a row of its own.

    x (B, S, D) -> streams, and the past of each row's last document.
    """
    drawn = ctx.drawn or {}
    (b, s), m, size = x.shape[:2], len(drawn[DOCUMENTS]), len(drawn[LONGEST])
    number = ctx.document.expand(b, -1)
    counts = _counts(ctx, m).expand(b, -1)  # (B, M)
    place = ctx.key_mask.cumsum(1).expand(b, -1) - 1  # of a token in its row
    place = place - (counts.cumsum(1) - counts).gather(1, number)  # and in its document
    slot = (number * size + place).masked_fill(
        ~ctx.key_mask, m * size
    )  # padding goes to a spare slot
    column = torch.arange(s, device=x.device).expand(b, -1)
    column = slot.new_zeros(b, m * size + 1).scatter(1, slot, column)[:, :-1]

    def apart(y: Tensor) -> Tensor:
        """Separate documents: (B|1, T, ...) -> (B M, L, ...), 0 for tokens of earlier passes."""
        y = pad(y, (0, 0) * (y.dim() - 2) + (s - y.shape[1], 0))
        return take(y.expand(b, *y.shape[1:]), column).reshape(b * m, size, *y.shape[2:])

    pos = torch.arange(size, device=x.device)
    pos = torch.where(pos < counts[..., None], pos, -1).flatten(0, 1)  # (B M, L)
    apiece = {name: apart(y) for name, y in drawn.items() if y.dim() > 1} | tokens_first(pos)
    streams, past = layer(apart(x), replace(ctx, pos=pos, n_new=None, drawn=apiece), None)
    streams = streams.reshape(b, m * size, *streams.shape[2:])
    last = torch.arange(b, device=x.device) * m + number[:, -1]
    return take(streams, slot.clamp(max=m * size - 1)), past.reorder(last)


def _counts(ctx: Context, most: int) -> Tensor:
    """Return the number of tokens of each document, (B|1, M)."""
    counts = ctx.pos.new_zeros(len(ctx.pos), most)
    return counts.scatter_add(1, ctx.document, ctx.key_mask.to(counts.dtype))
