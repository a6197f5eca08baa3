"""Compiled kernels, cached on disk until their sources change.

numba checks the file of a kernel, but not those of the functions that it calls, so the cache's
folder is named after a hash of all sources.
"""

import hashlib
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., Any])

# Functions called by kernels alone need no wrappers, and compile five times faster without.
_INNER: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def compiled(function: Function, **options: Any) -> Function:
    """Compile a function on its first call, and cache it on disk; `options` are numba.njit's.

    The cache is in NUMBA_CACHE_DIR if set, otherwise in pezoo/kernels/__pycache__. If neither is
    writable, numba chooses a folder. Damaged files are replaced.
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
    """Load from the cache; None if it is damaged, as if nothing were there."""
    try:
        return load(*signature)
    except Exception:  # a truncated pickle may raise any exception
        kept.flush()
        return None


def inline(function: Function) -> Function:
    """Compile a function into kernels, without calls and reference counts."""
    return cast(Function, numba.njit(forceinline=True, **_INNER)(function))


@cache
def _name(folder: Path) -> str:
    """Return the name of the cache's folder; sources are read once in a process."""
    return f"numba-{digest(folder)}"


def digest(folder: Path) -> str:
    """Return a hash of the names and contents of all modules below a folder."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        found.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return found.hexdigest()[:16]
