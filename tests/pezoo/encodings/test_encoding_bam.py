import math

import pytest
import torch

import pezoo
from pezoo.adapters import attend
from pezoo.base import Context, Pass, Shape
from pezoo.encodings.bam import BAM
from pezoo.functional import parameter_groups

SHAPE = Shape(d_model=8, n_heads=2, d_head=4, n_layers=2, train_len=10)
D = torch.float64


def test_it_is_the_formula():
    encoding = BAM(SHAPE).double()
    with torch.no_grad():
        encoding.s.copy_(torch.tensor([0.3, -1.0]))
        encoding.t.copy_(torch.tensor([1.7, -0.4]))
    pos = torch.tensor([[0, 1, 2, 3, 4, 5], [3, 4, 9, 10, 11, 40]])
    q = torch.zeros(2, 2, 4, 4, dtype=D)
    got = encoding.bias(q, q, Context(pos=pos, layer=1, n_new=4))
    s, t = encoding.s.tolist(), encoding.t.tolist()
    for b in range(2):
        for h in range(2):
            for i in range(2, 6):
                for j in range(6):
                    d = abs(int(pos[b, i] - pos[b, j]))
                    want = -math.exp(s[h]) * (d + 1e-5) ** t[h]
                    assert got[b, h, i - 2, j].item() == pytest.approx(want, rel=1e-12)


def test_it_starts_as_alibi_and_a_constant():
    encoding, alibi = BAM(SHAPE), pezoo.ALiBi(SHAPE)
    ctx = Pass(pos=torch.arange(9)[None], prepared=True)
    q, k, v = torch.randn(3, 2, 2, 9, 4)
    got, want = (one.bias(q, k, ctx) for one in (encoding, alibi))
    constant = 1e-5 * torch.tensor([2**-4, 2**-8])[None, :, None, None]
    torch.testing.assert_close(got + constant, want, atol=1e-6, rtol=0)
    torch.testing.assert_close(*(attend(one, q, k, v, ctx) for one in (encoding, alibi)))


def test_weight_decay_leaves_shape_and_scale():
    encoding = pezoo.make("ssmax:bam", SHAPE)
    start = {name: p.clone() for name, p in encoding.named_parameters()}
    for p in encoding.parameters():
        p.grad = torch.zeros_like(p)
    torch.optim.AdamW(parameter_groups(encoding), lr=0.1, weight_decay=1.0).step()
    moved = {name for name, p in encoding.named_parameters() if not torch.equal(p, start[name])}
    assert moved == {"s"}  # ssmax's own


def test_a_power_of_2_is_a_gaussian():
    """Weights of equal logits are those of a normal distribution around the query."""
    encoding = BAM(SHAPE, start=2.0)
    with torch.no_grad():
        encoding.s.fill_(math.log(1 / (2 * 3.0**2)))  # a standard deviation of 3
    q, ctx = torch.zeros(1, 2, 21, 4), Context(pos=torch.arange(21)[None])
    got = encoding.bias(q, q, ctx)[0, 0, 20].softmax(-1).double()
    normal = torch.distributions.Normal(20.0, 3.0).log_prob(torch.arange(21.0)).softmax(-1)
    torch.testing.assert_close(got, normal.double(), atol=1e-5, rtol=0)
