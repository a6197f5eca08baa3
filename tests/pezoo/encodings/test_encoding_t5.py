import pytest
import torch

from pezoo.base import Context, Shape
from pezoo.encodings.t5 import T5

SHAPE = Shape(d_model=8, n_heads=3, d_head=4, n_layers=2, train_len=10)


def bucket(d, buckets, max_distance, bidirectional):
    """T5's rule in exact integers: the largest k with (d/e)^n >= (max_distance/e)^k."""
    upper = 0
    if bidirectional:
        buckets //= 2
        upper, d = (buckets, -d) if d < 0 else (0, d)
    d, e = max(d, 0), buckets // 2
    if d < e:
        return upper + d
    n = buckets - e
    k = max(k for k in range(n) if d**n * e**k >= max_distance**k * e**n)
    return upper + e + k


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (20, 100), (4, 50), (64, 300)])
def test_buckets_are_the_rule(buckets, max_distance, bidirectional):
    options = {"buckets": buckets, "max_distance": max_distance, "bidirectional": bidirectional}
    d = torch.arange(-400, 401)
    got = T5(SHAPE, **options).bucket(d).tolist()
    assert got == [bucket(x, **options) for x in d.tolist()]


@pytest.mark.parametrize("bidirectional", [False, True])
def test_buckets_are_those_of_x_transformers(bidirectional):
    x_transformers = pytest.importorskip("x_transformers.x_transformers")
    rule = x_transformers.RelativePositionBias._relative_position_bucket
    d = torch.arange(-5000, 5001)
    want = rule(-d, causal=not bidirectional, num_buckets=32, max_distance=128)
    assert torch.equal(T5(SHAPE, bidirectional=bidirectional).bucket(d), want)


def test_bias_reads_one_table_in_every_layer():
    encoding, q = T5(SHAPE), torch.randn(2, 3, 4, 4)
    pos = torch.tensor([[-1, 0, 1, 2], [3, 40, 41, 200]])
    got = encoding.bias(q[:, :, 2:], q, Context(pos=pos, n_new=2))
    assert torch.equal(got, encoding.bias(q[:, :, 2:], q, Context(pos=pos, n_new=2, layer=1)))
    for b in range(2):
        for i in (2, 3):
            for j in range(4):
                row = bucket(int(pos[b, i] - pos[b, j]), 32, 128, False)
                assert torch.equal(got[b, :, i - 2, j], encoding.table[row])
