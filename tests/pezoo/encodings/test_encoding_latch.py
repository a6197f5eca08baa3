import math

import torch

from pezoo import Context, Shape, make
from pezoo.testing import build

SHAPE = Shape(d_model=16, n_heads=4, d_head=4, n_layers=2, train_len=12)


def made(text):
    return build(lambda shape: make(text, shape), SHAPE).double()


def embedded(encoding, pos, x):
    return encoding.embed(x, encoding.prepare(Context(pos, x=x)).at(0, x))


def test_it_is_the_formula():
    encoding, x = made("latch(hidden=3,gates=5):sinusoidal"), torch.randn(2, 7, 16).double()
    pos = torch.tensor([[-1, 0, 1, 2, 0, 1, -1], [0, 1, 2, 3, 4, 5, 6]])  # two documents, then one
    got = embedded(encoding, pos, x)
    inner = encoding.inner
    for b, starts in enumerate(([1, 1, 1, 1, 4, 4, 4], [0] * 7)):
        for t in pos[b].ge(0).nonzero().flatten().tolist():
            seen = [x[b, s] for s in range(starts[t], t + 1)]
            m = [
                max(math.tanh(float(v @ one)) for one in seen)
                for v in encoding.notice.weight.detach()
            ]
            f = torch.tanh(
                encoding.read(x[b, t]) + encoding.hold.weight @ torch.tensor(m, dtype=x.dtype)
            )
            gates = 1 / (1 + torch.exp(-encoding.gates.weight @ f - encoding.gates.bias))
            token = (x[b, t] + encoding.out.weight @ gates)[None, None]
            want = embedded(inner, pos[b : b + 1, t : t + 1], token)[0, 0]
            torch.testing.assert_close(got[b, t], want, atol=1e-12, rtol=0)


def test_training_begins_with_the_inner_encoding():
    x, pos = torch.randn(1, 5, 16), torch.arange(5)[None]
    torch.testing.assert_close(embedded(make("latch:rope", SHAPE), pos, x), x, atol=0, rtol=0)


def test_it_adds_what_prism_adds():
    shape = Shape(d_model=64, n_heads=4, d_head=16, n_layers=2, train_len=12)
    own, prism = (sum(p.numel() for p in make(n, shape).parameters()) for n in ("latch", "prism"))
    assert abs(own / prism - 1) < 0.01
