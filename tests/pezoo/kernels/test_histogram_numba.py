"""The numba back end of the histogram scan: the memory it touches, streamed stores, threads."""

import itertools

import numpy as np
import pytest
import torch

pytest.importorskip("numba")

from pezoo.kernels.histogram import Gates, histogram_scan
from pezoo.kernels.histogram import numba as module
from pezoo.kernels.histogram import numba_loops as loops
from pezoo.kernels.histogram import numba_rows as places
from pezoo.kernels.simd.vector import LANES

types = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def addresses(kind, arrays):
    return kind(*(array.ctypes.data for array in arrays))


@types
@pytest.mark.parametrize("one_sided", [False, True])
def test_nothing_is_read_or_written_outside_of_the_arrays(dtype, one_sided):
    """Guards around each array stay as they are, and what scratch holds before does not matter."""
    draws, guard = np.random.default_rng(0), 64
    for b, t, c, first, copies, gamma in itertools.product(
        (1, 3), (1, 2, 3, 5, 9), (1, 3, 8), (1, 5), (False, True), (False, True)
    ):
        buffers = []

        def guarded(n, value, buffers=buffers):
            buffer = np.full(n + 2 * guard, 12345, dtype)
            buffer[guard : guard + n] = value
            buffers.append(buffer)
            return buffer[guard : guard + n]

        bins = first + (1 if one_sided else 2) * t
        sources = (first - 1 if one_sided else first // 2) + t if copies else 0
        size = places.Sizes(t, c, sources, first, bins, one_sided, gamma, False)
        n, moves = b * t * c, draws.dirichlet([1, 1, 1, 1], b * t * c)
        x = places.Inputs(
            *(guarded(n, moves[:, i]) for i in range(3)), guarded(n, 0.5),
            guarded(n * sources, 0.5 / max(sources, 1)),
            guarded(b * c if gamma else 0, 2), guarded(b * c * first, 1 / first),
        )  # fmt: skip
        d = places.Inputs(*(guarded(array.size, 0) for array in x))
        out, grad = guarded(n * bins, np.nan), guarded(n * bins, draws.random(n * bins))
        groups = -(b * c // -LANES)
        rows = module.row_starts(b * c, groups, size)
        scratch = guarded(places.ARRAYS * (bins + 2 * places.PAD) * LANES, np.nan)
        more = addresses(places.Rows, rows), groups * LANES, scratch.ctypes.data
        given = addresses(places.Inputs, x), dtype(1e-8), size, out.ctypes.data
        loops.forward(*given, *more)
        scratch[:] = np.nan
        loops.backward(*given, grad.ctypes.data, addresses(places.Inputs, d), *more)
        assert np.isfinite(out).all()
        assert all(np.isfinite(array).all() for array in d)
        for buffer in buffers:
            assert (buffer[:guard] == 12345).all()
            assert (buffer[-guard:] == 12345).all()


@types
def test_what_is_written_past_the_caches_is_the_same(dtype, monkeypatch):
    x = torch.from_numpy(np.random.default_rng(0).dirichlet([1, 1, 1, 1], (2, 5, 16)).astype(dtype))
    gates, gamma = Gates(*x.unbind(-1)[:3]), torch.full((16,), 2.0, dtype=x.dtype)
    usual = histogram_scan(gates, gamma, backend="numba")
    asked = []
    monkeypatch.setattr(module, "STREAMED", 0)
    monkeypatch.setattr(module, "Sizes", lambda *all: asked.append(all[-1]) or places.Sizes(*all))
    assert torch.equal(histogram_scan(gates, gamma, backend="numba"), usual)
    histogram_scan(Gates(*(gate[..., :9] for gate in gates)), gamma[:9], backend="numba")
    assert asked == [True, False]  # nine cursors are no whole vectors


def test_threads_share_the_rows():
    torch.manual_seed(0)
    moves = torch.randn(5, 6, 7, 4).softmax(-1)
    gates = Gates(*(moves[..., i].clone().requires_grad_() for i in range(3)))
    results = []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        try:
            h = histogram_scan(gates, torch.full((7,), 2.0), backend="numba")
            results.append((h, *torch.autograd.grad(h[..., 4].sum(), gates)))
        finally:
            torch.set_num_threads(1)
    for one, three in zip(*results, strict=True):
        assert torch.equal(one, three)
