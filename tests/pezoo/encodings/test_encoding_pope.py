import math

import pytest
import torch
from torch.nn.functional import softplus

import pezoo
from pezoo.base import Context, Shape
from pezoo.encodings.pope import PoPE

SHAPE = Shape(d_model=8, n_heads=2, d_head=4, n_layers=2, train_len=10)
D = torch.float64


def logits(encoding, q, k, pos, layer=1):
    ctx = encoding.prepare(Context(pos=pos)).at(layer, None)
    q, k = encoding.transform(q, k, ctx)
    return q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).mT / 2


def test_it_is_the_product_of_pope_pytorch(oracles):
    case = {name: torch.tensor(x, dtype=D) for name, x in oracles["pope"].items()}
    encoding = PoPE(SHAPE, base=float(case["base"])).double()
    with torch.no_grad():
        encoding.delta[1].copy_(case["delta"])
    got = logits(encoding, case["q"], case["k"], case["pos"].long()[None])
    torch.testing.assert_close(got, case["logits"], atol=1e-12, rtol=0)


@pytest.mark.parametrize("groups", [1, 2])
def test_it_is_the_formula(groups):
    encoding, pos = PoPE(SHAPE, start="uniform").double(), torch.tensor([[3, 4, 9, 40]])
    q, k = torch.randn(1, 2, 4, 4, dtype=D), torch.randn(1, groups, 4, 4, dtype=D)
    got = logits(encoding, q, k, pos)
    delta, q, k = encoding.delta[1].tolist(), softplus(q[0]).tolist(), softplus(k[0]).tolist()
    for h in range(2):
        for i in range(4):
            for j in range(4):
                d = int(pos[0, i] - pos[0, j])
                want = sum(
                    q[h][i][m] * k[h * groups // 2][j][m]
                    * math.cos(d * 10_000 ** (-m / 4) - delta[h][m])
                    for m in range(4)
                )  # fmt: skip
                assert got[0, h, i, j].item() == pytest.approx(want / 2, abs=1e-5)


def test_without_delta_it_is_rope_of_twice_the_width():
    q, k = torch.randn(2, 3, 2, 6, 4, dtype=D)
    rope = pezoo.RoPE(SHAPE.replaced(d_head=8), layout="half")
    pos = torch.arange(6)[None]
    wide = [torch.cat([softplus(x), torch.zeros_like(x)], -1) for x in (q, k)]
    got, want = logits(PoPE(SHAPE), q, k, pos), logits(rope, *wide, pos)
    torch.testing.assert_close(got, want, atol=1e-6, rtol=0)


def test_a_clamped_delta_has_no_gradient():
    encoding = PoPE(SHAPE).double()
    q, k = torch.randn(2, 1, 2, 3, 4, dtype=D)
    with torch.no_grad():
        encoding.delta.fill_(0.1)
    logits(encoding, q, k, torch.arange(3)[None]).sum().backward()
    assert not encoding.delta.grad.any()
