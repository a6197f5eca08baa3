import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import layer_norm

from pezoo import Context, Memo, Shape, attention, make
from pezoo.encodings.wall import faded

D = torch.float64
SHAPE = Shape(d_model=8, n_heads=2, d_head=4, n_layers=2, train_len=8)
POS = torch.tensor([[-1, -1, 0, 1, 4, 5, 0, 1, 2]])  # left padding, then two documents


def made(text="wall(start=1)"):
    encoding = make(text, SHAPE).double()
    for one in encoding.parameters():
        torch.nn.init.normal_(one)
    return encoding.requires_grad_(False)


@pytest.mark.parametrize("steps", [[9], [1] * 9, [4, 1, 4]])
def test_it_is_the_product_with_gates_per_component(steps):
    encoding, x = made(), torch.randn(1, 9, 8, dtype=D)
    q, k = torch.randn(1, 2, 9, 4, dtype=D), torch.randn(1, 1, 9, 4, dtype=D)
    raw = layer_norm(x, (8,))[0] @ encoding.w[1].mT + encoding.b[1]
    gates = [[1 / (1 + math.exp(-one)) for one in row] for row in raw.tolist()]
    memo, end = Memo(), 0
    for step in steps:
        start, end = end, end + step
        ctx = encoding.prepare(Context(POS[:, :end], x=x[:, start:end], n_new=step, memo=memo))
        got = encoding.scores(q[:, :, start:end], k[:, :, :end], ctx.at(1, x[:, start:end]))
        for i in range(max(start, 2), end):
            for j in range(6 if i > 5 else 2, i + 1):
                for h in range(2):
                    want = sum(
                        q[0, h, i, n] * k[0, 0, j, n]
                        * math.prod(gates[between][4 * h + n] for between in range(j + 1, i + 1))
                        for n in range(4)
                    ) / 2  # fmt: skip
                    assert got[0, h, i - start, j].item() == pytest.approx(float(want), abs=1e-12)


@settings(max_examples=15)
@given(st.integers(1, 20), st.integers(1, 20), st.integers(0, 1000))
def test_halves_of_any_size_give_the_prefix_sums_of_fla(s, t, seed):
    """As naive_wall_attn: cumulative sums of log2 gates, and exp2 of their differences."""
    generator, t = torch.Generator().manual_seed(seed), min(s, t)
    q = torch.randn(2, t, 3, generator=generator, dtype=D)
    k = torch.randn(2, s, 3, generator=generator, dtype=D)
    gates = -torch.rand(2, s, 3, generator=generator, dtype=D)
    p = gates.cumsum(1) / math.log(2)
    factors = torch.exp2(p[:, s - t :, None] - p[:, None])
    want = torch.einsum("bin,bjn,bijn->bij", q, k, factors).tril(s - t)
    torch.testing.assert_close(faded(q, k, gates), want, atol=1e-12, rtol=0)


def test_strong_gates_over_4096_tokens_stay_exact_in_float32():
    """The sums reach -40,000, whose neighbours in float32 are .004 apart."""
    q, k = torch.randn(2, 4096, 2)
    gates = -20 * torch.rand(4096, 2)
    gates[::3] = -1e-4
    got, at = faded(q, k, gates), torch.arange(4096)
    wide = faded(q[-9:].double(), k.double(), gates.double())
    torch.testing.assert_close(got[-9:].double(), wide, atol=1e-6, rtol=1e-5)
    near = (q[1:] * k[:-1] * gates[1:].exp()).sum(-1)
    torch.testing.assert_close(got[at[1:], at[:-1]], near, atol=1e-6, rtol=1e-5)
    assert got.isfinite().all()


def test_with_open_components_it_is_nope_and_with_a_scalar_gate_fox():
    x, (q, k, v) = torch.randn(1, 9, 8, dtype=D), torch.randn(3, 1, 2, 9, 4, dtype=D)
    wall, fox = made("wall(scalar=true)"), make("fox", SHAPE).double()
    for other, encoding in ((fox, wall), (make("nope", SHAPE), made("wall"))):
        encoding.w.zero_()
        encoding.b.fill_(1000)
        if encoding.fox is not None:
            other.load_state_dict(encoding.fox.state_dict())
        got, want = (attention(q, k, v, one, POS, x) for one in (encoding, other))
        torch.testing.assert_close(got, want, atol=1e-12, rtol=0)


def test_equal_gates_within_a_head_multiply_logits_and_are_not_fox():
    q, k = torch.randn(2, 6, 3, dtype=D)
    c = torch.arange(6)[:, None] - torch.arange(6)
    got = faded(q, k, torch.full((6, 3), -math.log(2), dtype=D))
    torch.testing.assert_close(got, (q @ k.mT * 0.5**c).tril())


@pytest.mark.parametrize("t", [7, 2])
def test_gradients_pass_through_halves(t):
    q, k, g = (torch.randn(n, 2, dtype=D, requires_grad=True) for n in (t, 7, 7))
    assert torch.autograd.gradcheck(lambda q, k, g: faded(q, k, -g.square()), (q, k, g))


def test_gates_start_almost_open():
    encoding, x = make("wall", SHAPE.replaced(d_model=512)), torch.randn(1, 5, 512)
    gates = encoding.log_gates(encoding.prepare(Context(torch.arange(5)[None], x=x)).at(0, x))
    torch.testing.assert_close(gates.exp(), torch.full_like(gates, 0.99966), atol=1e-3, rtol=0)
    assert encoding.w.std().item() == pytest.approx(0.02, rel=0.05)  # initializer_range of fla
