"""The numba back end of the histogram scan: the memory it touches, and threads."""

import itertools

import numpy as np
import pytest
import torch

pytest.importorskip("numba")

from pezoo.kernels.histogram import histogram_scan
from pezoo.kernels.histogram import numba_active as active
from pezoo.kernels.histogram import numba_loops as loops
from pezoo.kernels.histogram.reference import grown, tokens_seen


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("moves", [3, 5, 7])
def test_nothing_is_read_or_written_outside_of_the_arrays(dtype, moves):
    """Guards around each array stay as they are, and what scratch holds before does not matter."""
    draws, guard = np.random.default_rng(0), 64
    for b, t, c, seen, copies, every, gamma in itertools.product(
        (1, 3), (1, 2, 5, 9), (1, 3), (0, 2), (None, -1, 0, 1), (1, 2), (False, True)
    ):
        buffers = []

        def guarded(n, value, buffers=buffers):
            buffer = np.full(n + 2 * guard, np.nan, dtype)
            buffer[guard : guard + n] = value
            buffers.append(buffer)
            return buffer[guard : guard + n]

        width = loops.BLOCK * (c % 2)  # of a table
        first = grown(1, seen, moves)
        bins = grown(first, t, moves)
        assert tokens_seen(bins, moves) == seen + t
        sources = 0 if copies is None else seen + t + copies
        copying = (c + every - 1) // every if sources else 0
        copied = copying, every, sources
        size = loops.Sizes(t, c, moves, *copied, first, bins, width, gamma)
        n, shares = b * t * c, draws.dirichlet([1] * 2 * moves, b * t * c)
        x = loops.Inputs(
            guarded(b * c * first, 1 / first),
            guarded(n * moves, shares[:, :moves].ravel()),
            guarded(n * moves, shares[:, moves:].ravel()),
            guarded(b * t * copying * sources, 0.5 / max(sources, 1)),
            guarded(b * c if gamma else 0, 2),
        )
        d = loops.Inputs(*(guarded(array.size, 0) for array in x))
        out = guarded(n * bins, np.nan)
        given = n // t if width else n
        grad = guarded(given * bins, draws.random(given * bins))
        table = guarded(bins * width, draws.random(bins * width))
        columns = guarded((bins + loops.LANES) * width, 1)
        streams = guarded(n * width, np.nan)
        scratch = guarded(loops.scratch_size(size), np.nan)
        given = addresses(x), dtype(1e-8), size, out.ctypes.data
        ahead = table.ctypes.data, streams.ctypes.data
        back = grad.ctypes.data, addresses(d), columns.ctypes.data, streams.ctypes.data
        middle = b * c // 2  # which may cut a sample in two
        for loop, own in ((loops.forward, ahead), (loops.backward, back)):
            for first_row, end in ((0, middle), (middle, b * c)):
                scratch[:] = np.nan
                loop(*given, *own, first_row, end, scratch.ctypes.data)
        if gamma:
            below = guarded((bins + 1) * width, 0)
            below.reshape(-1, width)[1:] = table.reshape(bins, width).cumsum(0)
            last, few = guarded(b * c * bins, np.nan), guarded(n * width, np.nan)
            room = guarded(active.scratch_size(size), np.nan)
            more = table.ctypes.data, below.ctypes.data, last.ctypes.data
            for first_row, end in ((0, middle), (middle, b * c)):
                room[:] = np.nan
                own = *more, first_row, end, room.ctypes.data
                active.forward(addresses(x), dtype(1e-8), size, few.ctypes.data, *own)
            np.testing.assert_allclose(few, streams, atol=1e-5)
            want = out.reshape(b, t, c * bins)[:, -1].ravel()
            np.testing.assert_allclose(last, want, atol=1e-6)
        assert np.isfinite(out).all()
        assert np.isfinite(streams).all()
        assert all(np.isfinite(array).all() for array in d)
        for buffer in buffers:
            assert np.isnan(buffer[:guard]).all()
            assert np.isnan(buffer[-guard:]).all()


def addresses(arrays):
    return loops.Inputs(*(array.ctypes.data for array in arrays))


def test_threads_share_the_rows():
    torch.manual_seed(0)
    reset = torch.rand(5, 6, 7, requires_grad=True)
    moves = torch.randn(5, 6, 7, 5).softmax(-1).requires_grad_()
    results = []
    for threads in (1, 3, 40):
        torch.set_num_threads(threads)
        try:
            h = histogram_scan(reset, moves, torch.full((7,), 2.0), backend="numba")
            results.append((h, *torch.autograd.grad(h[..., 4].sum(), (reset, moves))))
        finally:
            torch.set_num_threads(1)
    for one, *others in zip(*results, strict=True):
        assert all(torch.equal(one, other) for other in others)
