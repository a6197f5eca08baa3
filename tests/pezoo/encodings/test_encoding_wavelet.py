import math

import pytest
import torch

from pezoo import Context, Shape, make

SHAPE = Shape(d_model=32, n_heads=2, d_head=16, n_layers=1, train_len=12)


@pytest.mark.parametrize(("text", "scales"), [("wavelet", 8), ("wavelet(scales=4)", 4)])
def test_a_loop_over_pairs(text, scales):
    pos = torch.tensor([[0, 1, 2, 9, 300], [-1, 3, 4, 7, 8]])
    q = torch.randn(2, 2, 5, 16, dtype=torch.float64)
    got = make(text, SHAPE).bias(q, q, Context(pos))
    for b in range(2):
        for i in range(5):
            for j in range(5):
                distance = int(pos[b, i]) - int(pos[b, j])
                waves = []
                for place in range(16 // scales):
                    for power in range(scales):
                        t = (distance - place) / 2**power
                        waves.append((1 - t * t) * math.exp(-t * t / 2) / math.sqrt(2**power))
                for h in range(2):
                    want = sum(x * w for x, w in zip(q[b, h, i].tolist(), waves, strict=True)) / 4
                    assert got[b, h, i, j].item() == pytest.approx(want, abs=1e-5)


def test_it_is_shaw_with_a_fixed_table():
    wavelet, shaw = make("wavelet", SHAPE), make("shaw(clip=20)", SHAPE)
    table = wavelet.waves(torch.arange(-20, 21))  # (2c+1, K)
    shaw.table.data.copy_(table[None, :, None].expand_as(shaw.table))
    q = torch.randn(1, 2, 15, 16)
    ctx = Context(torch.arange(15)[None])
    torch.testing.assert_close(wavelet.bias(q, q, ctx), shaw.bias(q, q, ctx))
