"""glibc's heap: memory that tensors free is kept for the next ones, in huge pages.

Otherwise glibc takes blocks above 32 MiB from the system and returns them at every step, with a
fault for each of their pages: a third of PRISM's training step at 80 tokens. Huge pages spare the
processor look-ups of addresses: 3 to 9 % of a step of the `quick` decoder
(docs/findings/harness-speed.md). Without glibc, nothing happens.
"""

from __future__ import annotations

import ctypes
import os
import platform
from typing import Any

TRIM_THRESHOLD, MMAP_MAX = -1, -4  # of malloc.h
MADV_HUGEPAGE = 14  # of mman.h
PAGE, STRETCH = 1 << 21, 1 << 28  # bytes: a huge page, and what of the heap is asked for in them
SETTINGS = ("GLIBC_TUNABLES", "MALLOC_MMAP_MAX_", "MALLOC_TRIM_THRESHOLD_")


def keep() -> bool:
    """Have this process keep its heap, unless the environment sets limits; whether it does."""
    libc = _glibc()
    if libc is None or any(name in os.environ for name in SETTINGS):
        return False
    kept = bool(libc.mallopt(MMAP_MAX, 0) and libc.mallopt(TRIM_THRESHOLD, -1))
    if kept:
        _ask_for_huge_pages(libc)
    return kept


def give_back() -> None:
    """Return free memory to the system, once, and huge pages with it."""
    libc = _glibc()
    if libc is not None:
        libc.malloc_trim(0)


def _ask_for_huge_pages(libc: Any) -> None:
    """For the heap's next stretch of addresses; memory is taken where they are written to."""
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    block = libc.malloc(STRETCH)
    if block:
        start = -(-block // PAGE) * PAGE
        libc.madvise(start, block + STRETCH - start, MADV_HUGEPAGE)
        libc.free(block)


def _glibc() -> Any:
    return ctypes.CDLL(None) if platform.libc_ver()[0] == "glibc" else None
