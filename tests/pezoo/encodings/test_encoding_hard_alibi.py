import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pezoo.base import Pass, Shape
from pezoo.encodings.hard_alibi import HardALiBi


def shape(heads):
    return Shape(8, heads, 4, 1, 10)


def bias(heads, pos, n_new=None, distances=None, **options):
    q = torch.zeros(len(pos), heads, n_new or pos.shape[1], 4)
    ctx = Pass(pos=pos, n_new=n_new, distances=distances)
    return HardALiBi(shape(heads), **options).bias(q, q, ctx)


@given(heads=st.integers(1, 9), data=st.data(), shift=st.integers(0, 1000))
def test_it_is_the_formula_at_any_shift(heads, data, shift):
    masked = data.draw(st.integers(0, heads))
    got = bias(heads, torch.arange(7)[None] + shift, n_new=4, masked=masked)[0]
    for h in range(heads):
        m = h + 1 if h + 1 <= masked else 10**9
        for i in range(3, 7):
            for j in range(7):
                assert got[h, i - 3, j].item() == (-torch.inf if j <= i - m else 0)


@pytest.mark.parametrize(("heads", "masked"), [(16, 8), (8, 4), (4, 2), (3, 1), (1, 0)])
def test_default_is_half_of_the_heads(heads, masked):
    assert HardALiBi(shape(heads)).masked == masked


def test_windows_count_sampled_distances():
    table = torch.tensor([0, 2, 3, 9])
    got = bias(3, torch.arange(4)[None], distances=table, masked=3)[0, :, 3]
    assert (got == 0).tolist() == [[False] * 3 + [True]] * 2 + [[False, False, True, True]]
