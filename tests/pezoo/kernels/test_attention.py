"""Attention in numba computes what attention written out computes."""

import pytest
import torch

pytest.importorskip("numba")

from hypothesis import given, settings
from hypothesis import strategies as st

from pezoo.adapters import BackendError
from pezoo.adapters.backends import causal, eager, numba
from pezoo.base import Pairs
from pezoo.kernels.attention.numba import attend

torch.set_num_threads(1)


def tensors(b, h, t, s, width, features, dtype=torch.float32):
    """q, k and v as a model hands them over: tokens before heads in memory."""
    generator = torch.Generator().manual_seed(b + 10 * h + 100 * t + 1000 * s + width)
    sizes = (t, width), (s, width), (s, features)
    return [
        torch.randn(b, n, h, k, generator=generator, dtype=dtype).transpose(1, 2).requires_grad_()
        for n, k in sizes
    ]


def outcome(function, inputs, mask, scale):
    """The output and the gradient of every input, for a fixed gradient of the output.

    After q, k and v come a bias, or a reader and rows.
    """
    given = [x.detach().clone().requires_grad_() for x in inputs if x is not None]
    q, k, v, *rest = given
    bias = Pairs(*rest) if len(rest) == 2 else rest[0] if rest else None
    if function is eager and isinstance(bias, Pairs):
        bias = bias.dense()
    out = function(q, k, v, bias, mask, scale)
    weight = torch.linspace(-1, 2, out.numel(), dtype=out.dtype).view(out.shape)
    return [out.detach(), *torch.autograd.grad((out * weight).sum(), given)]


def assert_same(inputs, mask=None, scale=0.3, **tolerance):
    tolerance = tolerance or {"atol": 2e-5, "rtol": 2e-5}
    wanted, got = (outcome(f, inputs, mask, scale) for f in (eager, attend))
    for a, b in zip(got, wanted, strict=True):
        torch.testing.assert_close(a, b, **tolerance)


@settings(max_examples=25, deadline=None)
@given(
    b=st.integers(1, 3),
    h=st.integers(1, 3),
    t=st.integers(1, 21),
    more=st.integers(0, 9),
    width=st.integers(1, 19),
    features=st.integers(1, 19),
)
def test_it_is_attention_for_all_sizes(b, h, t, more, width, features):
    mask = causal(t, t + more, torch.device("cpu"))
    assert_same(tensors(b, h, t, t + more, width, features), mask if more else None)


