"""Machine code kept on disk, for as long as the sources are those that it was made of.

numba looks at the file of a kernel, not at those of the functions that the kernel calls: a change
there would leave the old code running. So the folder is named after all of the sources.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., Any])

# What only kernels call needs no entry for Python or C; compiling these takes a fifth of the time.
_INNER: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def compiled(function: Function, **options: Any) -> Function:
    """The function, compiled on its first call and kept on disk; `options` are numba.njit's.

    In NUMBA_CACHE_DIR if that is set, else in pezoo/kernels/__pycache__. Where neither can be
    written to, numba finds a place. Damaged files there are made again.
    """
    config: Any = numba.config
    usual, here = config.CACHE_DIR, Path(__file__).parents[1]
    config.CACHE_DIR = str(Path(usual or here / "__pycache__") / _name(here))
    try:
        made = numba.njit(cache=True, nogil=True, **options)(function)
    finally:
        config.CACHE_DIR = usual
    made._cache.load_overload = partial(_load, made._cache, made._cache.load_overload)
    return cast(Function, made)


def _load(kept: Any, load: Callable[..., Any], *signature: Any) -> Any:
    """What is on disk; None, as where there is nothing, if it is damaged."""
    try:
        return load(*signature)
    except Exception:  # a truncated pickle leads to anything
        kept.flush()
        return None


def called(function: Function) -> Function:
    """A function for kernels, compiled on its own: outside of innermost loops that is quicker."""
    return cast(Function, numba.njit(**_INNER)(function))


def inline(function: Function) -> Function:
    """A function for kernels, compiled into them: no calls, and no counts of references."""
    return cast(Function, numba.njit(forceinline=True, **_INNER)(function))


@cache
def _name(folder: Path) -> str:
    """Of the machine code's folder; the sources are read once in a process."""
    return f"numba-{digest(folder)}"


def digest(folder: Path) -> str:
    """Of the names and contents of the modules in a folder and below it."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        found.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return found.hexdigest()[:16]
