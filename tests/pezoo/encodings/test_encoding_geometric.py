import math

import pytest
import torch

import pezoo
from pezoo.adapters import attend, attention_mask
from pezoo.base import Context, Shape
from pezoo.encodings.geometric import Geometric

SHAPE = Shape(d_model=8, n_heads=2, d_head=4, n_layers=2, train_len=10)


def visited(i, n):
    """i+1, i-1, i+2, i-2, ... as far as there are tokens."""
    steps = [i + sign * d for d in range(1, n) for sign in (1, -1)]
    return [j for j in steps if 0 <= j < n]


def oracle(encoding, q, k, allowed):
    """Layer 1, token by token: walk outwards and stop with the sigmoid of each logit."""
    b, h, n, _ = q.shape
    a, w, bias = torch.zeros(b, h, n, n, dtype=q.dtype), encoding.w.detach(), encoding.b.detach()
    for bi in range(b):
        for hi in range(h):
            for i in range(n):
                left = 1.0
                for j in visited(i, n):
                    if not allowed(i, j):
                        continue
                    side = 0 if j < i else 1
                    logit = sum(q[bi, hi, i, c] * k[bi, hi, j, c] for c in range(4)) / 2
                    logit += sum(q[bi, hi, i, c] * w[1, side, hi, c] for c in range(4))
                    logit += bias[1, side, hi]
                    stop = 1 / (1 + math.exp(-float(logit)))
                    a[bi, hi, i, j] = left * stop
                    left *= 1 - stop
    return a


def made(**options):
    encoding = Geometric(SHAPE, **options).double()
    with torch.no_grad():
        encoding.b.normal_()
    return encoding


@pytest.mark.parametrize("causal", [True, False])
def test_it_walks_outwards_and_stops(causal):
    encoding = made()
    ctx = encoding.prepare(Context(pos=torch.arange(7)[None])).at(1, None)
    q, k = torch.randn(2, 2, 2, 7, 4, dtype=torch.float64).unbind(0)
    v = torch.eye(7, dtype=torch.float64).expand(2, 2, 7, 7)
    mask = attention_mask(ctx) if causal else torch.ones(1, 1, 7, 7, dtype=torch.bool)
    got = attend(encoding, q, k, v, ctx, mask, "eager")
    want = oracle(encoding, q, k, (lambda i, j: j <= i) if causal else (lambda i, j: True))
    torch.testing.assert_close(got, want, atol=1e-12, rtol=0)


def test_normalised_weights_sum_to_one_where_there_is_a_key():
    ctx = Context(pos=torch.arange(5)[None])
    logits = torch.randn(2, 2, 5, 5).masked_fill(~torch.ones(5, 5).tril().bool(), -torch.inf)
    plain, divided = (Geometric(SHAPE, normalised=n).weights(logits, ctx) for n in (False, True))
    torch.testing.assert_close(divided.sum(-1), (torch.arange(5) > 0).float().expand(2, 2, 5))
    torch.testing.assert_close(divided[:, :, 1:], (plain / plain.sum(-1, keepdim=True))[:, :, 1:])
    assert (plain.sum(-1) < 1).all()


def test_far_logits_neither_overflow_nor_vanish():
    ctx = Context(pos=torch.arange(3)[None])
    logits = torch.tensor([-200.0, 200.0, -200.0]).expand(1, 1, 3, 3).clone().requires_grad_()
    a = Geometric(SHAPE).weights(logits, ctx)
    assert a[0, 0, 2].tolist() == [0, 1, 0]
    a.sum().backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


def test_of_keys_at_one_position_the_later_comes_first():
    bipe = pezoo.make("bipe:geometric", d_model=4, n_heads=1, n_layers=1)
    torch.nn.init.zeros_(bipe.inner.w)
    q, v = torch.zeros(1, 1, 5, 4), torch.eye(5)[None, None]
    ids = torch.ones(1, 5, dtype=torch.long)  # one segment
    (got,) = pezoo.attention(q, q, v, bipe, x=torch.zeros(1, 5, 4), ids=ids)[0, :, 4]
    torch.testing.assert_close(got, torch.tensor([0.0625, 0.125, 0.25, 0.5, 0]))
