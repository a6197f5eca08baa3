"""The numba back end from inside: its vectors, its arithmetic, the memory it touches."""

import itertools

import numpy as np
import pytest
import torch

numba = pytest.importorskip("numba")

from pezoo.kernels import histogram_numba, numba_power  # noqa: E402
from pezoo.kernels import histogram_numba_kernels as kernels  # noqa: E402
from pezoo.kernels import histogram_numba_rows as places  # noqa: E402
from pezoo.kernels.histogram import Gates, histogram_scan  # noqa: E402
from pezoo.kernels.histogram_numba_rows import Sizes  # noqa: E402
from pezoo.kernels.numba_math import exp2, log2  # noqa: E402
from pezoo.kernels.numba_memory import (  # noqa: E402
    ask_to_read,
    gather,
    load,
    load_rows,
    scatter,
    store,
    store_rows,
)
from pezoo.kernels.numba_vectors import LANES, larger, splat, where_negative  # noqa: E402

types = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def each_vector(function):
    """A numba function of a vector -> one of arrays."""
    function = numba.njit(function)

    @numba.njit
    def run(x, out):
        for i in range(0, x.size, LANES):
            store(out, i, function(load(x, i)))

    def call(x):
        out = np.empty_like(x)
        run(x, out)
        return out

    return call


def test_log2_is_accurate_to_float32():
    x = np.geomspace(1.2e-38, 3e38, 1 << 20, dtype=np.float32)
    near_one = 1 + np.linspace(-0.5, 1, 1 << 16, dtype=np.float32)
    for values in (x, near_one):
        want = np.log2(values.astype(np.float64))
        got = each_vector(lambda x: log2(x))(values)
        assert (np.abs(got - want) <= 3e-7 * np.abs(want)).all()


def test_exp2_is_accurate_to_float32():
    x = -np.linspace(0, 126, 1 << 20, dtype=np.float32)
    run = each_vector(lambda x: exp2(x))
    want = np.exp2(x.astype(np.float64))
    assert (np.abs(run(x) - want) <= 3e-7 * want).all()
    assert run(np.zeros(LANES, np.float32)).tolist() == [1.0] * LANES
    assert not run(np.full(LANES, -1e30, np.float32)).any()


def test_logarithm_and_power_in_loops_are_accurate_to_float32():
    x = np.geomspace(1.2e-38, 3e38, 1 << 18, dtype=np.float32)
    near_one = 1 + np.linspace(-0.5, 1, 1 << 16, dtype=np.float32)
    log = each_vector(lambda x: numba_power.log2(x, numba_power.log_terms(0 * x)))
    for values in (x, near_one):
        want = np.log2(values.astype(np.float64))
        assert (np.abs(log(values) * 2.0**-23 - want) <= 3e-7 * np.abs(want)).all()
    x = -np.linspace(-1, 126, 1 << 18, dtype=np.float32)
    power = each_vector(lambda x: numba_power.exp2(x, numba_power.power_terms(0 * x)))
    want = np.exp2(x.astype(np.float64))
    assert (np.abs(power(x) - want) <= 3e-7 * want).all()
    assert power(np.zeros(LANES, np.float32)).tolist() == [1.0] * LANES
    assert not power(np.full(LANES, -1e30, np.float32)).any()
    assert np.isnan(power(np.full(LANES, np.nan, np.float32))).all()


def test_float64_calls_the_library():
    x = np.linspace(0.1, 3, 800)
    np.testing.assert_allclose(each_vector(lambda x: log2(x))(x), np.log2(x), rtol=1e-15)
    np.testing.assert_allclose(each_vector(lambda x: exp2(x))(-x), np.exp2(-x), rtol=1e-15)
    log = each_vector(lambda x: numba_power.log2(x, numba_power.log_terms(0 * x)))
    np.testing.assert_allclose(log(x), np.log2(x) * 2**23, rtol=1e-15)
    power = each_vector(lambda x: numba_power.exp2(x, numba_power.power_terms(0 * x)))
    np.testing.assert_allclose(power(-x), np.exp2(-x), rtol=1e-15)


@types
def test_vectors_compute_like_arrays(dtype):
    x = np.random.default_rng(0).standard_normal(10 * LANES).astype(dtype)
    run = each_vector(lambda x: (1 - x) * (x + 2) / (x * x + 3) - 0.5 * splat(4, x))
    np.testing.assert_allclose(run(x), (1 - x) * (x + 2) / (x * x + 3) - 2, rtol=1e-5)
    np.testing.assert_array_equal(each_vector(lambda x: larger(x, 0 * x))(x), np.maximum(x, 0))
    run = each_vector(lambda x: where_negative(x, splat(-1, x), splat(1, x)))
    np.testing.assert_array_equal(run(x), np.where(x < 0, -1, 1))


@types
def test_rows_are_transposed(dtype):
    x = np.arange(40 * LANES).astype(dtype)
    at = np.random.default_rng(0).permutation(15)[:LANES] * 2 * LANES
    lines, back = np.zeros(LANES * LANES + 1, dtype), np.zeros_like(x)

    @numba.njit
    def turn(x, at, lines, back, factors):
        ask_to_read(x, at[0])
        load_rows(x, at, 3, lines, 1)
        store_rows(back, at, 3, lines, 1, load(factors, 0))
        scatter(back, at, 2, gather(x, at, 2))

    turn(x, at, lines, back, np.arange(1, LANES + 1).astype(dtype))
    rows = at[:, None] + 3 + np.arange(LANES)
    np.testing.assert_array_equal(lines[1:].reshape(LANES, LANES), x[rows].T)
    np.testing.assert_array_equal(back[rows], x[rows] * np.arange(1, LANES + 1)[:, None])
    np.testing.assert_array_equal(back[at + 2], x[at + 2])
    assert lines[0] == 0
    assert (np.delete(back, [*rows.ravel(), *(at + 2)]) == 0).all()


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
        size = places.Sizes(t, c, sources, first, bins, one_sided, False)
        n, moves = b * t * c, draws.dirichlet([1, 1, 1, 1], b * t * c)
        x = places.Inputs(
            *(guarded(n, moves[:, i]) for i in range(3)), guarded(n, 0.5),
            guarded(n * sources, 0.5 / max(sources, 1)),
            guarded(b * c if gamma else 0, 2), guarded(b * c * first, 1 / first),
        )  # fmt: skip
        d = places.Inputs(*(guarded(array.size, 0) for array in x))
        out, grad = guarded(n * bins, np.nan), guarded(n * bins, draws.random(n * bins))
        row = np.minimum(np.arange(-(b * c // -LANES) * LANES), b * c - 1)
        gate = row // c * t * c + row % c
        own = np.arange(row.size) % LANES * bins
        rows = places.Rows(row, row * first, gate, gate * sources, gate * bins, own)
        shape = places.ARRAYS, (bins + 2 * places.PAD) * LANES
        scratch = guarded(shape[0] * shape[1], np.nan).reshape(shape)
        kernels.forward(x, dtype(1e-8), size, out, rows, scratch)
        scratch[:] = np.nan
        kernels.backward(x, dtype(1e-8), size, out, grad, d, rows, scratch)
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
    monkeypatch.setattr(histogram_numba, "STREAMED", 0)
    monkeypatch.setattr(histogram_numba, "Sizes", lambda *all: asked.append(all[-1]) or Sizes(*all))
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
