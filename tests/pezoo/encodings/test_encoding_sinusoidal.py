import math

import pytest
import torch

from pezoo.base import Context, Pass, Shape
from pezoo.encodings.sinusoidal import ShiftedSinusoidal, Sinusoidal
from pezoo.functional import sinusoid

SHAPE = Shape(d_model=8, n_heads=2, d_head=4, n_layers=1, train_len=10)


def embed(encoding, pos, x=None, **fields):
    x = torch.zeros(len(pos), pos.shape[1], encoding.shape.d_model) if x is None else x
    ctx = encoding.prepare(Pass(pos=pos, x=x, **fields))
    return encoding.embed(x, ctx)


@pytest.mark.parametrize("base", [10_000.0, 500.0])
def test_it_is_the_formula(base):
    encoding = Sinusoidal(SHAPE, base=base)
    pos = torch.tensor([[0, 1, 2, 19, 400]])
    out = embed(encoding, pos, torch.ones(1, 5, 8))
    for t, p in enumerate(pos[0].tolist()):
        for m in range(4):
            angle = p * base ** (-2 * m / 8)
            assert out[0, t, m].item() == pytest.approx(1 + math.sin(angle), abs=3e-5)
            assert out[0, t, m + 4].item() == pytest.approx(1 + math.cos(angle), abs=3e-5)


def test_reference_plain_and_sampled(reference):
    want, inputs = reference["sin_cos"], reference["inputs"]
    encoding = Sinusoidal(SHAPE)
    plain = embed(encoding, torch.arange(7)[None])[0]
    sampled = embed(encoding, inputs["positions"][None])[0]
    torch.testing.assert_close(plain, want["plain"], atol=2e-4, rtol=0)
    torch.testing.assert_close(sampled, want["sampled"], atol=2e-4, rtol=0)


def test_reference_negative_side(reference):
    rows = sinusoid(torch.arange(-7, 7), 8)
    want = reference["sin_cos"]["negative_side_plain_2T"]
    torch.testing.assert_close(rows, want, atol=2e-4, rtol=0)


def drawn(encoding, pos, seed):
    return encoding.draw(Context(pos=pos), generator=torch.Generator().manual_seed(seed))


def test_shift_is_drawn_in_training_only():
    encoding, pos = ShiftedSinusoidal(SHAPE, span=50), torch.arange(6)[None]
    plain = embed(Sinusoidal(SHAPE), pos)
    assert torch.equal(embed(encoding.eval(), pos), plain)
    assert not torch.equal(embed(encoding.train(), pos, drawn=drawn(encoding, pos, 0)), plain)


def test_shift_longer_than_the_span_is_zero():
    encoding, pos = ShiftedSinusoidal(SHAPE, span=4).train(), torch.arange(6)[None]
    assert torch.equal(encoding.prepare(Context(pos=pos)).pos, pos)