@settings(max_examples=25, deadline=None)
@given(
    b=st.integers(1, 3),
    h=st.integers(1, 3),
    t=st.integers(1, 21),
    more=st.integers(0, 9),
    width=st.integers(1, 12),
    factors=st.integers(1, 12),
    padded=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_a_bias_in_factors_is_the_bias(b, h, t, more, width, factors, padded, dtype):
    inputs = tensors(b, h, t, t + more, width, 3, dtype)
    generator = torch.Generator().manual_seed(factors)
    reader = torch.randn(b, t, h, factors, generator=generator, dtype=dtype).transpose(1, 2)
    rows = torch.randn(1, t, t + more, h, factors, generator=generator, dtype=dtype)
    mask = causal(t, t + more, torch.device("cpu"))
    if padded:
        hidden = torch.arange(t + more) < torch.arange(b)[:, None, None, None]
        mask = (mask & ~hidden) | mask.triu(more)
    tolerance = {"atol": 1e-11, "rtol": 1e-11} if dtype == torch.float64 else {}
    assert_same([*inputs, reader, rows], mask if more or padded else None, **tolerance)


def test_factors_in_any_order_in_memory():
    reader, rows = torch.randn(2, 3, 7, 9).mT, torch.randn(1, 3, 9, 9, 7).permute(0, 2, 3, 1, 4)
    assert_same([*tensors(2, 3, 9, 9, 5, 5), reader, rows])
    assert_same([*tensors(2, 3, 9, 9, 5, 5), reader, rows[:, :, :, :1].expand(-1, -1, -1, 3, -1)])


@pytest.mark.parametrize("shape", [(2, 3, 9, 9), (1, 3, 9, 9), (2, 1, 9, 9), (1, 1, 1, 9), ()])
def test_a_bias_of_every_shape_gets_its_gradient(shape):
    bias = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    assert_same([*tensors(2, 3, 9, 9, 5, 5), bias])


def test_a_bias_in_any_order_in_memory():
    bias = torch.randn(9, 3, 2, 9).permute(2, 1, 0, 3)
    assert_same([*tensors(2, 3, 9, 9, 5, 5), bias])
    bias = torch.randn(2, 3, 9, 9).mT  # keys are not next to each other
    assert_same([*tensors(2, 3, 9, 9, 5, 5), bias])


def test_masks_per_sample_and_keys_that_a_bias_hides():
    mask = torch.ones(2, 1, 9, 9, dtype=torch.bool).tril()
    mask[1, :, :, :4] = False
    mask |= torch.eye(9, dtype=torch.bool)
    bias = torch.zeros(3, 9, 9)
    bias[1, :, 1:] = -torch.inf
    bias += torch.zeros(9, 9).fill_diagonal_(0.0)
    assert_same([*tensors(2, 3, 9, 9, 8, 8)], mask)
    hidden = torch.where(torch.ones(9, 9).tril(-2).bool(), -torch.inf, 0.0)  # the last two alone
    wanted, got = (f(*tensors(2, 3, 9, 9, 8, 8), hidden, mask, 0.3) for f in (eager, attend))
    torch.testing.assert_close(got, wanted, atol=2e-5, rtol=2e-5)
    everything = torch.ones(1, 1, 9, 9, dtype=torch.bool)  # not causal
    assert_same([*tensors(2, 3, 9, 9, 8, 8)], everything)


def test_logits_that_would_overflow_and_rows_with_one_weight():
    q, k, v = tensors(1, 2, 12, 12, 8, 8)
    out = attend(q, k, v, None, None, 1e3)
    torch.testing.assert_close(out, eager(q, k, v, None, None, 1e3))


@pytest.mark.parametrize("t", [5, 6, 7])
def test_logits_far_below_zero_leave_the_last_queries_alone(t):
    q, k, v = (x.detach() for x in tensors(1, 1, t, t, 8, 8, torch.float64))
    q = q.abs() * torch.where(torch.arange(t) < 4, -1e4, 1.0)[:, None]
    assert_same([q, k.abs() + 1, v], atol=1e-9, rtol=1e-6)


@pytest.mark.parametrize("place", ["q", "k", "v", "bias"])
def test_nan_is_not_lost(place):
    inputs = dict(zip("qkv", (x.detach() for x in tensors(1, 2, 9, 9, 8, 8)), strict=True))
    inputs["bias"] = torch.zeros(1, 2, 9, 9)
    inputs[place][0, 1, 3, 2] = torch.nan
    out = attend(*inputs.values(), None, 1.0)
    assert torch.equal(out.isnan(), eager(*inputs.values(), None, 1.0).isnan())


def test_rows_of_other_positions_are_refused():
    q, k, v = tensors(2, 3, 9, 9, 5, 5)
    for shape in [(2, 9, 9, 3, 5), (1, 9, 8, 3, 5), (1, 9, 9, 3, 4)]:
        with pytest.raises(RuntimeError, match="expanded size"):
            attend(q, k, v, Pairs(q, torch.randn(shape)), None, 1.0)


@pytest.mark.parametrize(
    "bias", [[(1, 3, 17, 17)], [(3, 3, 17, 8), (1, 17, 17, 3, 8)]], ids=["dense", "factors"]
)
def test_threads_change_nothing(bias):
    inputs = [*tensors(3, 3, 17, 17, 8, 8), *map(torch.randn, bias)]
    one = outcome(attend, inputs, None, 0.3)
    torch.set_num_threads(3)
    try:
        three = outcome(attend, inputs, None, 0.3)
    finally:
        torch.set_num_threads(1)
    assert all(torch.equal(a, b) for a, b in zip(one[:-1], three[:-1], strict=True))
    torch.testing.assert_close(one[-1], three[-1])  # summed over samples in another order


@pytest.mark.slow
def test_gradients_in_float64():
    q, k, v = tensors(1, 2, 5, 5, 3, 4, torch.float64)
    bias = torch.randn(1, 1, 5, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda *x: attend(*x, None, 0.5), (q, k, v, bias))
    reader, rows = (  # broadcast over heads
        torch.randn(*size, dtype=torch.float64, requires_grad=True)
        for size in ((1, 1, 5, 2), (1, 5, 5, 1, 2))
    )
    assert torch.autograd.gradcheck(
        lambda q, k, v, *x: attend(q, k, v, Pairs(*x), None, 0.5), (q, k, v, reader, rows)
    )


def test_the_adapter_runs_on_a_cpu_alone():
    inputs = [x.detach().to("meta") for x in tensors(1, 2, 9, 9, 8, 8)]
    with pytest.raises(BackendError, match="runs on a CPU"):
        numba(*inputs, None, None, 1.0)
