"""Steps of more than one offset: against a plain loop, the scan of step one, and the spectrum."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pezoo.kernels.histogram import Copy, Gates, histogram_scan
from pezoo.kernels.histogram.strides import steps_of, strided_scan
from pezoo.kernels.spectral import spectral_scan

D = torch.float64


def drawn(stride, t, copies=False, b=2, c=3, seed=0):
    torch.manual_seed(seed)
    reset = torch.rand(b, t, c, dtype=D)
    moves = torch.randn(b, t, c, 2 * stride + 1, dtype=D).softmax(-1)
    if not copies:
        return reset, moves, None
    chances = torch.rand(b, t, c, t + 1, dtype=D).tril()  # token i copies from those before it
    chances[..., -1] = 1
    chances = torch.stack([_earlier(chances[:, i], i) for i in range(t)], 1)
    return reset, moves, Copy(chances[..., -1], chances[..., :-1])


def _earlier(chances, i):
    keep = torch.arange(chances.shape[-1]) < i
    keep[-1] = True
    chances = torch.where(keep, chances + 0.1, 0.0)
    return chances / chances.sum(-1, keepdim=True)


def oracle(reset, moves, gamma, copy, eps):
    """One number at a time, over a dict of offsets."""
    b, t, c, j = moves.shape
    stride, reach = j // 2, t * (j // 2)
    out = torch.zeros(b, t, c, 2 * reach + 1, dtype=D)
    for row in range(b):
        for cursor in range(c):
            h = {0: 1.0}
            for i in range(t):
                r, new = float(reset[row, i, cursor]), {}
                for offset, mass in h.items():
                    for start, share in ((offset, 1 - r), (0, r)):
                        for step, p in zip(steps_of(stride), moves[row, i, cursor], strict=True):
                            new[start + step] = new.get(start + step, 0) + mass * share * float(p)
                if copy is not None:
                    new = {d: p * float(copy.none[row, i, cursor]) for d, p in new.items()}
                    for token in range(i):
                        new[token + 1] += float(copy.source[row, i, cursor, token])
                if gamma is not None:
                    new = {
                        d: (new.get(d, 0.0) + eps) ** float(gamma[cursor])
                        for d in range(-stride * (i + 1), stride * (i + 1) + 1)
                    }
                    new = {d: p / sum(new.values()) for d, p in new.items()}
                h = new
                for d, p in h.items():
                    out[row, i, cursor, reach + d] = p
    return out


@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize("gamma", [None, 1.7])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_it_is_the_filter_one_number_at_a_time(stride, gamma, copies):
    reset, moves, copy = drawn(stride, 5, copies)
    sharp = None if gamma is None else torch.full((3,), gamma, dtype=D)
    got = strided_scan(reset, moves, sharp, eps=1e-3, copy=copy)
    torch.testing.assert_close(got, oracle(reset, moves, sharp, copy, 1e-3))


@given(seed=st.integers(0, 99), copies=st.booleans(), sharp=st.booleans())
@settings(max_examples=20, deadline=None)
def test_at_stride_one_it_is_histogram_scan(seed, copies, sharp):
    reset, moves, copy = drawn(1, 6, copies, seed=seed)
    gamma = torch.rand(3, dtype=D) + 1 if sharp else None
    gates = Gates(reset, moves[..., 0], moves[..., 1])
    want = histogram_scan(gates, gamma, copy=copy, backend="reference")
    torch.testing.assert_close(strided_scan(reset, moves, gamma, copy=copy), want)


def test_its_superposition_is_the_spectrum():
    reset, moves, _ = drawn(2, 7)
    w = torch.tensor([math.pi, 1.1, 0.3], dtype=D)
    h = strided_scan(reset, moves, None)
    offsets = torch.arange(-14, 15, dtype=D)
    got = torch.cat([h @ (offsets[:, None] * w).cos(), h @ (offsets[:, None] * w).sin()], -1)
    angles = torch.tensor(steps_of(2), dtype=D)[:, None] * w
    torch.testing.assert_close(got, spectral_scan(reset, moves, angles, None))


@pytest.mark.parametrize("split", [1, 3, 5])
def test_it_goes_on_from_a_state(split):
    reset, moves, copy = drawn(2, 6, True)
    gamma = torch.tensor([1.0, 1.3, 2.0], dtype=D)
    whole = strided_scan(reset, moves, gamma, copy=copy)
    first = strided_scan(
        reset[:, :split], moves[:, :split], gamma,
        copy=Copy(copy.none[:, :split], copy.source[:, :split, :, :split]),
    )  # fmt: skip
    last = Copy(copy.none[:, split:], copy.source[:, split:])
    second = strided_scan(reset[:, split:], moves[:, split:], gamma, first[:, -1], copy=last)
    torch.testing.assert_close(second, whole[:, split:])


def test_gradients():
    reset, moves, copy = drawn(2, 3, True, b=1, c=2)
    gamma = torch.tensor([1.2, 1.9], dtype=D)

    def scan(reset, moves, gamma, none, source):
        return strided_scan(reset, moves, gamma, eps=1e-2, copy=Copy(none, source))

    inputs = [x.requires_grad_() for x in (reset, moves, gamma, *copy)]
    assert torch.autograd.gradcheck(scan, inputs)


def test_no_token_is_refused():
    with pytest.raises(ValueError, match="at least one token"):
        strided_scan(torch.zeros(2, 0, 3), torch.zeros(2, 0, 3, 5), None)


def test_the_strided_scan_has_second_derivatives():
    reset, moves, copy = drawn(2, 3, copies=True, b=1, c=2)
    gamma = torch.tensor([1.2, 1.7], dtype=D)
    inputs = [x.requires_grad_() for x in (reset, moves, gamma, copy.none, copy.source)]

    def scan(reset, moves, gamma, none, source):
        return strided_scan(reset, moves, gamma, eps=1e-3, copy=Copy(none, source))

    assert torch.autograd.gradgradcheck(scan, inputs)
