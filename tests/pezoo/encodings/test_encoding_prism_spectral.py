"""prism_spectral is prism without sharpening, frequency by frequency."""

import pytest
import torch

from pezoo.base import Context, Memo, Pass, Shape
from pezoo.encodings.prism import PRISM
from pezoo.encodings.prism_spectral import PRISMSpectral
from pezoo.registry import expand
from pezoo.spec import parse

D = torch.float64
SHAPE = Shape(6, 2, 4, 2, 8)
PLAIN = expand(parse("prism_2025")).options | {"key_bias": 2.0, "reset_bias": -2.0}
SHARED = {name: value for name, value in PLAIN.items() if name != "gamma"}
COMMON = {**SHARED, "cursors": 2, "d_pe": 8, "hidden": 5}


def pair(**options):
    torch.manual_seed(0)
    same = {**COMMON, "similarity": "geometric", "base": 50.0, "gate_scale": 1.3, **options}
    plain = PRISM(SHAPE, gamma=1.0, **same).double()
    with torch.no_grad():
        for parameter in plain.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    spectral = PRISMSpectral(SHAPE, **same).double()
    spectral.load_state_dict(plain.state_dict())
    return plain, spectral


def score(encoding, x, pos=None, mode=None):
    pos = torch.arange(x.shape[1])[None] if pos is None else pos
    ctx = encoding.prepare(Pass(pos=pos, x=x, mode=mode))
    q, k = torch.randn(2, *x.shape[:1], 2, x.shape[1], 4, dtype=D, generator=torch.manual_seed(1))
    out = []
    for layer in range(2):
        q2, k2 = encoding.transform(q, k, ctx.at(layer, x))
        out.append(q2 @ k2.mT)
    return torch.stack(out)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"copy_every": 2},
        {"copy_every": 2, "copy_gate": True, "alpha": 1.5, "query_bias": 1.0},
        {"controller": "latch", "before": "0+1"},
        {"similarity": "geometric", "base": 100.0},
    ],
    ids=lambda options: ",".join(options) or "plain",
)
@pytest.mark.parametrize("mode", [None, "snapped"])
def test_it_equals_prism_without_sharpening(options, mode):
    plain, spectral = pair(**options)
    x = torch.randn(3, 9, 6, dtype=D, requires_grad=True)
    a, b = score(plain, x, mode=mode), score(spectral, x, mode=mode)
    torch.testing.assert_close(a, b, atol=3e-6, rtol=1e-5)  # sinusoids are float32
    if mode is None:
        (got,) = torch.autograd.grad(b.sin().sum(), x)
        (want,) = torch.autograd.grad(a.sin().sum(), x)
        torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-4)


def test_its_state_has_a_constant_size():
    spectral = pair()[1].eval()
    memo, sizes = Memo(), set()
    for t in range(12):
        x = torch.randn(1, 1, 6, dtype=D)
        spectral.prepare(Context(pos=torch.arange(t + 1)[None], x=x, n_new=1, memo=memo))
        past = memo["prism_spectral.0"].marks[-1].past
        sizes.add(past.state.numel() + past.scan.numel())
    assert len(sizes) == 1


def test_large_strides_move_by_their_size():
    torch.manual_seed(0)
    encoding = PRISMSpectral(SHAPE, **{**COMMON, "stride": 2}).double()
    (layer,) = encoding.layers
    with torch.no_grad():  # every cursor steps by -2, never resets
        layer.gate.linear.weight.zero_()
        bias = layer.gate.linear.bias.view(-1, 6)
        bias.fill_(-100.0)
        bias[:, 4] = 100.0
    x = torch.randn(1, 5, 6, dtype=D)
    streams, _ = layer(x, Pass(pos=torch.arange(5)[None], x=x), None)
    angle = -2 * torch.arange(1, 6)[:, None] * encoding.options.frequencies(torch.device("cpu"))
    want = torch.cat([angle.cos(), angle.sin()], -1).to(D)
    torch.testing.assert_close(streams[0, :, 0], want, atol=1e-5, rtol=0)


def test_its_defaults_are_prisms_without_leads():
    one, two = vars(PRISM(SHAPE).options), vars(PRISMSpectral(SHAPE).options)
    differing = {name for name in one.keys() | two.keys() if one.get(name) != two.get(name)}
    assert differing == {"lead", "gamma", "eps"}
    with pytest.raises(ValueError, match="stride must be at least 1"):
        PRISMSpectral(SHAPE, stride=0)
