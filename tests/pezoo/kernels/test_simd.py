"""The vectors of the numba back ends: arithmetic, memory, and where machine code is kept."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

numba = pytest.importorskip("numba")

from pezoo.kernels.simd import compile  # noqa: E402
from pezoo.kernels.simd.functions import UNIT, exp2, log2, log_terms, power_terms  # noqa: E402
from pezoo.kernels.simd.vector import LANES, larger, load, pointer, splat, store  # noqa: E402

types = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def each_vector(function):
    """A numba function of a vector -> one of arrays."""
    function = numba.njit(function)

    @numba.njit
    def run(x, out):
        size = x.size
        x, out = pointer(x.ctypes.data, x[0]), pointer(out.ctypes.data, out[0])
        for i in range(0, size, LANES):
            store(out, i, function(load(x, i)))

    def call(x):
        out = np.empty_like(x)
        run(x, out)
        return out

    return call


def test_logarithm_and_power_are_accurate_to_float32():
    x = np.geomspace(1.2e-38, 3e38, 1 << 20, dtype=np.float32)
    near_one = 1 + np.linspace(-0.5, 1, 1 << 16, dtype=np.float32)
    log = each_vector(lambda x: log2(x, log_terms(0 * x)))
    for values in (x, near_one):
        want = np.log2(values.astype(np.float64))
        assert (np.abs(log(values) * UNIT - want) <= 3e-7 * np.abs(want)).all()
    x = -np.linspace(-1, 126, 1 << 20, dtype=np.float32)
    power = each_vector(lambda x: exp2(x, power_terms(0 * x)))
    want = np.exp2(x.astype(np.float64))
    assert (np.abs(power(x) - want) <= 3e-7 * want).all()
    assert power(np.zeros(LANES, np.float32)).tolist() == [1.0] * LANES
    assert not power(np.full(LANES, -1e30, np.float32)).any()
    assert np.isnan(power(np.full(LANES, np.nan, np.float32))).all()


def test_float64_calls_the_library():
    x = np.linspace(0.1, 3, 800)
    log = each_vector(lambda x: log2(x, log_terms(0 * x)))
    np.testing.assert_allclose(log(x), np.log2(x) / UNIT, rtol=1e-15)
    power = each_vector(lambda x: exp2(x, power_terms(0 * x)))
    np.testing.assert_allclose(power(-x), np.exp2(-x), rtol=1e-15)


@types
def test_vectors_compute_like_arrays(dtype):
    x = np.random.default_rng(0).standard_normal(10 * LANES).astype(dtype)
    run = each_vector(lambda x: (1 - x) * (x + 2) / (x * x + 3) - 0.5 * splat(4, x))
    np.testing.assert_allclose(run(x), (1 - x) * (x + 2) / (x * x + 3) - 2, rtol=1e-5)
    np.testing.assert_array_equal(each_vector(lambda x: larger(x, 0 * x))(x), np.maximum(x, 0))


KERNEL = """
import sys
sys.path.insert(0, {folder!r})
from pezoo.kernels.simd import compile  # noqa: E402
compile.__file__ = {folder!r} + "/simd/compile.py"  # as if its folder were this one
import kernel
print(kernel.twice(21.0))
"""


def test_the_digest_is_of_every_module_s_name_and_content(tmp_path):
    (tmp_path / "a.py").write_text("x = 1")
    found = [compile.digest(tmp_path)]
    (tmp_path / "a.py").write_text("x = 2")
    found.append(compile.digest(tmp_path))
    (tmp_path / "b.py").write_text("")
    found.append(compile.digest(tmp_path))
    (tmp_path / "b.py").rename(tmp_path / "c.py")
    found.append(compile.digest(tmp_path))
    assert len(set(found)) == 4
    (tmp_path / "notes.txt").write_text("no code")
    assert compile.digest(tmp_path) == found[-1]


def test_compiling_leaves_numba_s_own_setting_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))

    def twice(x):
        return 2 * x

    kernel = compile.compiled(twice)
    assert str(tmp_path) == numba.config.CACHE_DIR
    assert kernel(4) == 8
    folder = tmp_path / f"numba-{compile.digest(Path(compile.__file__).parents[1])}"
    assert Path(kernel.stats.cache_path).parent == folder
    assert list(folder.rglob("*.nbc"))


@pytest.mark.slow
def test_a_change_in_a_called_function_compiles_the_kernel_anew(tmp_path):
    (tmp_path / "helper.py").write_text("import numba\n@numba.njit\ndef by(x):\n    return 2 * x\n")
    (tmp_path / "kernel.py").write_text(
        "from helper import by\nfrom pezoo.kernels.simd.compile import compiled\n"
        "@compiled\ndef twice(x):\n    return by(x)\n"
    )
    assert run(tmp_path) == "42.0"
    (tmp_path / "helper.py").write_text("import numba\n@numba.njit\ndef by(x):\n    return 3 * x\n")
    assert run(tmp_path) == "63.0"


def run(folder):
    """Return the kernel's output in a separate process."""
    code = [sys.executable, "-B", "-c", KERNEL.format(folder=str(folder))]
    env = {key: value for key, value in os.environ.items() if key != "NUMBA_CACHE_DIR"}
    return subprocess.run(code, capture_output=True, text=True, check=True, env=env).stdout.strip()


@pytest.mark.slow
def test_a_truncated_file_of_machine_code_is_made_again(tmp_path):
    (tmp_path / "kernel.py").write_text(
        "from pezoo.kernels.simd.compile import compiled\n"
        "@compiled\ndef twice(x):\n    return 2 * x\n"
    )
    assert run(tmp_path) == "42.0"
    for kind in ("nbi", "nbc"):
        (path,) = tmp_path.rglob(f"*.{kind}")
        path.write_bytes(path.read_bytes()[:50])
        assert run(tmp_path) == "42.0"
        assert path.stat().st_size > 50
