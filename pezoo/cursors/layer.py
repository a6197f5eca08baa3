"""One layer of cursors: tokens in, position streams out, for some layers of the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from pezoo.base import Context
from pezoo.cursors.controllers import CONTROLLERS
from pezoo.cursors.copying import CopyBranch, Seen
from pezoo.cursors.gates import GateHead
from pezoo.kernels.histogram import Copy
from pezoo.spec import unknown


@dataclass(frozen=True)
class CursorOptions:
    """The options that encodings with cursors share; their docstrings say what each does."""

    cursors: int
    d_pe: int
    hidden: int
    controller: str
    window: int
    norm: str
    absolute: bool
    mu: float
    before: str
    copy_every: int
    stride: int
    gate_scale: float
    reset_bias: float
    key_bias: float
    query_bias: float
    gate_noise: float
    state_noise: float
    orthogonal: float
    frequencies: Callable[[torch.device], Tensor] = field(repr=False)


class Scan(nn.Module):
    """The recurrence of the positions themselves: gates in, streams out.

    reset (B, T, C), moves (B, T, C, J), copy or None, what came before or None, each row's number
    of tokens count (B,) or None for all T -> streams (B, T, C, d_pe), and what comes after.
    """

    source = "histogram"  # what `positions` reads, for captions

    def forward(
        self,
        reset: Tensor,
        moves: Tensor,
        copy: Copy | None,
        state: Tensor | None,
        count: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    @property
    def gamma(self) -> Tensor | None:
        """(C,) how much each cursor sharpens; None where nothing does."""
        return None

    @property
    def learned_steps(self) -> Tensor | None:
        """(J,) the steps of the moves; None where they are fixed."""
        return None

    def positions(self, reset: Tensor, moves: Tensor, copy: Copy | None) -> tuple[Tensor, Tensor]:
        """Pr(offset) after each token of whole sequences (B, T, C, L), and the offsets (L,)."""
        raise NotImplementedError


class Past(NamedTuple):
    """What decoding keeps of one layer of cursors."""

    state: Tensor | Callable[[], Tensor]  # the controller's; in training, how to get it
    scans: tuple[Tensor, ...]
    seen: Seen | None


class CursorLayer(nn.Module):
    """Cursors for the queries and keys of `layers` layers: controller, gates, copy branch, scan.

    x (B, T, D) -> streams (B, T, 2 layers heads C, d_pe), the queries' first.
    """

    def __init__(
        self,
        d_model: int,
        layers: int,
        heads: int,
        options: CursorOptions,
        scan: Callable[[int], Scan],
    ) -> None:
        super().__init__()
        if options.controller not in CONTROLLERS:
            raise ValueError(unknown("controller", options.controller, CONTROLLERS))
        self.options = options
        total = 2 * layers * heads * options.cursors
        self.controller = CONTROLLERS[options.controller](d_model, options.hidden, options.window)
        self.gate = GateHead(
            options.hidden,
            total,
            options.stride,
            options.gate_scale,
            options.reset_bias,
            options.key_bias,
            options.query_bias,
        )
        every = options.copy_every
        self.copying = list(range(0, total // 2, every)) if every else []
        rest = [c for c in range(total) if c not in set(self.copying)]
        self.order = [*self.copying, *rest]
        self.scan = scan(len(rest))
        if self.copying:
            self.copy_scan = scan(len(self.copying))
            self.copy_branch = CopyBranch(d_model, options.hidden, len(self.copying))

    def forward(self, x: Tensor, ctx: Context, past: Past | None) -> tuple[Tensor, Past]:
        mask = ctx.key_mask[:, -ctx.new :].expand(x.shape[0], -1)
        count, order = None, None
        tokens = x
        whole = all(bool(one.key_mask[:, -one.new :].all()) for one in ctx.models)
        if not whole:
            count, order = mask.sum(1), _padding_last(mask)
            tokens = _take(x, order)
        before = past and (past.state if isinstance(past.state, Tensor) else past.state())
        features = self.features(tokens, ctx, before)
        reset, moves = self.gates(features, ctx)
        full = mask.sum(1) if count is None else count
        last = partial(self.controller.last, tokens, features, before, full)
        copy, seen = None, None
        if self.copying:
            back = features if order is None else _take(features, order.argsort(1))
            copy, seen = self.copy_branch(
                x, back, mask, past and past.seen, ctx.mode == "snapped", whole
            )
            copy = copy if order is None else Copy(*(_take(part, order) for part in copy))
        streams, scans = self._scan(reset, moves, copy, past, count)
        if order is not None:
            streams = _take(streams, order.argsort(1))
        return streams, Past(last if self.training else last(), scans, seen)

    def features(self, x: Tensor, ctx: Context, state: Tensor | None = None) -> Tensor:
        """(B, T, size) what the controller makes of the tokens x (B, T, D) after that state."""
        noise = None
        if self.controller.noisy:
            noise = self._noise(
                self.options.state_noise, (*x.shape[:2], self.options.hidden), x, ctx
            )
        features: Tensor = self.controller(x, state, noise)
        return features

    def gates(self, features: Tensor, ctx: Context) -> tuple[Tensor, Tensor]:
        """reset (B, T, C) and moves (B, T, C, J); key cursors of a copy branch only count."""
        size = (*features.shape[:2], self.gate.cursors, self.gate.choices)
        noise = self._noise(self.options.gate_noise, size, features, ctx)
        reset, moves = self.gate(features, noise, ctx.mode == "snapped")
        if self.copying:
            fixed = torch.zeros(self.gate.cursors, dtype=torch.bool, device=features.device)
            fixed[[c + self.gate.cursors // 2 for c in self.copying]] = True
            count = torch.zeros(self.gate.choices - 1, dtype=moves.dtype, device=moves.device)
            count[0] = 1.0
            reset = reset.masked_fill(fixed, 0.0)
            moves = torch.where(fixed[:, None], count, moves)
        return reset, moves

    def _scan(
        self,
        reset: Tensor,
        moves: Tensor,
        copy: Copy | None,
        past: Past | None,
        count: Tensor | None,
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        if copy is None:
            streams, state = self.scan(reset, moves, None, past and past.scans[0], count)
            return streams, (state,)
        n = len(self.copying)
        order = torch.tensor(self.order, device=reset.device)
        reset, moves = reset[:, :, order], moves[:, :, order]
        ends = past.scans if past else (None, None)
        one, first = self.copy_scan(reset[:, :, :n], moves[:, :, :n], copy, ends[0], count)
        two, second = self.scan(reset[:, :, n:], moves[:, :, n:], None, ends[1], count)
        return torch.cat([one, two], 2)[:, :, order.argsort()], (first, second)

    def positions(self, reset: Tensor, moves: Tensor, copy: Copy | None) -> tuple[Tensor, Tensor]:
        """`Scan.positions` of all cursors: (B, T, C, L) and the offsets (L,)."""
        if copy is None:
            return self.scan.positions(reset, moves, None)
        n, order = len(self.copying), torch.tensor(self.order, device=reset.device)
        reset, moves = reset[:, :, order], moves[:, :, order]
        one, own = self.copy_scan.positions(reset[:, :, :n], moves[:, :, :n], copy)
        two, offsets = self.scan.positions(reset[:, :, n:], moves[:, :, n:], None)
        missing = (len(offsets) - len(own)) // 2  # learned steps may differ in reach
        one, two = pad(one, (max(missing, 0),) * 2), pad(two, (max(-missing, 0),) * 2)
        both = torch.cat([one, two], 2)[:, :, order.argsort()]
        return both, offsets if missing >= 0 else own

    def _noise(
        self, size: float, shape: tuple[int, ...], like: Tensor, ctx: Context
    ) -> Tensor | None:
        """Normal noise in training, grown over its first half (all of it without a progress)."""
        if not (self.training and size):
            return None
        ramp = 1.0 if ctx.progress is None else min(1.0, 2 * ctx.progress)

        def draw(size: tuple[int, ...], one: Context) -> Tensor:
            device = like.device if one.generator is None else one.generator.device
            return torch.randn(size, generator=one.generator, device=device, dtype=like.dtype)

        return ctx.drawn(draw, shape).to(like.device) * (size * ramp)


def _padding_last(mask: Tensor) -> Tensor:
    """(B, T) an order that puts the tokens first, so that recurrences never see padding."""
    return (~mask).to(torch.int8).argsort(dim=1, stable=True)


def _take(x: Tensor, order: Tensor) -> Tensor:
    """x (B, T, ...) with its second axis in that order."""
    index = order.reshape(*order.shape, *[1] * (x.dim() - 2)).expand(-1, -1, *x.shape[2:])
    return x.gather(1, index)
