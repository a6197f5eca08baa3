import math

import pytest
import torch
from x_transformers.x_transformers import RotaryEmbedding, apply_rotary_pos_emb

from pezoo import Context, PositionError, Shape, attention, make

D = torch.float64
SHAPE = Shape(d_model=16, n_heads=2, d_head=8, n_layers=1, train_len=12)


def logits(text, pos, q, k):
    encoding = make(text, SHAPE)
    q, k = encoding.transform(q, k, encoding.prepare(Context(pos)).at(0, None))
    return q @ k.mT


def qk(n):
    return torch.randn(2, 1, 2, n, 8, dtype=D, generator=torch.Generator().manual_seed(0))


def test_it_is_the_formula():
    pos, (q, k) = torch.tensor([[0, 3, 4, 70, 1000]]), qk(5)
    got = logits("xpos(gamma=0.5,scale_base=100)", pos, q, k)
    for h in range(2):
        for i in range(5):
            for j in range(i + 1):
                d, want = int(pos[0, i] - pos[0, j]), 0.0
                for m in range(4):
                    a, b = (complex(*y[0, h, n, 2 * m : 2 * m + 2]) for y, n in ((q, i), (k, j)))
                    turn = complex(math.cos(d * 10**-m), math.sin(d * 10**-m))
                    fade = ((m / 4 + 0.5) / 1.5) ** (d / 100)
                    want += fade * (a * turn * b.conjugate()).real
                assert got[0, h, i, j].item() == pytest.approx(want, abs=2e-4 if d > 99 else 2e-5)


@pytest.mark.parametrize("n", [2, 13, 64])
def test_it_is_that_of_x_transformers_wherever_that_puts_its_centre(n):
    q, k = qk(n)
    freqs, scale = RotaryEmbedding(8, use_xpos=True)(torch.arange(n))
    turned = apply_rotary_pos_emb(q, freqs, scale), apply_rotary_pos_emb(k, freqs, scale**-1)
    want = turned[0] @ turned[1].mT
    torch.testing.assert_close(logits("xpos", torch.arange(n)[None], q, k), want, atol=2e-5, rtol=0)


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_without_fading_it_is_rope(layout):
    pos, (q, k) = torch.tensor([[0, 5, 900, 30_000]]), qk(4)
    options = f"layout={layout},base=500"
    assert torch.equal(
        logits(f"xpos({options},scale_base=1e30)", pos, q, k), logits(f"rope({options})", pos, q, k)
    )


def test_the_last_position_is_finite_and_the_next_refused():
    last = make("xpos", SHAPE).max_len - 1
    assert last == 32_695
    pos = torch.tensor([[last - 1, last]])
    q, k = (5 * y for y in qk(2))
    for dtype in (torch.float32, torch.bfloat16):
        far, near = (logits("xpos", p, q, k).to(dtype) for p in (pos, pos - pos[:, :1]))
        assert far.isfinite().all()
        torch.testing.assert_close(far, near, atol=0.2, rtol=0.01)
    with pytest.raises(PositionError):
        make("xpos", SHAPE).prepare(Context(pos + 1))


@pytest.mark.parametrize("autocast", [False, True])
def test_in_float16_the_last_position_is_finite_and_the_next_refused(autocast):
    encoding = make("xpos", SHAPE)
    pos = torch.arange(3_669, 3_679)[None]
    q, k = (2 * y.float() for y in qk(10))
    v = torch.randn_like(q)
    x = torch.zeros(1, 10, SHAPE.d_model)
    if not autocast:
        q, k, v, x = (y.half() for y in (q, k, v, x))
    with torch.autocast("cpu", torch.float16, enabled=autocast):
        for given in (None, x):
            got = attention(q, k, v, encoding, pos, given)
            near = attention(q, k, v, encoding, pos - pos[:, :1], given)
            torch.testing.assert_close(got.float(), near.float(), atol=0.02, rtol=0)
            with pytest.raises(PositionError, match=r"float16 represents positions 0\.\.3678"):
                attention(q, k, v, encoding, pos + 1, given)
