"""Inner products of features against the kernels that they stand for."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pezoo.functional import sinusoid
from pezoo.prism_math import (
    cosine,
    expected_similarity,
    features,
    kernel_features,
    kernel_matrix,
    laplacian,
    rbf,
)

D = torch.float64
KERNELS = {"rbf": rbf, "laplacian": laplacian}
few = settings(max_examples=40, deadline=None)


def errors(similarity, d, reach, bandwidth=8.0):
    """|<f(0), f(r)> / (d/2) - kappa(r)| for r = 0..reach."""
    r = torch.arange(reach + 1, dtype=D)
    f = features(r, d, similarity, bandwidth=bandwidth)
    return (f @ f[0] / (d / 2) - KERNELS[similarity](r, bandwidth)).abs()


@few
@given(half=st.integers(1, 30), base=st.floats(2, 1e5), start=st.integers(-50, 50))
def test_cosine_features_are_exact(half, base, start):
    offsets = torch.arange(start, start + 20, dtype=D)
    f = features(offsets, 2 * half, base=base)
    got = f @ f.T / half
    want = cosine(offsets[:, None] - offsets, 2 * half, base)
    torch.testing.assert_close(got, want, atol=1e-4, rtol=0)  # frequencies are float32


def test_cosine_features_are_the_sinusoid():
    offsets = torch.arange(-20, 21)
    f, want = features(offsets, 64, base=100.0), sinusoid(offsets, 64, 100.0)
    assert f.dtype == torch.float32
    torch.testing.assert_close(f @ f.T, want @ want.T)
    assert torch.equal(f, want.roll(32, -1))


@pytest.mark.parametrize("similarity", ["cosine", "geometric", "rbf", "laplacian"])
@few
@given(half=st.integers(1, 40), bandwidth=st.floats(0.5, 50), shift=st.integers(-30, 30))
def test_features_have_one_length_and_see_only_differences(similarity, half, bandwidth, shift):
    offsets = torch.arange(-5, 6, dtype=D)
    f, moved = (
        features(z, 2 * half, similarity, bandwidth=bandwidth) for z in (offsets, offsets + shift)
    )
    assert f.shape == (11, 2 * half)
    torch.testing.assert_close(f.square().sum(-1), torch.full((11,), float(half), dtype=D))
    torch.testing.assert_close(f @ f.T, moved @ moved.T)


WIDTHS = (16, 32, 64, 128, 340, 1024)
TABLE = {  # the module's docstring
    ("rbf", 16): (0.030, 0.013, 0.005, 0.002, 0.001, 0.000),
    ("rbf", 64): (0.118, 0.046, 0.022, 0.010, 0.003, 0.001),
    ("rbf", 200): (0.399, 0.150, 0.051, 0.026, 0.010, 0.003),
    ("rbf", "rms"): (0.251, 0.177, 0.122, 0.078, 0.028, 0.008),
    ("laplacian", 16): (0.195, 0.130, 0.067, 0.045, 0.015, 0.008),
    ("laplacian", 64): (0.299, 0.220, 0.118, 0.073, 0.036, 0.014),
    ("laplacian", 200): (0.620, 0.309, 0.211, 0.110, 0.063, 0.023),
    ("laplacian", "rms"): (0.251, 0.177, 0.123, 0.084, 0.041, 0.017),
}


@pytest.mark.parametrize(("similarity", "reach"), TABLE)
def test_the_error_table(similarity, reach):
    if reach == "rms":
        got = [errors(similarity, d, 4000)[200:].square().mean().sqrt().item() for d in WIDTHS]
    else:
        got = [errors(similarity, d, reach).max().item() for d in WIDTHS]
    assert got == pytest.approx(TABLE[similarity, reach], abs=1e-3)  # float32 frequencies


@pytest.mark.parametrize("similarity", KERNELS)
def test_far_away_the_error_is_at_least_one_over_root_d(similarity):
    """Mean square 1/d over a long range, which no width escapes; and unbiased there."""
    r = torch.arange(100_000, 200_000, dtype=D)
    for d in (16, 64):
        f = features(torch.tensor([0.0], dtype=D), d, similarity, bandwidth=8.0)
        far = torch.cat(
            [features(z, d, similarity, bandwidth=8.0) @ f[0] / (d / 2) for z in r.split(20_000)]
        )
        assert far.square().mean().sqrt().item() == pytest.approx(d**-0.5, rel=0.03)
        assert abs(far.mean().item()) < 1e-3


@pytest.mark.parametrize("similarity", KERNELS)
@few
@given(
    start=st.integers(-40, 40),
    length=st.integers(1, 40),
    bandwidth=st.floats(0.3, 60),
)
def test_kernel_features_are_exact(similarity, start, length, bandwidth):
    offsets = torch.arange(start, start + length)
    f = kernel_features(similarity, offsets, bandwidth)
    want = kernel_matrix(lambda r: KERNELS[similarity](r, bandwidth=bandwidth), offsets.to(D))
    tolerance = 1e-12 if similarity == "laplacian" else 3e-9
    torch.testing.assert_close(f @ f.T, want, atol=tolerance, rtol=0)


def test_kernel_features_width():
    offsets = torch.arange(-50, 51)
    assert kernel_features("laplacian", offsets, 8.0).shape == (101, 200)
    widths = [kernel_features("rbf", offsets, b).shape[1] for b in (2.0, 8.0, 32.0)]
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < 50
    sparse = torch.tensor([-7, 0, 12])
    f = kernel_features("laplacian", sparse, 3.0)
    torch.testing.assert_close(f[0] @ f[2], torch.tensor(math.exp(-19 / 3), dtype=D))


@pytest.mark.parametrize("tolerance", [1e-2, 1e-4, 1e-9])
@pytest.mark.parametrize("bandwidth", [2.0, 8.0, 32.0])
def test_the_tolerance_is_kept(tolerance, bandwidth):
    offsets = torch.arange(30)
    f = kernel_features("rbf", offsets, bandwidth, tolerance)
    error = (f @ f[0] - rbf(offsets.double(), bandwidth)).abs().max()
    assert error < 3 * tolerance


def test_streams_give_the_expected_similarity():
    """Equation 8 for histograms: <h_q F, h_k F> = E[kappa(|i - j|)]."""
    generator = torch.Generator().manual_seed(0)
    h_q, h_k = torch.randn(2, 3, 9, generator=generator, dtype=D).softmax(-1)
    offsets = torch.arange(-4, 5)
    for similarity, kernel in KERNELS.items():
        want = expected_similarity(
            h_q, h_k, kernel_matrix(lambda r, kernel=kernel: kernel(r, 3.0), offsets.double())
        )
        f = kernel_features(similarity, offsets, 3.0)
        torch.testing.assert_close(((h_q @ f) * (h_k @ f)).sum(-1), want)
        f = features(offsets.double(), 1024, similarity, bandwidth=3.0)
        torch.testing.assert_close(((h_q @ f) * (h_k @ f)).sum(-1) / 512, want, atol=0.01, rtol=0)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: features(torch.arange(3), 5), "d must be even and at least 2, was given 5; try 6"),
        (lambda: features(torch.arange(3), 4, "gauss"), "unknown similarity 'gauss'"),
        (lambda: features(torch.arange(3), 4, "laplacien"), "did you mean laplacian"),
        (lambda: features(torch.arange(3), 4, "rbf", bandwidth=0.0), "bandwidth must be"),
        (lambda: features(torch.arange(3), 4, base=0.0), "base must be"),
        (lambda: kernel_features("cosine", torch.arange(3), 1.0), "cosine is exact in features"),
        (lambda: kernel_features("rbf", torch.tensor([0.5]), 1.0), "offsets must be whole"),
        (lambda: kernel_features("rbf", torch.arange(0), 1.0), "offsets must be whole"),
        (lambda: kernel_features("rbf", torch.arange(3), -1.0), "bandwidth must be"),
        (lambda: kernel_features("rbf", torch.arange(3), 1.0, 0.0), "tolerance must lie"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()
