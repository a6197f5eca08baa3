"""Gate networks: what reads the text and tells the cursors how to move.

A controller maps tokens x (B, T, D) to features (B, T, size). It is causal, and `last` keeps what
the next chunk of tokens needs, so that decoding token by token equals the full pass. Rows may hold
fewer tokens than T: the first `count` of each row are real, the rest is never looked at.
"""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from pezoo.vmap import stacked


class Controller(nn.Module):
    """The interface; as it stands it looks at each token alone: tanh(W x + b)."""

    noisy = False  # can take noise inside its recurrence

    def __init__(self, width: int, size: int, window: int = 1) -> None:
        super().__init__()
        self.size = size
        self.read = nn.Linear(width, size)

    def forward(self, x: Tensor, state: Tensor | None, noise: Tensor | None = None) -> Tensor:
        """x (B, T, D), what `last` returned before, noise (B, T, size) -> (B, T, size)."""
        features: Tensor = self.read(x).tanh()
        return features

    def last(self, x: Tensor, features: Tensor, state: Tensor | None, count: Tensor) -> Tensor:
        """(B, ...) what the next chunk needs, after each row's first count (B,) tokens."""
        return features.new_zeros(len(features), 0)

    def recurrent_blocks(self) -> Tensor | None:
        """(n, size, size) hidden-to-hidden matrices that training keeps orthogonal, or None."""
        return None

    def constrain(self, w_hh: str) -> None:
        """Keep them orthogonal or normalised. Errors: ValueError where there are none."""
        raise ValueError(f"w_hh={w_hh} needs a recurrence, which controller=gru has")


class Convolution(Controller):
    """tanh(W [x_{t-window+1}, ..., x_t] + b): a bounded memory, no recurrence."""

    def __init__(self, width: int, size: int, window: int) -> None:
        super().__init__(window * width, size)
        self.window = window

    def forward(self, x: Tensor, state: Tensor | None, noise: Tensor | None = None) -> Tensor:
        features: Tensor = self.read(self._windows(x, state)).tanh()
        return features

    def last(self, x: Tensor, features: Tensor, state: Tensor | None, count: Tensor) -> Tensor:
        index = count[:, None] + torch.arange(self.window - 1, device=x.device)
        return self._with_tail(x, state).gather(1, index[..., None].expand(-1, -1, x.shape[-1]))

    def _windows(self, x: Tensor, state: Tensor | None) -> Tensor:
        """(B, T, D window) the tokens up to each."""
        return self._with_tail(x, state).unfold(1, self.window, 1).flatten(2)

    def _with_tail(self, x: Tensor, state: Tensor | None) -> Tensor:
        tail = x.new_zeros(x.shape[0], self.window - 1, x.shape[2]) if state is None else state
        return torch.cat([tail, x], 1)


class Latch(Convolution):
    """tanh(W [x_{t-window+1}, ..., x_t] + U m_t + b), m_t = max_{s<=t} tanh(V x_s).

    It knows the last tokens and, by a running maximum, what has occurred so far; neither how often
    nor, beyond its window, how long ago. Gates can change at a landmark, and cannot count. No
    recurrence.
    """

    def __init__(self, width: int, size: int, window: int) -> None:
        super().__init__(width, size, window)
        self.notice = nn.Linear(width, size, bias=False)
        self.hold = nn.Linear(size, size, bias=False)

    def forward(self, x: Tensor, state: Tensor | None, noise: Tensor | None = None) -> Tensor:
        tail, before = self._split(state, x)
        held = torch.maximum(self._noticed(x).cummax(1).values, before[:, None])  # (B, T, size)
        features: Tensor = (self.read(self._windows(x, tail)) + self.hold(held)).tanh()
        return features

    def last(self, x: Tensor, features: Tensor, state: Tensor | None, count: Tensor) -> Tensor:
        tail, before = self._split(state, x)
        tail = super().last(x, features, tail, count).flatten(1)
        held = at_count(self._noticed(x).cummax(1).values, before, count).maximum(before)
        return torch.cat([tail, held], 1)  # (B, (window - 1) D + size)

    def _noticed(self, x: Tensor) -> Tensor:
        noticed: Tensor = self.notice(x).tanh()
        return noticed

    def _split(self, state: Tensor | None, x: Tensor) -> tuple[Tensor | None, Tensor]:
        """The state's last tokens (B, window - 1, D) and what it holds (B, size)."""
        if state is None:
            return None, x.new_full((x.shape[0], self.size), -1.0)  # the least that tanh can give
        tail = state[:, : -self.size].reshape(state.shape[0], self.window - 1, x.shape[2])
        return tail, state[:, -self.size :]


