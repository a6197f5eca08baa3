"""Memory that is freed is kept where glibc can be told so."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")

SIZE = 64 << 20
OURS = "from harness.runs import cost\nfrom harness.runs.cost import keep_heap\n"
FLAGS = "[x.split() for x in Path('/proc/self/smaps').read_text().splitlines() if 'Flags' in x]"
BLOCKS = f"""
import ctypes, resource
from pathlib import Path
libc, size = ctypes.CDLL(None), {SIZE}
libc.malloc.restype = ctypes.c_void_p
def block():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    block = ctypes.c_void_p(libc.malloc(ctypes.c_size_t(size)))
    ctypes.memset(block, 1, size)
    libc.free(block)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
"""


def said(code, **variables):
    """The words that a process of its own prints."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_")} | variables
    environment.pop("GLIBC_TUNABLES", None)
    command = [sys.executable, "-c", BLOCKS + code]
    return subprocess.check_output(command, env=environment, text=True).split()


@pytest.mark.slow
def test_a_block_that_was_freed_is_used_again_and_the_heap_has_huge_pages():
    pages, switch = SIZE // 4096, Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if int(said("block(); print(block())")[0]) < pages // 2:
        pytest.skip("the system gives pages without faults here")
    code = f"print(keep_heap()); print(any('hg' in x for x in {FLAGS})); block()"
    code += "; print(block(), resident()); cost.forget_peak_memory('cpu'); print(resident())"
    kept, huge, faults, before, after = said(OURS + code)
    assert kept == "True"
    assert int(faults) < pages // 100
    assert int(before) - int(after) > SIZE // 2
    if switch.exists() and "[never]" not in switch.read_text():
        assert huge == "True"


@pytest.mark.slow
def test_the_environment_wins():
    assert said(OURS + "print(keep_heap())", MALLOC_MMAP_MAX_="9") == ["False"]
