"""Memory that is freed is kept where glibc can be told so."""

import os
import platform
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")

BLOCKS = """
import ctypes, resource
from harness.runs import heap
libc = ctypes.CDLL(None)
libc.malloc.restype, size = ctypes.c_void_p, 64 << 20
print({start})
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    block = ctypes.c_void_p(libc.malloc(ctypes.c_size_t(size)))
    ctypes.memset(block, 1, size)
    libc.free(block)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(faults())
heap.give_back()
print(faults())
"""


def said(start, **variables):
    """What the process says that it did, and the faults of a second block and of a third."""
    code = BLOCKS.format(start=start)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_")} | variables
    environment.pop("GLIBC_TUNABLES", None)
    out = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)
    first, second, third = out.split()
    return first, int(second), int(third)


def test_a_block_that_was_freed_is_used_again():
    pages = (64 << 20) // 4096
    _, usual, _ = said("None")
    kept, second, third = said("heap.keep()")
    if usual < pages // 2:
        pytest.skip("the system gives pages without faults here")
    assert kept == "True"
    assert second < pages // 100
    assert third > pages // 2  # it was given back in between


def test_the_environment_wins():
    assert said("heap.keep()", MALLOC_MMAP_MAX_="9")[0] == "False"
