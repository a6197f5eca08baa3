import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import layer_norm
from x_transformers.x_transformers import DataDependentAlibi

import pezoo
from pezoo.adapters import attend
from pezoo.base import Columns, Context, Memo, Pass, Shape
from pezoo.encodings.alibi import slopes
from pezoo.encodings.fox import FoX

SHAPE = Shape(d_model=8, n_heads=2, d_head=4, n_layers=2, train_len=10)
D = torch.float64


def made(noise=1.0, **options):
    encoding = FoX(SHAPE, **options).double()
    with torch.no_grad():
        encoding.w.add_(noise * torch.randn_like(encoding.w))
        encoding.b.add_(noise * torch.randn_like(encoding.b))
    return encoding


def at(x, layer=1, **fields):
    return Pass(pos=torch.arange(x.shape[1])[None], x=x, layer=layer, prepared=True, **fields)


def test_it_is_the_bias_of_x_transformers():
    encoding, x = made(), torch.randn(3, 9, 8, dtype=D)
    theirs = DataDependentAlibi(8, 2).double()
    linear = theirs.to_forget_gates[0]
    with torch.no_grad():
        linear.weight.copy_(encoding.w[1])
        linear.bias.copy_(encoding.b[1])
    want = theirs(layer_norm(x, (8,)))
    torch.testing.assert_close(encoding.bias(x, x, at(x)), want, atol=1e-12, rtol=0)


@given(s=st.integers(1, 9), cached=st.integers(0, 8), seed=st.integers(0, 99))
@settings(max_examples=20)
def test_the_bias_sums_log_gates_and_skips_padding(s, cached, seed):
    torch.manual_seed(seed)
    encoding, x = made(), torch.randn(1, s, 8, dtype=D)
    pos = torch.where(torch.rand(1, s) < 0.2, -1, torch.arange(s))
    memo, cached = Memo(), min(cached, s - 1)
    for start, end in ((0, cached), (cached, s))[not cached :]:
        new = {"pos": pos[:, :end], "x": x[:, start:end], "n_new": end - start}
        got = encoding.bias(x, x, Context(layer=1, memo=memo, **new))
    for h in range(2):
        y = layer_norm(x[0], (8,)) @ encoding.w[1, h] + encoding.b[1, h]
        gates = [
            1.0 if p < 0 else 1 / (1 + math.exp(-v))
            for p, v in zip(pos[0], y.tolist(), strict=True)
        ]
        for i in range(cached, s):
            for j in range(i + 1):
                want = math.log(math.prod(gates[j + 1 : i + 1]))
                assert got[0, h, i - cached, j].item() == pytest.approx(want, abs=1e-11)


def test_constant_gates_are_alibi():
    encoding, alibi = made(noise=0), pezoo.ALiBi(SHAPE)
    with torch.no_grad():
        encoding.w.zero_()
        encoding.b.copy_(torch.logit(torch.exp(-slopes(2).double())))
    x, q, k, v = torch.randn(2, 7, 8, dtype=D), *torch.randn(3, 2, 2, 7, 4, dtype=D)
    ctx = at(x)
    got, want = (e.bias(q, k, ctx).double().expand(2, -1, -1, -1) for e in (encoding, alibi))
    torch.testing.assert_close(got.tril(), want.tril(), atol=1e-12, rtol=0)
    torch.testing.assert_close(attend(encoding, q, k, v, ctx), attend(alibi, q, k, v, ctx))


@pytest.mark.parametrize(("dtype", "atol"), [(D, 1e-12), (torch.bfloat16, 1e-2)])
def test_columns_are_the_bias_where_one_number_would_round_it(dtype, atol):
    """Gates of 1/2 over 400 tokens: in bfloat16, -277 has no neighbours nearer than 1."""
    encoding, x = made(noise=0.1), torch.randn(1, 400, 8, dtype=D)
    q, k = torch.randn(2, 1, 2, 400, 4, dtype=D).to(dtype)
    form = encoding.bias_form(q, k, at(x), Columns)
    got = form.q.double() @ form.k.double().mT / 2
    want = q.double() @ k.double().mT / 2 + encoding.bias(q, k, at(x))
    assert form.q.dtype == dtype
    torch.testing.assert_close(got, want, atol=atol, rtol=0)
    assert encoding.bias_form(q.half(), k.half(), at(x), Columns) is None


@pytest.mark.parametrize("backend", ["sdpa", "eager"])
def test_autocast_does_not_round_the_sums(backend):
    """Columns for float32, which autocast rounds, were off by 1.4 at 600 tokens."""
    encoding, x = made(noise=0.1), torch.randn(1, 600, 8)
    q, k, v = torch.randn(3, 1, 2, 600, 4)
    want = attend(encoding, q.double(), k.double(), v.double(), at(x.double()))
    with torch.autocast("cpu", torch.bfloat16):
        got = attend(encoding.float(), q, k, v, at(x), backend=backend)
        double = attend(encoding.double(), q.double(), k.double(), v.double(), at(x.double()))
    assert got.dtype == torch.bfloat16
    torch.testing.assert_close(got.double(), want, atol=0.03, rtol=0)
    torch.testing.assert_close(double, want)  # autocast leaves float64


def test_gates_start_at_one_half_or_where_told():
    for options, gate in (({}, 0.5), ({"start": 5.0}, 0.9933)):
        x = torch.randn(1, 20, 8)
        gates = FoX(SHAPE, **options).log_gates(at(x)).exp()
        torch.testing.assert_close(gates, torch.full_like(gates, gate), atol=0.1, rtol=0)
