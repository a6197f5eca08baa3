import math

import pytest
import torch

from pezoo import Context, Memo, Shape, attention, make

D = torch.float64
SHAPE = Shape(d_model=8, n_heads=2, d_head=4, n_layers=2, train_len=8)
POS = torch.tensor([[-1, -1, 0, 1, 4, 5, 0, 1, 2]])  # left padding, then two documents


def made(text="goat(rank=3,sink_rank=2)"):
    encoding = make(text, SHAPE).double()
    for one in encoding.parameters():
        torch.nn.init.normal_(one)
    return encoding.requires_grad_(False)


def prior(e, h, i, j, layer=1):
    """The log prior of GoatAttention.forward, feature by feature, with 3 and 2 frequencies."""
    total = 0.0
    for r in range(3):
        w = 10_000 ** (-r / 2)
        a, c = float(e.a[layer, h, r]), float(e.c[layer, h, r])
        q = a * math.cos(w * i) + c * math.sin(w * i), a * math.sin(w * i) - c * math.cos(w * i)
        total += q[0] * math.cos(w * j) + q[1] * math.sin(w * j)
    waves = [10_000 ** (-n) * j for n in range(2)]
    f = [*map(math.cos, waves), *map(math.sin, waves), j / 8, math.log1p(j) / math.log1p(8)]
    raw = [float(e.inner[layer, n] @ torch.tensor(f, dtype=D) + e.inner_bias[layer, n])
           for n in range(4)]  # fmt: skip
    v = sum(float(e.outer[layer, n]) * raw[n] / (1 + math.exp(-raw[n])) for n in range(4))
    total += float(e.gain[layer, h]) * v + float(e.sink[layer, h]) * (j == 0)
    return total - math.log1p(math.exp(float(e.raw_slope[layer, h]))) * (i - j)


@pytest.mark.parametrize("steps", [[9], [1] * 9])
def test_it_is_the_prior_of_the_authors_code(steps):
    encoding, q, memo, end = made(), torch.zeros(1, 2, 9, 4, dtype=D), Memo(), 0
    for step in steps:
        start, end = end, end + step
        ctx = encoding.prepare(Context(POS[:, :end], n_new=step, memo=memo)).at(1, None)
        got = encoding.bias(q[:, :, start:end], q[:, :, :end], ctx)
        for h in range(2):
            for i in range(max(start, 2), end):
                for j in range(2, i + 1):
                    want = prior(encoding, h, int(POS[0, i]), int(POS[0, j]))
                    assert got[0, h, i - start, j].item() == pytest.approx(want, abs=1e-7)


def test_without_waves_it_is_alibi_and_without_slopes_nope():
    q, k, v = torch.randn(3, 1, 2, 9, 4, dtype=D)
    alike = {"goat(rank=0)": "alibi", "goat(start=uniform)": "nope"}
    for text, other in alike.items():
        encoding = make(text, SHAPE).double()
        torch.nn.init.zeros_(encoding.outer)
        got, want = (attention(q, k, v, e, POS) for e in (encoding, make(other, SHAPE)))
        torch.testing.assert_close(got, want, atol=1e-7, rtol=0)


def test_a_sink_gets_what_its_number_says():
    encoding = make("goat(start=uniform)", SHAPE).double()
    torch.nn.init.constant_(encoding.sink, 5)
    v, zero = torch.eye(4, dtype=D)[None, None].repeat(1, 2, 1, 1), torch.zeros(1, 2, 4, 4, dtype=D)
    got = attention(zero, zero, v, encoding, torch.arange(4)[None])[0, :, 3]
    torch.testing.assert_close(got[:, 0] / got[:, 1], torch.full((2,), math.exp(5), dtype=D))


def test_waves_stay_exact_far_away():
    encoding, far = made(), 10**6
    ctx = encoding.prepare(Context(torch.arange(far, far + 3)[None])).at(1, None)
    encoding.gain.zero_()
    q = torch.zeros(1, 2, 3, 4, dtype=D)
    near = encoding.prepare(Context(torch.arange(1, 4)[None])).at(1, None)
    got, want = (encoding.bias(q, q, one) for one in (ctx, near))
    torch.testing.assert_close(got, want, atol=1e-6, rtol=0)


class Held(torch.nn.Module):
    def __init__(self, e):
        super().__init__()
        self.e = e

    def forward(self, q, ctx):
        return self.e.bias(q, q, ctx)


def test_the_start_is_that_of_the_authors_code():
    encoding = make("goat", SHAPE.replaced(n_layers=200))
    for one, std in ((encoding.a, 1e-2), (encoding.inner, 1e-3), (encoding.outer, 1e-3)):
        assert one.std().item() == pytest.approx(std, rel=0.1)
    slopes = torch.nn.functional.softplus(encoding.raw_slope[7])
    torch.testing.assert_close(slopes, torch.tensor([2**-4.0, 2**-8.0]))
