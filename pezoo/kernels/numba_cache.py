"""Machine code kept on disk, for as long as the sources are those that it was made of.

numba looks at the file of a kernel, not at those of the functions that the kernel calls: a change
there would leave the old code running. So the folder is named after all of the sources.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function, **options: Any) -> Function:
    """The function, compiled on its first call and kept on disk; `options` are numba.njit's.

    In NUMBA_CACHE_DIR if that is set, else beside the sources. Where neither can be written to,
    numba finds a place.
    """
    config: Any = numba.config
    usual, here = config.CACHE_DIR, Path(__file__).parent
    config.CACHE_DIR = str(Path(usual or here / "__pycache__") / _name(here))
    try:
        return cast(Function, numba.njit(cache=True, nogil=True, **options)(function))
    finally:
        config.CACHE_DIR = usual


def inline(function: Function) -> Function:
    """The function, compiled into its caller, which spares calls and counts of references."""
    return cast(Function, numba.njit(forceinline=True)(function))


@cache
def _name(folder: Path) -> str:
    """Of the machine code's folder; the sources are read once in a process."""
    return f"numba-{digest(folder)}"


def digest(folder: Path) -> str:
    """Of the names and contents of a folder's modules."""
    found = hashlib.sha256()
    for path in sorted(folder.glob("*.py")):
        found.update(path.name.encode() + path.read_bytes())
    return found.hexdigest()[:16]
