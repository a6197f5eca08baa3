import cmath

import pytest
import torch

from pezoo import Context, Memo, Shape, make

D = torch.float64
SHAPE = Shape(d_model=16, n_heads=4, d_head=4, n_layers=2, train_len=8)
POS = torch.tensor([[-1, -1, 0, 1, 4, 5, 0, 1, 2]])  # left padding, then two documents
TEXT = "rope_pp(base=100)"


def logits(text, q, k, pos, steps, shape=SHAPE):
    """As a model decodes, with a cache of keys."""
    encoding, memo, kept, found = make(text, shape), Memo(), [], []
    for start, end in steps:
        ctx = encoding.prepare(Context(pos[:, :end], n_new=end - start, memo=memo)).at(1, None)
        new, keys = encoding.transform(q[:, :, start:end], k[:, :, start:end], ctx)
        kept.append(keys.repeat_interleave(q.shape[1] // keys.shape[1], 1))
        found.append(torch.nn.functional.pad(new @ torch.cat(kept, 2).mT / 2, (0, 9 - end)))
    return torch.cat(found, 2)


@pytest.mark.parametrize("groups", [4, 2, 1])
@pytest.mark.parametrize("steps", [[(0, 9)], [(n, n + 1) for n in range(9)]])
def test_pairs_of_heads_have_both_parts_of_a_complex_product(steps, groups):
    q, k = torch.randn(1, 4, 9, 4, dtype=D), torch.randn(1, groups, 9, 4, dtype=D)
    got = logits(TEXT, q, k, POS, steps)
    for h in range(4):
        n, key = h // 2 * 2, k[0, h // 2 * 2 * groups // 4]
        for i in range(2, 9):
            for j in range(6 if i > 5 else 2, i + 1):
                d, total = int(POS[0, i] - POS[0, j]), 0j
                for m, w in enumerate((1, 0.1)):  # halves, as rotate_half of the authors
                    a = complex(q[0, n, i, m], q[0, n, i, m + 2])
                    b = complex(key[j, m], key[j, m + 2])
                    total += a.conjugate() * b * cmath.exp(-1j * w * d)
                want = -total.imag if h % 2 else total.real  # the paper's Re and -Im
                assert got[0, h, i, j].item() == pytest.approx(want / 2, abs=1e-5)


@pytest.mark.parametrize("heads", [4, 3, 1])
def test_it_is_the_authors_code_and_its_real_half_is_rope(heads):
    shape = SHAPE.replaced(n_heads=heads)
    q, k = torch.randn(2, 1, heads, 9, 4, dtype=D)
    pairs = q[:, ::2], k[:, ::2]
    rope = "rope(base=100,layout=half)"
    got = logits(TEXT, q, k, POS, [(0, 9)], shape)
    real = logits(rope, *pairs, POS, [(0, 9)], SHAPE)
    torch.testing.assert_close(got[:, ::2], real, atol=1e-12, rtol=0)
    if heads == 1:
        return
    angle = POS[0, :, None] * torch.tensor([1, 0.1, 1, 0.1], dtype=D)
    cos, sin = angle.cos(), angle.sin()

    def half(x):
        return torch.cat([-x[..., 2:], x[..., :2]], -1)

    first, keys = (x[:, : heads // 2] for x in pairs)
    imaginary = first * sin - half(first) * cos  # q_imag of apply_rotary_pos_emb
    want = imaginary @ (keys * cos + half(keys) * sin).mT / 2
    torch.testing.assert_close(got[:, 1::2], want, atol=1e-6, rtol=0)
    turned = torch.cat([first[..., 2:], -first[..., :2]], -1)  # by -pi/2: what W_q can learn
    again = logits(rope, turned, keys, POS, [(0, 9)], SHAPE)
    torch.testing.assert_close(got[:, 1::2], again, atol=1e-12, rtol=0)


def test_the_imaginary_head_is_the_larger_one_far_away():
    pos = torch.cat([torch.arange(2000), torch.arange(5990, 6001)])[None]
    ones = torch.cat([torch.ones(1, 2, 2011, 32), torch.zeros(1, 2, 2011, 32)], -1)
    encoding = make("rope_pp", SHAPE.replaced(n_heads=2, d_head=64))
    q, k = encoding.transform(ones, ones, encoding.prepare(Context(pos)).at(0, None))
    real, imaginary = (q[:, :, -1:] @ k.mT)[0, :, 0]
    assert imaginary[-1].abs() < 1e-4
    assert (real[2000:] > imaginary[2000:]).all()
    assert imaginary[:2000].mean() > 2 * real[:2000].mean()
