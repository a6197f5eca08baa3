"""Where the machine code of numba's kernels is kept."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

numba = pytest.importorskip("numba")

from pezoo.kernels import numba_cache  # noqa: E402

KERNEL = """
import sys
sys.path.insert(0, {folder!r})
from pezoo.kernels import numba_cache
numba_cache.__file__ = {folder!r} + "/numba_cache.py"  # as if its folder were this one
import kernel
print(kernel.twice(21.0))
"""


def test_the_digest_is_of_every_module_s_name_and_content(tmp_path):
    (tmp_path / "a.py").write_text("x = 1")
    found = [numba_cache.digest(tmp_path)]
    (tmp_path / "a.py").write_text("x = 2")
    found.append(numba_cache.digest(tmp_path))
    (tmp_path / "b.py").write_text("")
    found.append(numba_cache.digest(tmp_path))
    (tmp_path / "b.py").rename(tmp_path / "c.py")
    found.append(numba_cache.digest(tmp_path))
    assert len(set(found)) == 4
    (tmp_path / "notes.txt").write_text("no code")
    assert numba_cache.digest(tmp_path) == found[-1]


def test_compiling_leaves_numba_s_own_setting_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))

    def twice(x):
        return 2 * x

    kernel = numba_cache.compiled(twice)
    assert str(tmp_path) == numba.config.CACHE_DIR
    assert kernel(4) == 8
    folder = tmp_path / f"numba-{numba_cache.digest(Path(numba_cache.__file__).parent)}"
    assert Path(kernel.stats.cache_path).parent == folder
    assert list(folder.rglob("*.nbc"))


def test_a_change_in_a_called_function_compiles_the_kernel_anew(tmp_path):
    (tmp_path / "helper.py").write_text("import numba\n@numba.njit\ndef by(x):\n    return 2 * x\n")
    (tmp_path / "kernel.py").write_text(
        "from helper import by\nfrom pezoo.kernels.numba_cache import compiled\n"
        "@compiled\ndef twice(x):\n    return by(x)\n"
    )
    assert run(tmp_path) == "42.0"
    (tmp_path / "helper.py").write_text("import numba\n@numba.njit\ndef by(x):\n    return 3 * x\n")
    assert run(tmp_path) == "63.0"


def run(folder):
    """What the kernel says in a process of its own."""
    code = [sys.executable, "-B", "-c", KERNEL.format(folder=str(folder))]
    env = {key: value for key, value in os.environ.items() if key != "NUMBA_CACHE_DIR"}
    return subprocess.run(code, capture_output=True, text=True, check=True, env=env).stdout.strip()
