import pytest
import torch

from pezoo.base import Context, Shape
from pezoo.encodings.learned import Learned

SHAPE = Shape(d_model=8, n_heads=2, d_head=4, n_layers=1, train_len=5)


def test_each_position_gets_its_row():
    encoding, x = Learned(SHAPE), torch.randn(2, 3, 8)
    out = encoding.embed(x, encoding.prepare(Context(torch.tensor([[0, 1, 2], [-1, 4, 3]]))))
    for b, t, p in [(0, 0, 0), (0, 2, 2), (1, 1, 4), (1, 2, 3)]:
        assert torch.equal(out[b, t], x[b, t] + encoding.table[p])


def test_the_table_has_train_len_rows_or_max_len():
    assert Learned(SHAPE).table.shape == (5, 8)
    assert Learned(SHAPE, max_len=9).table.shape == (9, 8)


def test_initial_spread():
    torch.manual_seed(0)
    table = Learned(Shape(64, 1, 64, 1, 400)).table
    assert table.std().item() == pytest.approx(0.02, rel=0.03)
    cut = Learned(Shape(64, 1, 64, 1, 400), std=3.0).table
    assert cut.abs().max() <= 6.0
    assert cut.std().item() == pytest.approx(3.0 * 0.8796, rel=0.03)  # of a normal cut at 2
