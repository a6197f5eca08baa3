from dataclasses import replace

import pytest
import torch

from pezoo.base import Context, Shape
from pezoo.encodings.ideal import Ideal, IdealScaleHint

SHAPE = Shape(d_model=8, n_heads=2, d_head=4, n_layers=2, train_len=10)
W_KEY = torch.randn(8, 8, generator=torch.Generator().manual_seed(0))


def mirrored(i, j, n):
    """Of a reversal of n tokens, 3 of them without a hint."""
    n = 3 if n is None else n
    return 2 * ((i >= n) & (i < 2 * n) & (i + j == 2 * n - 1)).long() + (j == i)


@pytest.mark.parametrize("scale", [None, torch.tensor([3]), torch.tensor([3, 2])])
def test_it_is_the_formula(scale):
    encoding = (Ideal if scale is None else IdealScaleHint)(SHAPE, values=4)
    h = torch.randn(2, 7, 8)
    q, k = torch.randn(2, 2, 7, 4), (h @ W_KEY.mT).unflatten(2, (2, 4)).transpose(1, 2)
    given = Context(pos=torch.arange(7)[None], scale=scale, n_new=4, task_prf=mirrored)
    ctx = encoding.prepare(given).at(1, torch.zeros(2, 4, 8), W_KEY)
    got = q[:, :, 3:] @ k.mT / 2 + encoding.bias(q[:, :, 3:], k, ctx)
    for b in range(2):
        n = None if scale is None else int(scale.expand(2)[b])
        for i in range(3, 7):
            for j in range(7):
                value = int(mirrored(torch.tensor(i), torch.tensor(j), n))
                key = ((h[b, j] + encoding.p[1, value]) @ W_KEY.mT).view(2, 4)
                want = (q[b, :, i] * key).sum(-1) / 2
                torch.testing.assert_close(got[b, :, i - 3, j], want, atol=1e-5, rtol=1e-4)


def test_prf_is_the_tasks_relation():
    encoding = IdealScaleHint(SHAPE)
    ctx = Context(pos=torch.arange(6)[None], scale=torch.tensor([2]))
    assert encoding.prf(ctx) is None
    got = encoding.prf(replace(ctx, task_prf=mirrored))
    assert got is not None
    assert got.tolist() == [
        [int(mirrored(torch.tensor(i), torch.tensor(j), 2)) for j in range(6)] for i in range(6)
    ]


def test_what_is_missing_is_said():
    q = torch.zeros(1, 2, 3, 4)
    ctx = Context(pos=torch.arange(3)[None])
    with pytest.raises(ValueError, match=r"set ctx\.task_prf"):
        Ideal(SHAPE).bias(q, q, Ideal(SHAPE).prepare(ctx).at(0, q, W_KEY))
    with pytest.raises(ValueError, match=r"set ctx\.scale"):
        IdealScaleHint(SHAPE).prepare(ctx)
    told = Context(pos=torch.arange(3)[None], task_prf=mirrored)
    with pytest.raises(ValueError, match=r"ctx\.at\(layer, x, w_key\)"):
        Ideal(SHAPE).bias(q, q, Ideal(SHAPE).prepare(told).at(0, q))
