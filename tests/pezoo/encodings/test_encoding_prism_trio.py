"""prism_trio is prism_spectral with one setting."""

import torch

from pezoo.base import Context, Shape
from pezoo.registry import make

SHAPE = Shape(64, 4, 16, 2, 20)
TYPED = (
    "prism_spectral(cursors=3,d_pe=32,controller=latch,window=1,stride=2,top=1.0,alpha=1.5,"
    "top_weight=4.0,query_bias=3.0,copy_every=3,copy_gate=true)"
)


def built(text):
    torch.manual_seed(0)
    return make(text, SHAPE).eval()


def test_it_is_prism_spectral_with_these_options():
    trio, typed = built("prism_trio"), built(TYPED)
    assert trio.options == typed.options
    x = torch.randn(2, 7, 64, generator=torch.manual_seed(1))
    for one in (trio, typed):
        one.load_state_dict(trio.state_dict())
    q, k = torch.randn(2, 2, 4, 7, 16, generator=torch.manual_seed(2)).unbind(0)
    ctx = Context(pos=torch.arange(7)[None], x=x)
    got, want = (one.transform(q, k, one.prepare(ctx).at(0, x)) for one in (trio, typed))
    torch.testing.assert_close(got, want, rtol=0, atol=0)


def test_of_three_cursors_one_looks_up_and_two_walk():
    trio = built("prism_trio")
    (layer,) = trio.layers
    assert layer.copying == list(range(0, 24, 3))
    x = torch.zeros(1, 1, 64)
    with torch.no_grad():
        layer.gate.linear.weight.zero_()
        ctx = Context(pos=torch.zeros(1, 1, dtype=torch.long), x=x)
        _, moves = layer.gates(layer.features(x, ctx), ctx)
    walking = [c for c in range(24) if c % 3]
    steps = moves[0, 0].argmax(-1)
    assert steps[walking].tolist() == [i % 5 for i in range(16)]  # +1, -1, +2, -2, 0
    assert moves[0, 0, walking].max(-1).values.min() > 0.9
    assert moves[0, 0, layer.copying].max() < 0.3
    assert steps[24:].tolist() == [0] * 24  # all keys count
