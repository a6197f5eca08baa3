import pytest
import torch

from pezoo import Context, Shape, attend, make
from pezoo.adapters import attention_mask
from pezoo.testing import context, tokens

H = 4
SHAPE = Shape(d_model=16, n_heads=H, d_head=4, n_layers=1, train_len=12)
# get_nape_slopes(heads, ALiBi's heads) of deep-spin/asentmax, sparse_gemma.py
SLOPES = {(4, 2): [1, 0.5, 0, 0], (3, 1): [1, 0, 0], (5, 4): [1, 0.5, 1 / 3, 0.25, 0]}


def bias(text, pos, heads=H):
    q = torch.zeros(1, heads, pos.shape[1], 4)
    shape = SHAPE.replaced(n_heads=heads)
    return make(text, shape).bias(q, q, Context(pos))


@pytest.mark.parametrize(("sizes", "want"), SLOPES.items())
def test_it_is_the_formula_with_the_slopes_of_the_authors_code(sizes, want):
    heads, own = sizes
    pos = torch.tensor([[0, 1, 5, 6], [-1, 0, 1, 900]])
    got = bias(f"nape(heads={own})", pos, heads)
    for b in range(2):
        for h, slope in enumerate(want):
            for i in range(4):
                for j in range(4):
                    far = abs(int(pos[b, i]) - int(pos[b, j]))
                    assert got[b, h, i, j].item() == pytest.approx(-slope * far, rel=1e-7)


def test_the_exponential_slopes_of_the_authors_code():
    pos = torch.arange(3)[None]
    want = [-2, -1, -0.5, -0.25, 0]
    assert bias("nape(heads=4,slopes=exponential)", pos, 5)[0, :, 2, 0].tolist() == want


def test_half_of_the_heads_have_alibi():
    pos = torch.arange(9)[None]
    for heads, own in ((1, 0), (2, 1), (5, 2), (8, 4)):
        got = bias("nape", pos, heads)
        assert torch.equal(got, bias(f"nape(heads={own})", pos, heads))
        assert got.flatten(2).any(-1)[0].tolist() == [True] * own + [False] * (heads - own)


@pytest.mark.parametrize("heads", [1, 3, 4, 8])
def test_all_heads_are_alibi_or_nope(heads):
    pos = torch.tensor([[3, 4, 9, 1000]])
    assert torch.equal(
        bias(f"nape(heads={heads},slopes=alibi)", pos, heads), bias("alibi", pos, heads)
    )
    assert not bias("nape(heads=0)", pos, heads).any()


def test_the_last_heads_do_not_see_the_order_of_keys():
    q, k, v = torch.randn(3, 1, H, 6, 4, dtype=torch.float64)
    ctx = context(tokens(1, 6))
    order = torch.tensor([3, 0, 4, 1, 2, 5])

    def last(k, v):
        encoding = make("nape", SHAPE)
        here = encoding.prepare(ctx).at(0, None)
        return attend(encoding, q, k, v, here, attention_mask(here))[:, :, -1]

    plain, moved = last(k, v), last(k[:, :, order], v[:, :, order])
    torch.testing.assert_close(plain[:, 2:], moved[:, 2:])
    assert ((plain - moved)[:, :2].abs().amax((0, 2)) > 1e-6).all()
