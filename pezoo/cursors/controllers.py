"""Gate networks: they read the text and decide how the cursors move.

A controller maps tokens x (B, T, D) to features (B, T, size). It is causal, and `last` keeps what
the next chunk of tokens needs, so that decoding token by token equals the full pass. Rows may hold
fewer tokens than T: the first `count` of each row are real, and the rest is ignored.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from pezoo.functional import orthogonal_
from pezoo.initial import owned


class Controller(nn.Module):
    """The interface of gate networks."""

    noisy = False  # True: takes noise inside its recurrence
    size: int

    def forward(self, x: Tensor, state: Tensor | None, noise: Tensor | None = None) -> Tensor:
        """Compute features: x (B, T, D), state from `last`, noise (B, T, size) -> (B, T, size)."""
        raise NotImplementedError

    def last(self, x: Tensor, features: Tensor, state: Tensor | None, count: Tensor) -> Tensor:
        """Return the state (B, ...) after each row's first count (B,) tokens."""
        raise NotImplementedError

    def recurrent_blocks(self) -> Tensor | None:
        """Return the hidden-to-hidden matrices (n, size, size), or None without a recurrence."""
        return None


class Latch(Controller):
    """A window of tokens and a running maximum, without recurrence.

        tanh(W [x_{t-window+1}, ..., x_t] + U m_t + b),   m_t = max_{s<=t} tanh(V x_s)

    It knows the last tokens and which tokens have occurred so far, but neither how often nor,
    beyond its window, how long ago. Gates can change at a landmark, and cannot count.
    """

    def __init__(self, width: int, size: int, window: int) -> None:
        super().__init__()
        self.size, self.window = size, window
        self.read = nn.Linear(window * width, size)
        self.notice = nn.Linear(width, size, bias=False)
        self.hold = nn.Linear(size, size, bias=False)

    def forward(self, x: Tensor, state: Tensor | None, noise: Tensor | None = None) -> Tensor:
        tail, before = self._split(state, x)
        held = torch.maximum(self._noticed(x).cummax(1).values, before[:, None])  # (B, T, size)
        windows = torch.cat([tail, x], 1).unfold(1, self.window, 1).flatten(2)  # (B, T, D window)
        features: Tensor = (self.read(windows) + self.hold(held)).tanh()
        return features

    def last(self, x: Tensor, features: Tensor, state: Tensor | None, count: Tensor) -> Tensor:
        tail, before = self._split(state, x)
        index = count[:, None] + torch.arange(self.window - 1, device=x.device)
        index = index[..., None].expand(-1, -1, x.shape[-1])
        tail = torch.cat([tail, x], 1).gather(1, index).flatten(1)
        held = at_count(self._noticed(x).cummax(1).values, before, count).maximum(before)
        return torch.cat([tail, held], 1)  # (B, (window - 1) D + size)

    def _noticed(self, x: Tensor) -> Tensor:
        noticed: Tensor = self.notice(x).tanh()
        return noticed

    def _split(self, state: Tensor | None, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the last tokens (B, window - 1, D) and the maximum (B, size) of a state."""
        b, d = x.shape[0], x.shape[2]
        if state is None:  # -1 is the least value of tanh
            return x.new_zeros(b, self.window - 1, d), x.new_full((b, self.size), -1.0)
        tail = state[:, : -self.size].reshape(state.shape[0], self.window - 1, d)
        return tail, state[:, -self.size :]


class Recurrent(Controller):
    """A GRU (Section 5.0.5) whose hidden-to-hidden matrices start orthogonal.

    Noise e_t enters inside the recurrence, h_t = GRU(x_t, h_{t-1}) + e_t, so that a state that is
    remembered must be an attractor.
    """

    noisy = True

    def __init__(self, width: int, size: int, window: int = 1) -> None:
        super().__init__()
        self.size = size
        self.gru = owned(nn.GRU(width, size, batch_first=True))
        with torch.no_grad():
            for block in self.recurrent_blocks():
                orthogonal_(block)

    def forward(self, x: Tensor, state: Tensor | None, noise: Tensor | None = None) -> Tensor:
        if noise is None:
            features: Tensor = self.gru(x, None if state is None else state[None])[0]
            return features
        w, b = self.recurrent_blocks().flatten(0, 1), self._own("bias_hh")
        h = x.new_zeros(x.shape[0], self.size) if state is None else state
        inputs = linear(x, self._own("weight_ih"), self._own("bias_ih"))  # (B, T, 3 size)
        rows = []
        for now, e in zip(inputs.unbind(1), noise.unbind(1), strict=True):
            g_r, g_z, g_n = now.chunk(3, -1)
            h_r, h_z, h_n = linear(h, w, b).chunk(3, -1)
            n = torch.addcmul(g_n, (g_r + h_r).sigmoid(), h_n).tanh()
            h = torch.lerp(n, h, (g_z + h_z).sigmoid()) + e
            rows.append(h)
        return torch.stack(rows, 1)

    def last(self, x: Tensor, features: Tensor, state: Tensor | None, count: Tensor) -> Tensor:
        state = torch.zeros_like(features[:, 0]) if state is None else state
        return at_count(features, state, count)

    def recurrent_blocks(self) -> Tensor:
        return self._own("weight_hh").view(3, self.size, self.size)

    def _own(self, name: str) -> Tensor:
        """Return a parameter of the GRU, or its replacement by torch.func.functional_call."""
        found: Tensor = getattr(self.gru, f"{name}_l0")
        return found


def at_count(x: Tensor, before: Tensor, count: Tensor) -> Tensor:
    """Return x (B, T, ...) after each row's first count tokens, (B, ...); `before` at count 0."""
    found = x[torch.arange(x.shape[0], device=x.device), (count - 1).clamp(min=0)]
    return torch.where((count > 0).view(-1, *[1] * (found.dim() - 1)), found, before)


CONTROLLERS: dict[str, type[Recurrent] | type[Latch]] = {"gru": Recurrent, "latch": Latch}
