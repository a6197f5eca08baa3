"""glibc's heap: what tensors have freed is kept for the next ones.

Blocks above 32 MiB otherwise come fresh from the system and go back to it at every step, and each
of their pages is a fault: a quarter of PRISM's training step at 80 tokens
(docs/findings/attention-bias.md). Elsewhere than with glibc nothing happens.
"""

from __future__ import annotations

import ctypes
import os
import platform
from typing import Any

TRIM_THRESHOLD, MMAP_MAX = -1, -4  # of malloc.h
SETTINGS = ("GLIBC_TUNABLES", "MALLOC_MMAP_MAX_", "MALLOC_TRIM_THRESHOLD_")


def keep() -> bool:
    """From here on this process keeps its heap, unless the environment sets limits; whether so."""
    libc = _glibc()
    if libc is None or any(name in os.environ for name in SETTINGS):
        return False
    return bool(libc.mallopt(MMAP_MAX, 0) and libc.mallopt(TRIM_THRESHOLD, -1))


def give_back() -> None:
    """Free memory goes back to the system, once."""
    libc = _glibc()
    if libc is not None:
        libc.malloc_trim(0)


def _glibc() -> Any:
    return ctypes.CDLL(None) if platform.libc_ver()[0] == "glibc" else None
