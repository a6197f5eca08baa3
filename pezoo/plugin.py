"""Run the code of a plug-in, which may raise anything or never end."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # signal itself takes 10 ms
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING

from pezoo.spec import SpecError

if TYPE_CHECKING:
    from types import FrameType

SLOW, ENDLESS = 5.0, 60.0  # seconds after which an import is named, and is ended


class _Endless(BaseException):
    """An import that does not end; no `except Exception` of the plug-in stops it."""


class _Pressed(KeyboardInterrupt):
    """Ctrl-C, which a plug-in's own KeyboardInterrupt is not."""


def _press(number: int, frame: FrameType | None) -> None:
    raise _Pressed


@contextmanager
def _keys_apart() -> Iterator[None]:
    """Let Ctrl-C raise _Pressed where it would raise KeyboardInterrupt."""
    ours = threading.current_thread() is threading.main_thread()
    usual = _signal.default_int_handler
    if not ours or _signal.getsignal(_signal.SIGINT) is not usual:
        yield
        return
    _signal.signal(_signal.SIGINT, _press)
    try:
        yield
    finally:
        _signal.signal(_signal.SIGINT, usual)


@contextmanager
def guarded(what: str, module: str = "") -> Iterator[None]:
    """Turn whatever the code raises into a SpecError: `what`, the error, its line of a module.

    Ctrl-C alone stays what it is.
    """
    try:
        with _keys_apart():
            yield
    except (SpecError, _Pressed):
        raise
    except BaseException as error:  # SystemExit too, which would end the command
        kind = "" if isinstance(error, _Endless) else f"{type(error).__name__}: "
        file = f"{module.rpartition('.')[2]}.py"
        own = [f for f in extract_tb(error.__traceback__) if Path(f.filename).name == file]
        place = f" (line {own[-1].lineno})" if own else ""
        raise SpecError(f"{what}: {kind}{error}{place}") from error


@contextmanager
def staying(what: str) -> Iterator[None]:
    """Turn what would end the program, as SystemExit, into a SpecError; let other errors pass."""
    try:
        yield
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise SpecError(f"{what}: {type(error).__name__}: {error}") from error


@contextmanager
def bounded(module: str) -> Iterator[None]:
    """End the import of a module after ENDLESS seconds with an error; name it after SLOW.

    Only in the main thread of a program that uses no alarm itself.
    """
    import signal  # takes 10 ms

    if sys.modules.get(module, sys) is None:
        raise _Endless(f"{module} did not end within {ENDLESS:g} s before")
    ours = threading.current_thread() is threading.main_thread() and hasattr(signal, "SIGALRM")
    if not ours or signal.getsignal(signal.SIGALRM) is not signal.SIG_DFL:
        yield
        return
    rung = 0

    def ring(number: int, frame: FrameType | None) -> None:
        nonlocal rung
        rung += 1
        if rung > 1:
            raise _Endless(f"{module} did not end within {ENDLESS:g} s")
        warnings.warn(f"the import of {module} takes long", stacklevel=2)

    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, SLOW, ENDLESS - SLOW)
    try:
        yield
    except _Endless:
        sys.modules[module] = None  # type: ignore[assignment]  # so that it is not tried again
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
