"""Gate networks against plain loops, chunk by chunk, and with noise."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pezoo.cursors.controllers import CONTROLLERS, Recurrent, at_count

D = torch.float64
WINDOW = 4


def made(name, width=3, size=5, window=WINDOW):
    torch.manual_seed(0)
    return CONTROLLERS[name](width, size, window).double()


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def gru_by_hand(gru, x, noise):
    """One row x (T, D) and noise (T, G), number by number, by the textbook's equations."""
    w_x, w_h, b_x, b_h = (p.tolist() for p in gru.parameters())
    size = gru.hidden_size
    h, rows = [0.0] * size, []
    for now, e in zip(x.tolist(), noise.tolist(), strict=True):

        def at(i, now=now, h=h):
            given = sum(w * v for w, v in zip(w_x[i], now, strict=True)) + b_x[i]
            past = sum(w * v for w, v in zip(w_h[i], h, strict=True)) + b_h[i]
            return given, past

        new = []
        for i in range(size):
            r, z = sigmoid(sum(at(i))), sigmoid(sum(at(size + i)))
            given, past = at(2 * size + i)
            new.append((1 - z) * math.tanh(given + r * past) + z * h[i] + e[i])
        h = new
        rows.append(h)
    return torch.tensor(rows, dtype=D)


def test_the_noisy_gru_is_the_textbooks():
    controller = made("gru")
    x, noise = torch.randn(2, 6, 3, dtype=D), torch.randn(2, 6, 5, dtype=D)
    got = controller(x, None, noise)
    for row in range(2):
        torch.testing.assert_close(got[row], gru_by_hand(controller.gru, x[row], noise[row]))
    quiet = controller(x, None, torch.zeros_like(noise))
    torch.testing.assert_close(quiet, controller(x, None))


def test_the_gru_starts_orthogonal():
    for block in Recurrent(4, 6).recurrent_blocks():
        torch.testing.assert_close(block @ block.T, torch.eye(6), atol=1e-5, rtol=0)


def latch_by_hand(latch, x):
    """One row x (T, D), token by token, with sums and maxima of numbers."""
    w, b = latch.read.weight.tolist(), latch.read.bias.tolist()
    v, u = latch.notice.weight.tolist(), latch.hold.weight.tolist()

    def dot(row, column):
        return sum(a * c for a, c in zip(row, column, strict=True))

    held, rows = [-1.0] * latch.size, []
    for t, now in enumerate(x.tolist()):
        held = [max(m, math.tanh(dot(row, now))) for m, row in zip(held, v, strict=True)]
        tokens = [
            x[s].tolist() if s >= 0 else [0.0] * len(now) for s in range(t - WINDOW + 1, t + 1)
        ]
        window = [token[i] for i in range(len(now)) for token in tokens]
        rows.append(
            [math.tanh(dot(w[g], window) + b[g] + dot(u[g], held)) for g in range(latch.size)]
        )
    return torch.tensor(rows, dtype=D)


def test_the_latch_is_a_window_and_a_running_maximum():
    latch, x = made("latch"), torch.randn(2, 7, 3, dtype=D)
    for row, got in zip(x, latch(x, None), strict=True):
        torch.testing.assert_close(got, latch_by_hand(latch, row))


@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=12),
    st.lists(st.integers(0, 2), min_size=1, max_size=12),
)
def test_the_latch_cannot_count(first, second):
    """Tokens before the window count as a set, whatever their order."""
    latch, vocabulary = made("latch", size=40), torch.eye(3, dtype=D)
    one, other = (
        latch(vocabulary[torch.tensor(start + [2] * WINDOW)][None], None)[0, -1]
        for start in (first, second)
    )
    same = bool((one - other).abs().max() < 1e-9)
    assert same == (set(first) | {2} == set(second) | {2})


NETWORKS = [(name, WINDOW) for name in CONTROLLERS] + [("latch", 1)]


@pytest.mark.parametrize(("name", "window"), NETWORKS)
@pytest.mark.parametrize("chunks", [[1] * 8, [3, 5], [2, 1, 5]])
def test_chunks_equal_the_whole(name, window, chunks):
    controller, x = made(name, window=window), torch.randn(2, 8, 3, dtype=D)
    whole, state, rows = controller(x, None), None, []
    for part in x.split(chunks, 1):
        features = controller(part, state)
        count = torch.tensor([part.shape[1]] * 2)
        state = controller.last(part, features, state, count)
        rows.append(features)
    torch.testing.assert_close(torch.cat(rows, 1), whole)


@pytest.mark.parametrize(("name", "window"), NETWORKS)
def test_what_lies_beyond_a_rows_count_is_never_kept(name, window):
    controller = made(name, window=window)
    x = torch.randn(3, 6, 3, dtype=D)
    count = torch.tensor([0, 2, 6])
    state = controller.last(x, controller(x, None), None, count)
    after = torch.randn(1, 2, 3, dtype=D).expand(3, -1, -1)
    got = controller(after, state)
    for row, n in enumerate(count.tolist()):
        alone = torch.cat([x[row : row + 1, :n], after[:1]], 1)
        torch.testing.assert_close(got[row : row + 1], controller(alone, None)[:, -2:])


def test_at_count():
    x = torch.arange(6.0).view(2, 3, 1)
    got = at_count(x, torch.full((2, 1), -1.0), torch.tensor([0, 2]))
    assert got.tolist() == [[-1.0], [4.0]]
