import math

import pytest
import torch

from pezoo import Context, Shape, make

D = torch.float64
SHAPE = Shape(d_model=32, n_heads=2, d_head=16, n_layers=2, train_len=100)
POS = torch.tensor([[-1, 0, 3, 70, 400]])


def turned(encoding, x, layer=1):
    return encoding.transform(x, x, encoding.prepare(Context(POS)).at(layer, None))


def data(heads=2):
    return torch.randn(1, heads, 5, 16, dtype=D, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_it_is_the_formula(layout):
    encoding = make(f"fope(base=100,layout={layout},gain=1)", SHAPE).double()
    x, w = data(), [100 ** (-m / 8) for m in range(8)]
    n = sum(2 * math.pi / one <= 100 for one in w)
    got = turned(encoding, x)[0]
    assert n == encoding.c.shape[-1] == 5
    for h in range(2):
        for i, p in enumerate(POS[0].tolist()):
            for m in range(8):
                c, s = (
                    (
                        sum(coef[1, h, own, m].item() * wave(p * w[own]) for own in range(n))
                        for coef, wave in ((encoding.c, math.cos), (encoding.s, math.sin))
                    )
                    if m < n
                    else (1.0, 0.0)
                )
                at = (m, m + 8) if layout == "half" else (2 * m, 2 * m + 1)
                a, b = (x[0, h, i, one].item() for one in at)
                want = (a * c - b * s, a * s + b * c)
                assert [got[0, h, i, one].item() for one in at] == pytest.approx(want, abs=1e-4)


def test_without_noise_and_slow_pairs_it_is_rope():
    kept = make("fope(gain=0,period=1000000)", SHAPE)
    torch.testing.assert_close(turned(kept, data())[0], turned(make("rope", SHAPE), data())[0])
    some = make("fope(gain=0)", SHAPE)
    x, (got, _) = data(), turned(some, data())
    rope = turned(make("rope", SHAPE), x)[0]
    n = 2 * some.c.shape[-1]  # interleaved: slow pairs are the last ones
    assert 0 < n < 16
    torch.testing.assert_close(got[..., :n], rope[..., :n])
    assert torch.equal(got[..., n:], x[..., n:])


def test_the_start_and_what_is_learned():
    shape = SHAPE.replaced(d_head=256, n_heads=8, train_len=4096, n_layers=1)
    encoding = make("fope(learned=true)", shape)
    n = encoding.c.shape[-1]
    noise = torch.stack([encoding.c, encoding.s]).detach() - torch.eye(n)
    assert noise.std().item() == pytest.approx(0.3 * math.sqrt(2 / (n * (n + 8))), rel=0.01)
    assert not [*make("fope", shape).parameters()]
    assert {*make("fope", shape).state_dict()} == {"c", "s"}
    one = torch.empty(8, n, n)
    assert torch.nn.init.xavier_normal_(one, 0.3).std().item() == pytest.approx(
        noise.std().item(), rel=0.01
    )


def test_shared_keys_are_turned_for_each_head():
    encoding, x = make("fope", SHAPE), data(1)
    ctx = encoding.prepare(Context(POS)).at(0, None)
    _, k = encoding.transform(x.expand(-1, 2, -1, -1), x, ctx)
    assert torch.equal(k, turned(encoding, x.expand(-1, 2, -1, -1), 0)[1])
