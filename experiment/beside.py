"""Work in a second process beside this one."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def beside(work: Callable[[], object], there: bool = True) -> Iterator[None]:
    """Do `work` in a second process while the block runs, and end when both are done.

    Without `there`, or where a process cannot fork, it is done after the block, in this process.
    Errors: OSError with what `work` raised in the second process, or if that ended early.
    """
    if not there or not hasattr(os, "fork"):
        yield
        work()
        return
    reader, writer = os.pipe()
    if not (child := os.fork()):
        status = 1
        try:
            work()
            status = 0
        except BaseException as error:
            os.write(writer, f"{type(error).__name__}: {error}".encode()[:4000])
        finally:
            os._exit(status)
    os.close(writer)
    try:
        yield
    finally:
        with open(reader, "rb") as pipe:
            said = pipe.read().decode(errors="replace")
        failed = os.waitpid(child, 0)[1]
    if failed:
        raise OSError(said or "a second process ended early")
