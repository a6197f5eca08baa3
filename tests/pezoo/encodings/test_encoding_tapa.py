import math

import pytest
import torch

from pezoo import Shape, attention, make
from pezoo.base import Context

SHAPE = Shape(d_model=12, n_heads=2, d_head=6, n_layers=1, train_len=10)
D = torch.float64


@pytest.mark.parametrize(("options", "n", "alpha"), [("", 3, 0.1), ("(share=.7,alpha=.5)", 4, 0.5)])
@pytest.mark.parametrize("new", [9, 2])
def test_it_is_the_formula(options, n, alpha, new):
    encoding = make(f"tapa{options}", SHAPE)
    q, k = torch.randn(1, 2, new, 6, dtype=D), torch.randn(1, 2, 9, 6, dtype=D)
    pos = torch.tensor([[-1, -1, 0, 1, 2, 3, 10, 11, 700]])
    got = encoding.scores(q, k, encoding.prepare(Context(pos, n_new=new)).at(0, None))
    for h in range(2):
        for i in range(new):
            for j in range(9):
                a, b = q[0, h, i].tolist(), k[0, h, j].tolist()
                products = [x * y for x, y in zip(a, b, strict=True)]
                distance = abs(int(pos[0, 9 - new + i] - pos[0, j])) ** alpha
                phase = 2 * math.pi * distance * sum(products[n:]) / math.sqrt(6 - n)
                want = sum(products[:n]) / math.sqrt(n) * math.cos(phase)
                assert got[0, h, i, j].item() == pytest.approx(want, abs=1e-10)


def test_without_phases_it_is_attention_of_the_first_part():
    encoding, nope = make("tapa", SHAPE), make("nope", SHAPE.replaced(d_head=3))
    q, k, v = torch.randn(3, 1, 2, 8, 6, dtype=D)
    q[..., 3:] = 0
    pos = torch.arange(8)[None]
    want = attention(q[..., :3], k[..., :3], v, nope, pos)
    torch.testing.assert_close(attention(q, k, v, encoding, pos), want)


def test_the_mean_fades_with_the_distance_and_the_variance_does_not():
    """Theorems 3.2 and 3.3. Normal p of n numbers: the mean of the cosine is (1 + s^2)^(-n / 2)."""
    encoding = make("tapa(alpha=0.5)", Shape(16, 1, 8, 1, 10))
    q, k = torch.randn(2, 200_000, 1, 1, 8)
    q[..., :4], k[..., :4] = 1 + 0.1 * q[..., :4], 1 + 0.1 * k[..., :4]
    plain, means = (q[..., :4] * k[..., :4]).sum(-1).mean() / 2, []
    for distance in (0, 1, 4, 100):
        ctx = encoding.prepare(Context(torch.tensor([[0, distance]]), n_new=1))
        z = encoding.scores(q, torch.cat([k, k], 2), ctx.at(0, None))[..., 0]
        s = 2 * math.pi * distance**0.5 / 2
        assert z.mean().item() == pytest.approx(float(plain) * (1 + s * s) ** -2, abs=0.02)
        means.append(z.mean().item())
        assert distance == 0 or z.var() > 1.5
    assert means == sorted(means, reverse=True)
