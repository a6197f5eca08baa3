import math

import pytest
import torch

from pezoo.base import Context, Shape
from pezoo.encodings.lbpe import LBPE, LBPEScaleHint

SHAPE = Shape(d_model=8, n_heads=2, d_head=4, n_layers=2, train_len=10)


def wave(x, width):
    angles = [x * 10_000 ** (-2 * m / width) for m in range(width // 2)]
    return [*map(math.sin, angles), *map(math.cos, angles)]


def naive_phi(encoding, layer, i, j, n=None):
    """phi(i, j[, n]) as one MLP on one vector of features, in plain Python."""
    width = encoding.width
    token = [[*wave(p, width), *([] if n is None else [*wave(n, width), p / n])] for p in (i, j)]
    features = torch.tensor([*token[0], *token[1], *wave(i - j, width)])
    w1 = torch.cat([w[layer] for w in (encoding.w_query, encoding.w_key, encoding.w_distance)])
    hidden = features @ w1 + encoding.b_hidden[layer]
    hidden = hidden * 0.5 * (1 + torch.erf(hidden / math.sqrt(2)))
    logits = hidden @ encoding.w_out[layer] + encoding.b_out[layer]
    return logits.exp() / logits.exp().sum()


def perturbed(encoding):
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    return encoding


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("hint", [False, True])
def test_it_is_the_formula(hint, batch):
    cls = LBPEScaleHint if hint else LBPE
    encoding = perturbed(cls(SHAPE, values=5, hidden=6, width=4))
    q, k = torch.randn(3, 2, 2, 4), torch.randn(3, 2, 4, 4)
    pos = torch.tensor([[0, 1, 2, 3], [2, 3, 5, 8], [-1, -1, 0, 1]])[:batch]
    scale = torch.tensor([4, 9, 2])[:batch] if hint else None
    ctx = encoding.prepare(Context(pos=pos, n_new=2, scale=scale)).at(1, None)
    assert encoding.phi(ctx).shape == (batch, 2, 4, 5)
    got = encoding.bias(q, k, ctx)
    for b in range(3):
        row = pos[b % batch].tolist()
        n = int(scale[b % batch]) if hint else None
        for i in (2, 3):
            for j in range(4):
                phi = naive_phi(encoding, 1, row[i], row[j], n)
                want = (q[b, :, i - 2] * torch.einsum("v,vhk->hk", phi, encoding.p[1])).sum(-1) / 2
                torch.testing.assert_close(got[b, :, i - 2, j], want, atol=1e-5, rtol=1e-4)


def test_phi_is_a_distribution():
    phi = LBPE(SHAPE).phi(Context(pos=torch.arange(8)[None]))
    torch.testing.assert_close(phi.sum(-1), torch.ones(1, 8, 8))


def test_a_scale_per_sample_meets_shared_positions():
    encoding, pos = perturbed(LBPEScaleHint(SHAPE)), torch.arange(6)[None]
    q, k = torch.randn(2, 2, 2, 6, 4).unbind(0)
    got = encoding.bias(q, k, Context(pos=pos, scale=torch.tensor([3, 5])))
    for b, n in enumerate([3, 5]):
        one = Context(pos=pos, scale=torch.tensor([n]))
        torch.testing.assert_close(got[b], encoding.bias(q[b : b + 1], k[b : b + 1], one)[0])
    assert not torch.allclose(got[0], encoding.bias(q, k, Context(pos=pos, scale=torch.ones(1)))[0])


def test_a_missing_scale_is_an_error():
    with pytest.raises(ValueError, match=r"set ctx\.scale"):
        LBPEScaleHint(SHAPE).prepare(Context(pos=torch.arange(3)[None]))


def test_impossible_sizes_are_errors():
    with pytest.raises(ValueError, match="width even"):
        LBPE(SHAPE, width=5)
    with pytest.raises(ValueError, match="at least 1"):
        LBPE(SHAPE, values=0)


@pytest.mark.parametrize("cls", [LBPE, LBPEScaleHint])
def test_gradients(cls):
    encoding = cls(Shape(4, 2, 2, 1, 4), values=3, hidden=3, width=2).double()
    q, k = (torch.randn(1, 2, 3, 2, dtype=torch.float64, requires_grad=True) for _ in range(2))
    ctx = Context(pos=torch.arange(3)[None], scale=torch.tensor([2]))
    inputs = (q, *encoding.parameters())
    assert torch.autograd.gradcheck(lambda *_: encoding.bias(q, k, ctx), inputs)
