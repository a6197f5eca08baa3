import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import layer_norm

import pezoo
from pezoo import Shape
from pezoo.base import Context, Memo, Pass
from pezoo.encodings.alibi import slopes

SHAPE = Shape(d_model=8, n_heads=2, d_head=4, n_layers=2, train_len=10)
D = torch.float64


def made(options="", noise=1.0):
    encoding = pezoo.make(f"cable{options}", SHAPE).double()
    with torch.no_grad():
        for p in encoding.parameters():
            p.add_(noise * torch.randn_like(p))
    return encoding


def naive(encoding, x, pos, h, i, j):
    """b_ij in plain numbers: Equations 2 to 7, with the minus of the text."""
    rows = (layer_norm(x, (8,)) @ encoding.w[1].T + encoding.a[1]).tolist()
    steps = sum(max(rows[n][h], 0.0) for n in range(j + 1, i + 1) if pos[n] >= 0)
    weight = math.log1p(math.exp(rows[i][2 + h])) if len(rows[i]) == 4 else 1.0
    b = -weight * steps
    return -math.log(b * b + 1) if encoding.kernel == "log" else b


@pytest.mark.parametrize("options", ["", "(weighted=false)", "(kernel=log)"])
@given(s=st.integers(1, 9), cached=st.integers(0, 8), seed=st.integers(0, 99))
@settings(max_examples=12)
def test_it_is_the_formula_with_padding_and_a_cache(options, s, cached, seed):
    torch.manual_seed(seed)
    encoding, x = made(options), torch.randn(1, s, 8, dtype=D)
    pos = torch.where(torch.rand(1, s) < 0.2, -1, torch.arange(s))
    memo, cached = Memo(), min(cached, s - 1)
    for start, end in ((0, cached), (cached, s))[not cached :]:
        new = {"pos": pos[:, :end], "x": x[:, start:end], "n_new": end - start}
        got = encoding.bias(x, x, Context(layer=1, memo=memo, **new))
    for h in range(2):
        for i in range(cached, s):
            for j in range(i + 1):
                want = naive(encoding, x[0], pos[0], h, i, j)
                assert got[0, h, i - cached, j].item() == pytest.approx(want, abs=1e-10)


def test_steps_of_1_and_weights_of_alibis_slopes_are_alibi():
    encoding, alibi = made(noise=0), pezoo.ALiBi(SHAPE)
    with torch.no_grad():
        encoding.w.zero_()
        encoding.a[:, :2] = 1
        encoding.a[:, 2:] = slopes(2).double().expm1().log()
    x, ctx = torch.randn(2, 7, 8, dtype=D), Pass(torch.arange(7)[None], prepared=True)
    got = encoding.bias(x, x, Pass(ctx.pos, x=x, layer=1, prepared=True))
    want = alibi.bias(x, x, ctx).double().expand_as(got)
    torch.testing.assert_close(got.tril(), want.tril(), atol=1e-6, rtol=0)


def test_it_is_not_fox_which_has_softplus_steps_of_one_weight():
    """The code of the paper's first version, -softplus(y): fox with the signs of y turned."""
    encoding, fox = made("(weighted=false)"), pezoo.make("fox", SHAPE).double()
    with torch.no_grad():
        fox.w.copy_(-encoding.w)
        fox.b.copy_(-encoding.a)
    x = 30 * torch.eye(8, dtype=D)[None]
    ctx = Pass(torch.arange(8)[None], x=x, layer=1, prepared=True)
    got, first = encoding.bias(x, x, ctx).tril(), fox.bias(x, x, ctx).tril()
    assert (first <= got).all()  # softplus is above relu, by log 2 at most
    assert 0.1 < (got - first).max() < 7 * math.log(2)
