"""Worker processes on one machine. Which worker takes a run changes nothing about its result."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from harness.config import RunConfig

Event = Callable[[int, dict[str, Any]], None]


def run_all(
    configs: Sequence[RunConfig], root: Path, command: str, jobs: int, on_event: Event
) -> None:
    """Execute every run, `jobs` at a time; on_event(index, event) tells what happens.

    Events: progress from `execute`, then {"record": ...}, {"error": text}, or {"busy": text} where
    another process holds the run. A worker that dies fails its run alone, and another takes its
    place.
    """
    waiting = list(range(len(configs)))
    busy: dict[Connection, tuple[Any, int]] = {}
    idle: list[tuple[Connection, Any]] = []
    try:
        while waiting or busy:
            while waiting and len(busy) < jobs:
                pipe, process = idle.pop() if idle else _spawn(jobs)
                index = waiting.pop(0)
                busy[pipe] = (process, index)
                pipe.send((configs[index], root, command))
            for pipe in wait(list(busy)):
                assert isinstance(pipe, Connection)
                process, index = busy[pipe]
                try:
                    event = pipe.recv()
                except EOFError:
                    del busy[pipe]
                    process.join()
                    on_event(index, {"error": f"the worker died (exit code {process.exitcode})"})
                    continue
                if event.keys() & {"record", "error", "busy"}:
                    idle.append((pipe, process))
                    del busy[pipe]
                on_event(index, event)
    finally:
        for process in [process for process, _ in busy.values()] + [p for _, p in idle]:
            process.terminate()


def _spawn(jobs: int) -> tuple[Connection, Any]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    threads = max(1, (os.cpu_count() or 1) // jobs)
    process = context.Process(target=_work, args=(theirs, threads), daemon=True)
    process.start()
    theirs.close()
    return ours, process


def _work(pipe: Connection, threads: int) -> None:
    """Take runs from the pipe until it closes. The parent alone reacts to Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import torch

    torch.set_num_threads(threads)
    while True:
        try:
            config, root, command = pipe.recv()
            pipe.send(_outcome(config, root, command, pipe))
        except (EOFError, BrokenPipeError):  # the parent is gone; checkpoints hold what was done
            return


def _outcome(config: RunConfig, root: Path, command: str, pipe: Connection) -> dict[str, Any]:
    from filelock import Timeout

    from harness.execute import execute

    try:
        return {"record": execute(config, root, command, pipe.send)}
    except BrokenPipeError:
        raise
    except Timeout:
        return {"busy": "another process is training it"}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