class Recurrent(Controller):
    """A GRU (Section 5.0.5), started with orthogonal hidden-to-hidden matrices.

    W_hh is free, orthogonal block by block (a parametrisation; of the three as one matrix it would
    shrink each), or normalised: its Frobenius norm is c sqrt(3 size) with a learned c that starts
    at 1, the norm of three orthogonal blocks.
    Noise e_t enters inside the recurrence, h_t = GRU(x_t, h_{t-1}) + e_t: a state that has to be
    remembered must then be an attractor, or it is lost during training already.
    """

    noisy = True

    def __init__(self, width: int, size: int, window: int = 1) -> None:
        nn.Module.__init__(self)
        self.size = size
        self.gru = nn.GRU(width, size, batch_first=True)
        self.blocks: nn.Module | None = None  # its weight (3, size, size) is orthogonal
        self.norm: nn.Parameter | None = None  # c
        with torch.no_grad():
            for block in self.recurrent_blocks():
                nn.init.orthogonal_(block)

    def forward(self, x: Tensor, state: Tensor | None, noise: Tensor | None = None) -> Tensor:
        free = self.blocks is None and self.norm is None
        if noise is None and free and not stacked():  # vmap has no rule for torch's own loop
            features: Tensor = self.gru(x, None if state is None else state[None])[0]
            return features
        w, b = self.recurrent_blocks().flatten(0, 1), self._own("bias_hh")
        h = x.new_zeros(x.shape[0], self.size) if state is None else state
        given = linear(x, self._own("weight_ih"), self._own("bias_ih"))  # (B, T, 3 size)
        rows = []
        noises = [None] * x.shape[1] if noise is None else noise.unbind(1)
        for now, e in zip(given.unbind(1), noises, strict=True):
            g_r, g_z, g_n = now.chunk(3, -1)
            h_r, h_z, h_n = linear(h, w, b).chunk(3, -1)
            n = torch.addcmul(g_n, (g_r + h_r).sigmoid(), h_n).tanh()
            h = torch.lerp(n, h, (g_z + h_z).sigmoid())
            h = h if e is None else h + e
            rows.append(h)
        return torch.stack(rows, 1)

    def last(self, x: Tensor, features: Tensor, state: Tensor | None, count: Tensor) -> Tensor:
        state = torch.zeros_like(features[:, 0]) if state is None else state
        return at_count(features, state, count)

    def recurrent_blocks(self) -> Tensor:
        if self.blocks is not None:
            return cast(Tensor, self.blocks.weight)
        weight = self._own("weight_hh").view(3, self.size, self.size)
        if self.norm is not None:
            weight = weight * (self.norm * math.sqrt(3 * self.size) / weight.norm())
        return weight

    def constrain(self, w_hh: str) -> None:
        if w_hh == "normalised":
            self.norm = nn.Parameter(torch.ones(()))
            return
        from torch.nn.utils.parametrizations import orthogonal

        blocks = nn.Module()
        blocks.weight = nn.Parameter(self.recurrent_blocks().detach().clone())
        self.blocks = orthogonal(blocks, "weight")
        del self.gru.weight_hh_l0

    def _own(self, name: str) -> Tensor:
        """A parameter of the GRU, or what torch.func.functional_call has put in its place."""
        found: Tensor = getattr(self.gru, f"{name}_l0")
        return found


def at_count(x: Tensor, before: Tensor, count: Tensor) -> Tensor:
    """(B, ...) what x (B, T, ...) is after each row's first count tokens; `before` at count 0."""
    found = x[torch.arange(x.shape[0], device=x.device), (count - 1).clamp(min=0)]
    return torch.where((count > 0).view(-1, *[1] * (found.dim() - 1)), found, before)


CONTROLLERS: dict[str, type[Controller]] = {
    "gru": Recurrent,
    "conv": Convolution,
    "latch": Latch,
    "token": Controller,
}
