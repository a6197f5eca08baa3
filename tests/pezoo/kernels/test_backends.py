"""Choice of a kernel's back end by device, dtype and installed packages."""

import sys

import pytest
import torch

from pezoo.kernels.backends import FASTEST, backends, choose, fastest

NUMBERS = torch.zeros(1, 1, 1)


@pytest.fixture(params=[True, False], ids=["installed", "not installed"])
def numba(request, monkeypatch):
    """Return True if numba can be imported."""
    monkeypatch.setitem(sys.modules, "numba", sys if request.param else None)
    return request.param


@pytest.mark.parametrize("kernel", FASTEST)
def test_on_a_cpu_it_is_numba_where_that_is_installed(kernel, numba):
    assert fastest(kernel, "cpu") == ("numba" if numba else "reference")
    assert choose(kernel, NUMBERS) == ("numba" if numba else "reference")
    assert choose(kernel, NUMBERS.half()) == "reference"
    assert choose(kernel, NUMBERS, "reference") == "reference"
    assert set(backends(kernel)) >= {"numba", "reference"}


@pytest.mark.parametrize("device", ["cuda", "mps", "meta"])
def test_on_other_devices(device, monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", sys)
    assert fastest("spectral", device) == "parallel"
    assert fastest("histogram", device) == ("triton" if device == "cuda" else "reference")
    monkeypatch.setitem(sys.modules, "triton", None)  # makes its import fail
    assert fastest("histogram", device) == "reference"


@pytest.mark.parametrize(
    ("like", "backend", "words"),
    [
        (NUMBERS, "nubma", "unknown back end 'nubma'; did you mean numba"),
        (NUMBERS.half(), "numba", "'numba' computes in float32 or float64"),
        (NUMBERS.to("meta"), "numba", "'numba' runs on a CPU"),
        (NUMBERS, "triton", "'triton' runs on a CUDA device"),
    ],
)
def test_back_ends_that_cannot_run(like, backend, words):
    with pytest.raises(ValueError, match=words):
        choose("histogram", like, backend)


def test_a_back_end_that_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    with pytest.raises(ValueError, match="'numba' cannot be imported: pip install numba"):
        choose("spectral", NUMBERS, "numba")
