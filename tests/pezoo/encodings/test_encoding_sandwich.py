import math

import numpy as np
import pytest
import torch

from pezoo import Context, Shape, make
from pezoo.adapters import attend

SHAPE = Shape(d_model=48, n_heads=12, d_head=4, n_layers=1, train_len=12)


def bias(text, pos, heads=12):
    q = torch.zeros(1, heads, pos.shape[1], 4)
    return make(text, SHAPE.replaced(n_heads=heads)).bias(q, q, Context(pos))


def listing(heads, length, width, base):
    """Products of sinusoidal embeddings, each head compressed more."""
    positions, i = np.arange(length)[:, None], np.arange(width // 2)
    angles = positions / base ** (2 * i / width)
    table = np.concatenate([np.sin(angles), np.cos(angles)], axis=-1)
    ratio = np.arange(1, heads + 1) * 8 / heads
    return (table @ table.T)[None] / ratio[:, None, None]


@pytest.mark.parametrize("heads", [1, 3, 12])
@pytest.mark.parametrize(("width", "base"), [(128, 1e4), (16, 100.0)])
def test_it_is_a_product_of_embeddings(heads, width, base):
    got = bias(f"sandwich(width={width},base={base})", torch.arange(40)[None], heads)
    want = torch.tensor(listing(heads, 40, width, base))
    own = want.diagonal(0, 1, 2)[..., None]  # width H / (16h), which softmax does not see
    torch.testing.assert_close(got[0], (want - own).float(), atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(got[0].double().softmax(-1), want.softmax(-1), atol=1e-6, rtol=1e-5)


def test_half_precision_does_not_round_a_large_constant():
    """Each bias was 96 larger, which bfloat16 rounds to a multiple of 1/2."""
    encoding, ctx = make("sandwich", SHAPE), Context(torch.arange(300)[None])
    q, k, v = torch.randn(3, 1, 12, 300, 4, generator=torch.Generator().manual_seed(0)).bfloat16()
    ctx = encoding.prepare(ctx)
    want = attend(encoding, q.double(), k.double(), v.double(), ctx)
    torch.testing.assert_close(attend(encoding, q, k, v, ctx).double(), want, atol=0.02, rtol=0)


def test_its_closed_form_at_any_positions():
    pos = torch.tensor([[0, 1, 5, 600], [-1, 7, 9, 10]])
    got = bias("sandwich", pos, 2)
    for b in range(2):
        for i in range(4):
            for j in range(4):
                d = abs(int(pos[b, i]) - int(pos[b, j]))
                total = sum(math.cos(d / 10_000 ** (m / 64)) - 1 for m in range(64))
                for h in range(2):
                    want = total * 2 / (8 * (h + 1))
                    assert got[b, h, i, j].item() == pytest.approx(want, abs=1e-4)


def test_one_wave_is_a_cosine_and_the_token_itself_has_the_most():
    pos = torch.arange(9)[None]
    one = bias("sandwich(width=2)", pos, 8)
    torch.testing.assert_close(one[0, 0], (pos.mT - pos).float().cos() - 1)
    torch.testing.assert_close(one[0, 1], one[0, 0] / 2)
    full = bias("sandwich", pos, 4)[0]
    assert not full.diagonal(0, -2, -1).any()
    assert (full.argmax(-1) == torch.arange(9)).all()
