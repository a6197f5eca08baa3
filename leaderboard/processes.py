"""Share work among processes that are copies of this one."""

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from typing import TypeVar

T = TypeVar("T")

DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)
SIZE = 4  # bytes of the number of a part


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
    Errors: those of a part; ChildProcessError if a process is killed; ValueError for more than
    10,000 parts.
    """
    if processes == 1:
        return [part() for part in parts]
    if len(parts) > 10_000:
        raise ValueError(f"expected at most 10,000 parts, got {len(parts)}")
    context = get_context("fork")
    numbers, end = os.pipe()  # read by all; a pipe holds 64 KiB
    os.write(end, b"".join(at.to_bytes(SIZE, "big") for at in range(len(parts))))
    os.close(end)
    parent = os.getpid()

    def work() -> dict[int, T]:
        return {at: parts[at]() for at in _numbers(numbers)}

    def send(pipe: Connection) -> None:
        _end_with(parent)
        try:
            pipe.send(work())
        except Exception as error:
            pipe.send(error)

    others: list[tuple[Connection, ForkProcess]] = []
    try:
        for _ in range(processes - 1):
            mine, theirs = context.Pipe(duplex=False)
            others.append((mine, context.Process(target=send, args=(theirs,), daemon=True)))
            others[-1][1].start()
            theirs.close()
        found = work()
        for pipe, _ in others:
            found |= _received(pipe)
    finally:
        os.close(numbers)
        for _, child in others:
            child.terminate()
            child.join()
    return [found[at] for at in range(len(parts))]


def _numbers(pipe: int) -> Iterator[int]:
    while number := os.read(pipe, SIZE):
        yield int.from_bytes(number, "big")


def _end_with(parent: int) -> None:
    """Let the kernel kill this process when its parent ends; only the parent reports Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _received(pipe: Connection) -> dict[int, T]:
    try:
        found: dict[int, T] | Exception = pipe.recv()
    except EOFError:
        raise ChildProcessError("a process of the build was killed") from None
    if isinstance(found, Exception):
        raise found
    return found
