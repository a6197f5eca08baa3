"""Share work among processes that are copies of this one."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from multiprocessing.sharedctypes import Synchronized
from typing import TypeVar

T = TypeVar("T")


def usable() -> int:
    """Return how many processes may work: 1 where a copy is not safe, as of a process with threads.

    More than four save little: reading the records is not shared.
    """
    if sys.platform != "linux" or threading.active_count() > 1:
        return 1
    return min(4, len(os.sched_getaffinity(0)))


def in_processes(parts: Sequence[Callable[[], T]], processes: int = 1) -> list[T]:
    """Return what the parts return. Each process takes the next part until none is left.

    Parts may use any object of this process; what they return is pickled.
    Errors: those of a part; ChildProcessError if a process is killed.
    """
    if processes == 1:
        return [part() for part in parts]
    context = get_context("fork")
    taken = context.Value("i", 0)

    def work() -> dict[int, T]:
        found = {}
        while (index := _next(taken)) < len(parts):
            found[index] = parts[index]()
        return found

    def send(pipe: Connection) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # for the first process to report
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
        for _, child in others:
            child.terminate()
            child.join()
    return [found[index] for index in range(len(parts))]


def _next(taken: "Synchronized[int]") -> int:
    with taken.get_lock():
        taken.value += 1
        return taken.value - 1


def _received(pipe: Connection) -> dict[int, T]:
    try:
        found: dict[int, T] | Exception = pipe.recv()
    except EOFError:
        raise ChildProcessError("a process of the build was killed") from None
    if isinstance(found, Exception):
        raise found
    return found
