"""Share work among processes that are copies of this one."""

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any, TypeVar

T = TypeVar("T")

DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)
_parts: Sequence[Callable[[], Any]] = ()  # of a copy


def usable() -> int:
    """Return how many processes may work: 1 where a copy is not safe, as of a process with threads.

    More than four save little: reading the records is not shared.
    """
    if sys.platform != "linux" or threading.active_count() > 1:
        return 1
    return min(4, len(os.sched_getaffinity(0)))


def in_processes(parts: Sequence[Callable[[], T]], processes: int = 1) -> list[T]:
    """Return what the parts return. Each process takes the next part until none is left.

    Parts may use any object of this process; what they return is pickled. The other processes end
    with this one, however it ends.
    Errors: those of a part; ChildProcessError if a process is killed.
    """
    if processes == 1:
        return [part() for part in parts]
    copies = processes, get_context("fork"), _begin, (parts, os.getpid())
    try:
        with ProcessPoolExecutor(*copies) as pool:
            return [*pool.map(_part, range(len(parts)))]
    except BrokenProcessPool:
        raise ChildProcessError("a process of the build was killed") from None


def _begin(parts: Sequence[Callable[[], Any]], parent: int) -> None:
    """Keep the parts, and let the kernel kill this process when its parent ends; only the parent
    reports Ctrl-C."""
    global _parts
    _parts = parts
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _part(at: int) -> Any:
    return _parts[at]()
