import math

import pytest
import torch

from pezoo.base import Context, Shape
from pezoo.encodings.shaw import Shaw

SHAPE = Shape(d_model=8, n_heads=2, d_head=4, n_layers=2, train_len=10)


def test_it_is_the_formula():
    encoding = Shaw(SHAPE, clip=2)
    q, k = torch.randn(2, 3, 2, 6, 4).unbind(0)
    pos = torch.tensor([[0, 1, 2, 3, 4, 5], [3, 4, 9, 10, 11, 40], [-1, -1, 0, 1, 2, 3]])
    got = encoding.bias(q[:, :, 3:], k, Context(pos=pos, layer=1, n_new=3))
    for b in range(3):
        for h in range(2):
            for i in range(3, 6):
                for j in range(6):
                    d = max(-2, min(2, int(pos[b, i] - pos[b, j])))
                    want = sum(q[b, h, i, c] * encoding.table[1, d + 2, h, c] for c in range(4)) / 2
                    assert got[b, h, i - 3, j].item() == pytest.approx(want.item(), abs=1e-6)


def test_it_includes_a_vector_added_to_the_key_embedding_before_the_projection():
    """Chen's form: q_i W_K (h_j + a_{i-j}) with one a for all heads equals ours with W_K a."""
    encoding = Shaw(SHAPE, clip=3)
    a, w_k, h = torch.randn(7, 8), torch.randn(8, 8), torch.randn(5, 8)
    q = torch.randn(1, 2, 5, 4)
    with torch.no_grad():
        encoding.table[0] = (a @ w_k).view(7, 2, 4)
    k = (h @ w_k).view(5, 2, 4).transpose(0, 1)[None]
    got = q @ k.mT / 2 + encoding.bias(q, k, Context(pos=torch.arange(5)[None]))
    for i in range(5):
        for j in range(5):
            key = ((h[j] + a[max(-3, min(3, i - j)) + 3]) @ w_k).view(2, 4)
            want = (q[0, :, i] * key).sum(-1) / 2
            torch.testing.assert_close(got[0, :, i, j].detach(), want, atol=1e-5, rtol=1e-5)


def test_initial_values_are_glorot_uniform():
    limit = math.sqrt(6 / (33 + 4))
    table = Shaw(SHAPE).table
    assert table.abs().max() <= limit
    assert table.std().item() == pytest.approx(limit / math.sqrt(3), rel=0.1)
