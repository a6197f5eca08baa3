import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pezoo.adapters import attend
from pezoo.base import Pass, Shape
from pezoo.encodings.geometric import Geometric
from pezoo.encodings.stick_breaking import StickBreaking

SHAPE = Shape(d_model=6, n_heads=2, d_head=3, n_layers=1, train_len=10)
D = torch.float64


def at(*pos):
    return Pass(pos=torch.tensor([pos]), prepared=True)


def masked(*size):
    hidden = torch.ones(size[-2:]).triu(1 + size[-1] - size[-2]).bool()
    return torch.randn(size, dtype=D).mul(3).masked_fill(hidden, -torch.inf)


@pytest.mark.parametrize("rest", ["dropped", "itself"])
def test_it_is_the_attention_of_fla(oracles, rest):
    case = oracles["stick_breaking"]
    q, k, v, out, rest_of = (torch.tensor(case[n], dtype=D) for n in ("q", "k", "v", "out", "rest"))
    want = out + rest_of[..., None] * v * (rest == "itself")
    got = attend(StickBreaking(SHAPE, rest=rest), q, k, v, at(*range(5)))
    torch.testing.assert_close(got, want, atol=1e-12, rtol=0)


@given(t=st.integers(1, 6), cached=st.integers(0, 3), seed=st.integers(0, 99))
def test_weights_are_the_products_and_sum_to_at_most_1(t, cached, seed):
    torch.manual_seed(seed)
    logits = masked(1, 1, t, t + cached)
    a = StickBreaking(SHAPE).weights(logits, at(*range(t + cached)))
    for i in range(t):
        for j in range(t + cached):
            shares = [1 / (1 + math.exp(-z)) for z in logits[0, 0, i, j : cached + i].tolist()]
            want = shares[0] * math.prod(1 - s for s in shares[1:]) if shares else 0
            assert a[0, 0, i, j].item() == pytest.approx(want, abs=1e-12)
    assert (a.sum(-1) <= 1 + 1e-12).all()
    full = StickBreaking(SHAPE, rest="itself").weights(logits, at(*range(t + cached))).sum(-1)
    torch.testing.assert_close(full, torch.ones_like(full))


def test_it_is_geometric_without_its_term():
    geometric = Geometric(SHAPE).double()
    with torch.no_grad():
        geometric.w.zero_()
    q, k, v = torch.randn(3, 2, 2, 7, 3, dtype=D)
    ctx = at(-1, 0, 1, -1, 2, 0, 1)
    outs = (attend(one, q, k, v, ctx) for one in (StickBreaking(SHAPE), geometric))
    got, want = (out[:, :, ctx.key_mask[0]] for out in outs)
    torch.testing.assert_close(got, want, atol=1e-12, rtol=0)


def test_long_sticks_keep_their_digits():
    """A key 3,000 back behind keys that take 1 % each, in float32: 0.01 * 0.99^2999."""
    logits = torch.full((1, 1, 1, 3001), math.log(0.01 / 0.99))
    a = StickBreaking(SHAPE).weights(logits, at(*range(3001)))
    want = math.log(0.01) + 2999 * math.log(0.99)
    assert a[0, 0, 0, 0].log().item() == pytest.approx(want, abs=1e-2)
