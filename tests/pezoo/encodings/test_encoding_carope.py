import cmath
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import layer_norm

from pezoo import Shape, attention, make
from pezoo.base import Context, Memo

SHAPE = Shape(d_model=8, n_heads=2, d_head=6, n_layers=2, train_len=10)
D = torch.float64


def made(noise=1.0, text="carope"):
    encoding = make(text, SHAPE).double()
    with torch.no_grad():
        encoding.w.add_(noise * torch.randn_like(encoding.w))
        encoding.c.add_(noise * torch.randn_like(encoding.c))
    return encoding


def naive(encoding, x, q, pos):
    """The queries of a head 1 in layer 1, turned by plain sums of powers."""
    turned, phase = [], [0.0, 0.0, 0.0]
    for vector, p, row in zip(layer_norm(x, (8,)), pos, q, strict=True):
        y = (vector @ encoding.w[1, 1] + encoding.c[1, 1]).item()
        f = 1 / (math.log1p(math.exp(y)) + 1)
        phase = [a + f**m * (p >= 0) for m, a in enumerate(phase)]
        pairs = torch.view_as_complex(row.view(3, 2))
        pairs = [complex(z) * cmath.exp(1j * a) for z, a in zip(pairs, phase, strict=True)]
        turned.append([part for z in pairs for part in (z.real, z.imag)])
    return torch.tensor(turned, dtype=D)


@given(s=st.integers(1, 9), cached=st.integers(0, 8), seed=st.integers(0, 99))
@settings(max_examples=15)
def test_it_is_the_formula_with_padding_and_a_cache(s, cached, seed):
    torch.manual_seed(seed)
    encoding, x, q = made(), torch.randn(1, s, 8, dtype=D), torch.randn(1, 2, s, 6, dtype=D)
    pos = torch.where(torch.rand(1, s) < 0.2, -1, torch.arange(s))
    memo, cached = Memo(), min(cached, s - 1)
    for start, end in ((0, cached), (cached, s))[not cached :]:
        new = {"pos": pos[:, :end], "x": x[:, start:end], "n_new": end - start}
        part = q[:, :, start:end]
        got = encoding.transform(part, part, Context(layer=1, memo=memo, **new))
    want = naive(encoding, x[0], q[0, 1], pos[0].tolist())[cached:]
    for one in got:
        torch.testing.assert_close(one[0, 1], want, atol=1e-10, rtol=0)


@pytest.mark.parametrize("options", ["", "(base=500000.0)", "(layout=half)"])
def test_it_starts_as_rope(options):
    encoding, rope = made(0, f"carope{options}"), make(f"rope{options}", SHAPE)
    x, (q, k, v) = torch.randn(1, 40, 8), torch.randn(3, 1, 2, 40, 6, dtype=D)
    pos = torch.arange(40)[None]
    got, want = (attention(q, k, v, one, pos, x.double()) for one in (encoding, rope))
    torch.testing.assert_close(got, want, atol=1e-5, rtol=0)


def test_a_head_of_one_pair_turns_by_the_number_of_tokens():
    """f^0 = 1, whatever f; and the start of a base of 10,000^(-1) overflows nothing."""
    encoding = make("carope", SHAPE.replaced(d_head=2)).double()
    assert encoding.c.isfinite().all()
    torch.nn.init.normal_(encoding.w)
    phases = encoding.phases(Context(torch.arange(5)[None], x=torch.randn(1, 5, 8), layer=1))
    assert phases[..., 0].tolist() == [[[1, 2, 3, 4, 5]] * 2]
