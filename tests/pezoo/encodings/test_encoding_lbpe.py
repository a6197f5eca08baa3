import math

import pytest
import torch

from pezoo.base import Context, Shape
from pezoo.encodings.lbpe import LBPE, LBPEScaleHint

SHAPE = Shape(d_model=8, n_heads=2, d_head=4, n_layers=2, train_len=10)
W_KEY = torch.randn(8, 8, generator=torch.Generator().manual_seed(0))


def naive_prf(encoding, layer, i, j, n=None):
    """phi(i, j[, n]) as one MLP on one-hot marks, in plain Python."""
    if n is None:
        marks = [i, j, i - j, *[i - 2 * j] * (len(encoding.marks) == 5), i + j]
    else:
        marks = [i - n, i - 2 * n, i - 3 * n, j, j - n, j - 2 * n]
        marks += [i - j, i - j - n, i - j - 2 * n, i + j - 2 * n]
    hidden = encoding.b_hidden[layer].clone()
    for table, mark in zip(encoding.w_hidden[layer], marks, strict=True):
        hidden += table[max(-encoding.clip, min(encoding.clip, mark)) + encoding.clip]
    hidden = hidden * 0.5 * (1 + torch.erf(hidden / math.sqrt(2)))
    logits = hidden @ encoding.w_out[layer] + encoding.b_out[layer]
    return logits.exp() / logits.exp().sum()


def perturbed(encoding):
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    return encoding


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize(("hint", "middle"), [(False, True), (True, True), (False, False)])
def test_it_is_the_formula(hint, middle, batch):
    cls = LBPEScaleHint if hint else LBPE
    encoding = perturbed(cls(SHAPE, values=5, hidden=6, clip=2, middle=middle))
    assert encoding.w_hidden.shape[1] == (10 if hint else 4 + middle)
    h = torch.randn(3, 4, 8)
    q, k = torch.randn(3, 2, 2, 4), (h @ W_KEY.mT).unflatten(2, (2, 4)).transpose(1, 2)
    pos = torch.tensor([[0, 1, 2, 3], [2, 3, 5, 8], [-1, -1, 0, 1]])[:batch]
    scale = torch.tensor([4, 9, 2])[:batch] if hint else None
    given = Context(pos=pos, n_new=2, scale=scale)
    ctx = encoding.prepare(given).at(1, torch.zeros(3, 2, 8), W_KEY)
    assert encoding.kinds(ctx).shape == (batch, 2, 4, 5)
    got = q @ k.mT / 2 + encoding.bias(q, k, ctx)
    for b in range(3):
        row = pos[b % batch].tolist()
        n = int(scale[b % batch]) if hint else None
        for i in (2, 3):
            for j in range(4):
                prf = naive_prf(encoding, 1, row[i], row[j], n)
                key = ((h[b, j] + prf @ encoding.p[1]) @ W_KEY.mT).view(2, 4)  # before W_K
                want = (q[b, :, i - 2] * key).sum(-1) / 2
                torch.testing.assert_close(got[b, :, i - 2, j], want, atol=1e-5, rtol=1e-4)


def test_long_texts_compute_each_combination_of_symbols_once():
    encoding = perturbed(LBPE(SHAPE, values=3, hidden=4, clip=1, middle=False)).double()
    pos = torch.stack([torch.arange(10), torch.arange(10) - 4])
    kinds = encoding.kinds(encoding.prepare(Context(pos=pos)).at(1, torch.zeros(2, 10, 8)))
    assert kinds.shape == (2, 10, 10, 3)  # 100 pairs of 3^4 combinations
    weights = torch.randn(kinds.shape, dtype=torch.float64)
    (kinds * weights).sum().backward()
    got = [parameter.grad for parameter in encoding.parameters()]
    encoding.zero_grad()
    want = torch.stack(
        [naive_prf(encoding, 1, i, j) for row in pos.tolist() for i in row for j in row]
    ).view_as(kinds)
    torch.testing.assert_close(kinds, want)
    (want * weights).sum().backward()
    torch.testing.assert_close(got, [parameter.grad for parameter in encoding.parameters()])


def test_beyond_the_clip_far_positions_are_alike():
    prf = perturbed(LBPE(SHAPE)).prf(Context(pos=torch.arange(60)[None]))
    torch.testing.assert_close(prf.sum(-1), torch.ones(60, 60))
    assert torch.equal(prf[10, 0], prf[50, 0])  # the first token
    assert torch.equal(prf[20, 10], prf[50, 25])  # the middle
    assert torch.equal(prf[20, 19], prf[50, 49])  # the last
    assert not torch.equal(prf[50, 25], prf[50, 26])


def test_keys_that_heads_share_share_what_is_added():
    encoding = perturbed(LBPE(SHAPE))
    q = torch.randn(1, 1, 3, 4).expand(-1, 2, -1, -1)
    ctx = Context(pos=torch.arange(3)[None], w_key=W_KEY[:4])
    one, other = encoding.bias(q, q, ctx).unbind(1)
    assert torch.equal(one, other)


def test_what_is_missing_is_an_error():
    with pytest.raises(ValueError, match=r"set ctx\.scale"):
        LBPEScaleHint(SHAPE).prepare(Context(pos=torch.arange(3)[None]))
    q = torch.zeros(1, 2, 3, 4)
    with pytest.raises(ValueError, match=r"lbpe needs the weight of the projection"):
        LBPE(SHAPE).bias(q, q, Context(pos=torch.arange(3)[None]))
