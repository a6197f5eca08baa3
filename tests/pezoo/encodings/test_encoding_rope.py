import cmath

import pytest
import torch

from pezoo.base import Context, Shape
from pezoo.encodings.rope import RoPE

SHAPE = Shape(d_model=16, n_heads=2, d_head=8, n_layers=1, train_len=10)


def rotated(encoding, q, k, pos):
    return encoding.transform(q, k, encoding.prepare(Context(pos=pos)))


@pytest.mark.parametrize("layout", ["interleaved", "half"])
@pytest.mark.parametrize("base", [10_000.0, 100.0])
def test_it_is_the_formula(layout, base):
    encoding = RoPE(SHAPE, layout=layout, base=base)
    q, k = torch.randn(2, 2, 2, 4, 8).unbind(0)
    pos = torch.tensor([[0, 1, 2, 3], [-1, 7, 100, 101]])
    got = rotated(encoding, q, k, pos)
    for x, y in zip((q, k), got, strict=True):
        for b in range(2):
            for t in range(4):
                for m in range(4):
                    re, im = (m, m + 4) if layout == "half" else (2 * m, 2 * m + 1)
                    turn = cmath.exp(1j * int(pos[b, t]) * base ** (-2 * m / 8))
                    for h in range(2):
                        want = complex(x[b, h, t, re], x[b, h, t, im]) * turn
                        have = complex(y[b, h, t, re], y[b, h, t, im])
                        assert have == pytest.approx(want, abs=5e-5)


def test_reference_plain_and_sampled(reference, qk):
    encoding, want = RoPE(Shape(8, 2, 4, 1, 10)), reference["rope"]
    for kind, pos in [("plain", torch.arange(7)), ("sampled", reference["inputs"]["positions"])]:
        q, k = rotated(encoding, *(x.float() for x in qk), pos[None])
        for x, name in ((q, "q"), (k, "k")):
            torch.testing.assert_close(x.transpose(1, 2), want[f"{kind}_{name}"], atol=1e-3, rtol=0)
        torch.testing.assert_close(q @ k.mT, want[f"{kind}_logits_unscaled"], atol=1e-3, rtol=1e-5)


def test_rotary_embedding_torch():
    package = pytest.importorskip("rotary_embedding_torch")
    q, k = torch.randn(2, 1, 2, 9, 8).unbind(0)
    got = rotated(RoPE(SHAPE), q, k, torch.arange(9)[None])
    rotary = package.RotaryEmbedding(dim=8)
    for x, y in zip((q, k), got, strict=True):
        torch.testing.assert_close(y, rotary.rotate_queries_or_keys(x).detach())


def test_any_layout_in_memory():
    x = torch.randn(2, 2, 5, 8)
    pos = torch.arange(5)[None]
    want = rotated(RoPE(SHAPE), x, x, pos)[0]
    wide = torch.zeros(2, 2, 5, 9)
    wide[..., :8] = x
    shifted = torch.zeros(x.numel() + 1)[1:].view_as(x).copy_(x)
    for y in (wide[..., :8], shifted, x.mT.contiguous().mT):
        assert torch.equal(rotated(RoPE(SHAPE), y, y, pos)[1], want)


def test_the_layouts_differ_by_a_permutation():
    q, k = torch.randn(2, 1, 2, 5, 8).unbind(0)
    pos, order = torch.arange(5)[None], [0, 2, 4, 6, 1, 3, 5, 7]
    interleaved = rotated(RoPE(SHAPE), q, k, pos)
    half = rotated(RoPE(SHAPE, layout="half"), q[..., order], k[..., order], pos)
    for a, b in zip(interleaved, half, strict=True):
        torch.testing.assert_close(a[..., order], b)
