"""Whether a back end's compiler is there."""

from __future__ import annotations

from importlib import import_module


def installed(name: str) -> bool:
    """Whether a package can be imported: a numba that does not fit the installed numpy cannot.

    >>> installed("torch")
    True
    """
    try:
        import_module(name)
    except ImportError:
        return False
    return True
