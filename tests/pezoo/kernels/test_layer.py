"""A fused layer computes what its modules compute."""

import pytest
import torch

pytest.importorskip("numba")

from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import gelu

from pezoo.kernels import layer
from pezoo.kernels.layer_numba import Read, Write


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def modules(width, hidden):
    """qkv, out, norm, up and down, with weights unlike those at the start."""
    torch.manual_seed(width + hidden)
    norm = nn.LayerNorm(width)
    for parameter in norm.parameters():
        nn.init.normal_(parameter, 1.0)
    sizes = ((width, 3 * width), (width, width), (width, hidden), (hidden, width))
    qkv, out, up, down = (nn.Linear(*size) for size in sizes)
    return qkv, out, norm, up, down


def plain_read(x, norm, qkv, heads):
    b, t, _ = x.shape
    q, k, v = qkv(norm(x)).view(b, t, 3, heads, -1).unbind(2)
    return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)


def plain_write(x, y, out, norm, up, down):
    z = x + out(y)
    return z + down(gelu(up(norm(z))))


def outcome(function, inputs, layers, *more):
    """Outputs and the gradients of inputs and weights, for fixed gradients of the outputs."""
    inputs = [x.detach().clone().requires_grad_() for x in inputs]
    found = function(*inputs, *layers, *more)
    found = found if isinstance(found, tuple) else (found,)
    weights = [weight for module in layers for weight in module.parameters()]
    ramps = [torch.linspace(-1, 2, y.numel(), dtype=y.dtype).view(y.shape) for y in found]
    total = sum((y * ramp).sum() for y, ramp in zip(found, ramps, strict=True))
    return [*found, *torch.autograd.grad(total, [*inputs, *weights])]


def assert_same(fused, plain, inputs, layers, *more):
    """To float32's rounding of sums over all rows."""
    got = outcome(fused, inputs, layers, *more)
    exact = [module.double() for module in layers]
    wanted = outcome(plain, [x.double() for x in inputs], exact, *more)
    for a, b in zip(got, wanted, strict=True):
        torch.testing.assert_close(
            a.double(), b, rtol=1e-5, atol=2e-6 * max(1.0, float(b.detach().abs().max()))
        )


SIZES = {
    "b": st.integers(1, 3),
    "t": st.integers(1, 60),
    "width": st.sampled_from([16, 48]),
    "threads": st.sampled_from([1, 2]),
}


@settings(max_examples=15, deadline=None)
@given(**SIZES)
def test_reading_for_all_sizes(b, t, width, threads):
    torch.set_num_threads(threads)
    qkv, _, norm, *_ = modules(width, 16)
    x = torch.randn(b, t, width) * 3 + 1
    assert_same(layer.read, plain_read, [x], [norm, qkv], 4)


@settings(max_examples=15, deadline=None)
@given(**SIZES, hidden=st.sampled_from([16, 64]))
def test_writing_for_all_sizes(b, t, width, threads, hidden):
    torch.set_num_threads(threads)
    _, *layers = modules(width, hidden)
    x, y = torch.randn(2, b, t, width)
    assert_same(layer.write, plain_write, [x, y], layers)


@pytest.mark.slow  # compiled once more, for float64
def test_gradients_in_double_precision():
    qkv, out, norm, up, down = (module.double() for module in modules(16, 32))
    x, y = torch.randn(2, 7, 16, dtype=torch.float64)
    first = [x, *norm.parameters(), *qkv.parameters()]
    rest = [w for module in (out, norm, up, down) for w in module.parameters()]
    for function, given_ in ((Read, first), (Write, [x, y, *rest])):
        tensors = [w.detach().requires_grad_() for w in given_]
        place = 1 if function is Read else 2  # of the layer norm's eps

        def call(*args, function=function, place=place):
            return function.apply(*args[:place], 1e-5, *args[place:])

        torch.autograd.gradcheck(call, tensors, fast_mode=True)


@pytest.mark.parametrize("largest", [1e-3, 6.0, 15.0])
def test_gelu_is_torchs_to_rounding(largest):
    """With weights that pass numbers on, nothing but GELU is left."""
    width = 512
    _, *layers = modules(width, width)
    *_, up, down = layers
    with torch.no_grad():
        for weight in (w for module in layers for w in module.parameters()):
            weight.zero_()
        down.weight.copy_(torch.eye(width))
        up.bias.copy_(torch.linspace(-largest, largest, width))
    got = layer.write(*torch.zeros(2, 1, 1, width), *layers).flatten()
    (slope,) = torch.autograd.grad(got.sum(), up.bias)
    x = up.bias.detach().double().requires_grad_()
    wanted = gelu(x)
    (exact,) = torch.autograd.grad(wanted.sum(), x)
    ulp = torch.finfo(torch.float32).eps
    assert (got - wanted).abs().max() <= ulp * max(1, largest)
    assert (slope - exact).abs().max() <= 3 * ulp


def test_what_is_not_finite_stays_so():
    _, *layers = modules(16, 16)
    x, y = torch.zeros(2, 1, 9, 16)
    x[0, 3, 2] = torch.nan
    got = layer.write(x, y, *layers)[0]
    assert got[3].isnan().all()
    assert got[[0, 1, 2, 4, 5, 6, 7, 8]].isfinite().all()


def test_where_it_runs():
    x = torch.zeros(1, 2, 16)
    assert layer.takes(x, x)
    assert not layer.takes(x.double(), x.double())
    assert not layer.takes(x, x.bfloat16())
    with torch.no_grad():
        assert not layer.takes(x, x)
    with torch.autocast("cpu", torch.bfloat16):
        assert not layer.takes(x, x)
    assert layer.suits(16, 64, "cpu")
    assert not layer.suits(24, 96, "cpu")
    assert not layer.suits(16, 64, "cuda")
