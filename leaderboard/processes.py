"""Share work among processes that are copies of this one."""

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, TypeVar

T = TypeVar("T")

DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)
KILLED = "a process of the build was killed"
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
        raise ChildProcessError(KILLED) from None


@contextmanager
def beside(part: Callable[[], T], processes: int = 1) -> Iterator[Callable[[], T]]:
    """Start a part in a copy of this process; yield the function that waits for what it returns.

    With one process the part runs when it is waited for. Errors: as `in_processes`.
    """
    if processes == 1:
        yield part
        return
    context = get_context("fork")  # no pool: it has threads, with which later copies are not safe
    receiver, sender = context.Pipe(duplex=False)
    copy = context.Process(target=_answer, args=(part, sender, os.getpid()))
    copy.start()
    sender.close()

    def result() -> T:
        try:
            value, error = receiver.recv()
        except EOFError:
            raise ChildProcessError(KILLED) from None
        if error is not None:
            raise error
        return value

    try:
        yield result
    finally:
        copy.terminate()
        copy.join()


def _answer(part: Callable[[], Any], sender: Connection, parent: int) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # takes half a file away first
    _begin((), parent)
    try:
        sender.send((part(), None))
    except Exception as error:
        sender.send((None, error))


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
