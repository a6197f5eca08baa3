import math

import pytest
import torch

from pezoo.base import Pass, Shape
from pezoo.encodings.relative import Relative

SHAPE = Shape(d_model=8, n_heads=2, d_head=4, n_layers=2, train_len=10)


def naive(q, k, u, v, w, offset):
    """(B, H, T, S) content and position logits without 1/sqrt(K), in plain loops.

    offset(i, j) is the argument of the sinusoid; w (D, H K) maps row vectors.
    """
    (batch, heads, t, size), s, width = q.shape, k.shape[2], w.shape[0]
    out = torch.zeros(batch, heads, t, s)
    for i in range(t):
        for j in range(s):
            angles = [offset(i, j) * 10_000 ** (-2 * m / width) for m in range(width // 2)]
            r = torch.tensor([*map(math.sin, angles), *map(math.cos, angles)]).to(w.dtype) @ w
            for h in range(heads):
                r_h = r[h * size : (h + 1) * size]
                for b in range(batch):
                    out[b, h, i, j] = (q[b, h, i] + u[h]) @ k[b, h, j] + (q[b, h, i] + v[h]) @ r_h
    return out


def from_reference(inputs):
    """Our encoding with the reference's weights: it counts j - i, so the sine rows change sign."""
    encoding = Relative(SHAPE)
    w = inputs["Wr"].float().clone()
    w[:4] *= -1
    with torch.no_grad():
        encoding.w.copy_(w)
        encoding.u.copy_(inputs["content_bias"])
        encoding.v.copy_(inputs["relative_bias"])
    return encoding


def logits(encoding, q, k, distances=None):
    ctx = Pass(pos=torch.arange(q.shape[2])[None], layer=1, distances=distances)
    q, k = encoding.transform(q, k, ctx)
    return (q @ k.mT + 2 * encoding.bias(q, k, ctx)).detach()


@pytest.mark.parametrize("batch", [1, 20])  # either side of the choice in _scores
def test_it_is_the_formula(batch):
    encoding, q, k = Relative(SHAPE), torch.randn(batch, 2, 5, 4), torch.randn(batch, 2, 5, 4)
    u, v, w = (p[1].detach() for p in (encoding.u, encoding.v, encoding.w))
    want = naive(q, k, u, v, w, lambda i, j: i - j)
    torch.testing.assert_close(logits(encoding, q, k), want, atol=1e-5, rtol=1e-5)


def test_reference_plain(reference, qk):
    encoding, want = from_reference(reference["inputs"]), reference["relative"]
    torch.testing.assert_close(logits(encoding, *qk), want["plain"], atol=1e-3, rtol=0)
    content = (qk[0] + encoding.u[0][:, None]).detach() @ qk[1].mT
    torch.testing.assert_close(content, want["content_only"], atol=1e-3, rtol=0)


def test_reference_sampled(reference, qk):
    inputs, want = reference["inputs"], reference["relative"]
    encoding = from_reference(inputs)
    right, left = (
        logits(encoding, *qk, torch.cat([torch.zeros(1, dtype=torch.long), inputs[name]]))
        for name in ("distances", "left_distances")
    )
    torch.testing.assert_close(right, want["sampled_intended"], atol=1e-3, rtol=0)
    both = torch.where(torch.ones(7, 7).tril(-1).bool(), left, right)
    torch.testing.assert_close(both, want["sampled_intended_both_sides"], atol=1e-3, rtol=0)
