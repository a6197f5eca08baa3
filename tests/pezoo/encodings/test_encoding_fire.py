import math

import pytest
import torch

from pezoo.base import Context, Shape
from pezoo.encodings.fire import FIRE

SHAPE = Shape(d_model=8, n_heads=2, d_head=4, n_layers=2, train_len=10)


def made(**options):
    torch.manual_seed(0)
    return FIRE(SHAPE, **options).double()


def test_it_is_the_formula():
    """Number by number, with positions on both sides of L = 6."""
    encoding = made(threshold=4.0, hidden=5)
    with torch.no_grad():
        encoding.c.copy_(torch.tensor([0.3, -0.7]))
        encoding.share.copy_(torch.tensor([1.0, -1.5]))
    pos = torch.tensor([[0, 1, 2, 3, 4, 5], [3, 4, 9, 10, 11, 40]])
    q = torch.zeros(2, 2, 4, 4, dtype=torch.float64)
    got = encoding.bias(q, q, Context(pos=pos, layer=1, n_new=4))
    assert got.shape == (2, 2, 4, 6)
    (w, b), v, o = (
        encoding.inner[1].tolist(),
        encoding.outer[1].tolist(),
        encoding.offset[1].tolist(),
    )
    for row in range(2):
        for i in range(2, 6):
            for j in range(i + 1):
                at, to = int(pos[row, i]), int(pos[row, j])
                x = math.log(1 + 0.7 * (at - to)) / math.log(1 + 0.7 * max(at, 6.0))
                inner = [max(0.0, x * w[m] + b[m]) for m in range(5)]
                for h in range(2):
                    want = sum(inner[m] * v[m][h] for m in range(5)) + o[h]
                    assert got[row, h, i - 2, j].item() == pytest.approx(want, abs=1e-5)
