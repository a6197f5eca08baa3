import math

import pytest
import torch

from pezoo.base import Context, Shape
from pezoo.encodings.kerple import Kerple

SHAPE = Shape(d_model=8, n_heads=2, d_head=4, n_layers=2, train_len=10)


@pytest.mark.parametrize("form", ["log", "power"])
def test_it_is_the_formula(form):
    encoding = Kerple(SHAPE, form=form).double()
    q, k = torch.randn(2, 2, 2, 6, 4, dtype=torch.float64).unbind(0)
    pos = torch.tensor([[0, 1, 2, 3, 4, 5], [3, 4, 9, 10, 11, 40]])
    got = encoding.bias(q[:, :, 2:], k, Context(pos=pos, layer=1, n_new=4))
    p, a = (x.tolist() for x in encoding.constants(1))
    for b in range(2):
        for h in range(2):
            for i in range(2, 6):
                for j in range(6):
                    d = abs(int(pos[b, i] - pos[b, j]))
                    want = p[h] * math.log(1 + a[h] * d) if form == "log" else a[h] * d ** p[h]
                    assert got[b, h, i - 2, j].item() == pytest.approx(-want, abs=1e-12)


@pytest.mark.parametrize("form", ["log", "power"])
def test_constants_start_uniform_and_stay_in_range(form):
    torch.manual_seed(0)
    encoding = Kerple(Shape(256, 64, 4, 2, 10), form=form)
    for value, low, high in zip(encoding.constants(0), (0.01, 0.01), (1.99, 1.0), strict=True):
        assert low - 1e-4 < value.min() < low + 0.2
        assert high - 0.2 < value.max() < high + 1e-4
        assert value.mean().item() == pytest.approx((low + high) / 2, abs=0.2)
    with torch.no_grad():
        encoding.raw_p.copy_(torch.linspace(-9, 9, 128).view(2, 64))
        encoding.raw_a.copy_(encoding.raw_p)
    p, a = (torch.cat(x) for x in zip(*(encoding.constants(i) for i in range(2)), strict=True))
    assert (p > 0).all()
    assert (a > 0).all()
    assert form == "log" or (p < 2).all()
