"""Gates' probabilities in one loop against torch's operations."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pezoo.kernels.gates import probabilities
from pezoo.kernels.installed import installed

compiled = pytest.mark.skipif(not installed("numba"), reason="numba is not installed")


def drawn(*size, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*size, generator=generator, dtype=torch.float64)


@compiled
@settings(max_examples=20, deadline=None)
@given(
    size=st.sampled_from([(1, 2), (3, 4), (2, 5, 6)]),
    noisy=st.booleans(),
    sharp=st.sampled_from([1.0, 900.0]),  # the exponentials of these do not exist
    seed=st.integers(0, 10**6),
)
def test_values_and_gradients_are_torchs(size, noisy, sharp, seed):
    noise = drawn(*size, seed=seed + 1) if noisy else None
    results = []
    for backend in ("reference", "numba"):
        logits = (sharp * drawn(*size, seed=seed)).requires_grad_()
        out = probabilities(logits, noise, 1.5, backend=backend)
        loss = sum((x * drawn(*x.shape, seed=2)).sum() for x in out)
        results.append((*out, *torch.autograd.grad(loss, logits)))
    for got, wanted in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-14)


@compiled
def test_gradients_are_those_of_finite_differences():
    logits = drawn(2, 3, 4).requires_grad_()
    noise = drawn(2, 3, 4, seed=1)
    torch.autograd.gradcheck(lambda x: probabilities(x, noise, 1.5, backend="numba"), logits)


def test_nan_is_kept():
    reset, moves = probabilities(torch.tensor([[torch.nan, 0.0, torch.nan]]), None, 1.0)
    assert reset.isnan().all()
    assert moves.isnan().all()


def test_what_numba_cannot_run():
    half = torch.zeros(1, 3, dtype=torch.bfloat16)
    assert probabilities(half, None, 1.0)[0].dtype == torch.bfloat16
    with pytest.raises(ValueError, match="bfloat16 on cpu; take 'auto' or 'reference'"):
        probabilities(half, None, 1.0, backend="numba")
    with pytest.raises(ValueError, match="reference"):
        probabilities(half, None, 1.0, backend="referenc")
