"""Runs as Slurm jobs, through submitit; its local executor stands in where there is no Slurm."""

from __future__ import annotations

import os
import signal
import tempfile
import time
import tomllib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import submitit
from submitit.helpers import DelayedSubmission

from harness.engine import EngineError, Options, scheduler
from harness.engine.remote import Ended, Order, Remote
from harness.engine.stack_plan import Job, plan
from harness.settings.config import RunConfig

MINUTES = 24 * 60  # of a job, unless --slurm timeout_min says otherwise
PATIENCE = 15.0  # seconds for a result to appear on a slow file system after its job has ended
SHARED = ("name", "timeout_min", "mem_gb", "nodes", "cpus_per_task", "gpus_per_node")


@dataclass(frozen=True)
class Engine:
    """The cluster that submitit finds; options.slurm holds its settings."""

    options: Options

    @property
    def threads(self) -> int:
        return self.options.threads or 1

    @property
    def settings(self) -> dict[str, Any]:
        """For submitit's executor, and "cluster": slurm or local. Errors: EngineError."""
        return dict(map(_setting, self.options.slurm))

    def device(self, asked: str) -> str:
        """What the jobs will have: cuda where they are given GPUs. Errors: EngineError."""
        if asked not in ("auto", "cpu", "cuda"):
            raise EngineError(f"Slurm chooses the GPU: expected auto, cpu or cuda, was {asked!r}")
        device = "cuda" if asked == "auto" and "gpus_per_node" in self.settings else asked
        device = "cpu" if device == "auto" else device
        with tempfile.TemporaryDirectory() as folder:
            self._executor(Path(folder), device)  # a wrong setting ends here
        return device

    def jobs(self, configs: Sequence[RunConfig]) -> int:
        """All at once: Slurm starts as many as it has room for."""
        return max(1, min(self.options.jobs or len(configs), len(configs)))

    def plan(self, configs: Sequence[RunConfig], root: Path) -> list[Job]:
        """As few jobs as can be, or up to `--jobs`: what room Slurm has is not known."""
        return plan(configs, root, self.options.jobs or 1, self.options.stack)

    def run_all(
        self, configs: Sequence[RunConfig], root: Path, command: str, on_event: scheduler.Event
    ) -> None:
        """As `harness.engine.scheduler.run_all`."""
        device = configs[0].device if configs else "cpu"
        executor = self._executor(root.resolve() / "submitit", device)
        workers = Jobs(root, command, self.threads, executor, self.options.stack == "auto")
        scheduler.run_all(
            workers, configs, root, command, self.jobs(configs), on_event, self.plan(configs, root)
        )

    def _executor(self, folder: Path, device: str) -> submitit.AutoExecutor:
        settings = {"name": "pezoo", "timeout_min": MINUTES, "cpus_per_task": self.threads}
        if device == "cuda":
            settings["gpus_per_node"] = 1
        settings |= self.settings
        cluster = settings.pop("cluster", None)
        try:
            executor = submitit.AutoExecutor(folder, cluster)
            executor.update_parameters(**settings)
        except (NameError, AssertionError, TypeError, ValueError, RuntimeError) as error:
            raise EngineError(f"--slurm: {error}") from error
        return executor


class Jobs(Remote[submitit.Job]):
    """One job per order."""

    def __init__(
        self,
        root: Path,
        command: str,
        threads: int,
        executor: submitit.AutoExecutor,
        measure: bool = True,
    ) -> None:
        super().__init__(root, command, threads, measure)
        self.executor = executor
        self.ends: dict[str, float] = {}  # when a job without a result was first seen to be over

    def submit(self, order: Order) -> submitit.Job:
        # The mask is inherited: Ctrl-C reaches the whole group, and this process alone reacts.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return self.executor.submit(Task(order))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def ended(self, handle: submitit.Job) -> Ended | None:
        if not handle.done():
            return None
        if handle.paths.result_pickle.exists():
            error = handle.exception()
            if error is not None:
                return {"died": str(error).splitlines()[-1]}
            events: list[dict[str, Any]] = handle.result()
            return events
        if time.monotonic() - self.ends.setdefault(handle.job_id, time.monotonic()) < PATIENCE:
            return None
        return {"died": f"job {handle.job_id} is {handle.state} and left no result"}

    def cancel(self, handle: submitit.Job, sign: dict[str, Any]) -> None:
        if self.executor.cluster != "local":
            handle.cancel(check=False)
        elif "pid" in sign:
            with suppress(ProcessLookupError):
                os.kill(sign["pid"], signal.SIGKILL)


@dataclass(frozen=True)
class Task:
    """An order that Slurm may interrupt: requeued, it goes on from the run's last checkpoint."""

    order: Order

    def __call__(self) -> list[dict[str, Any]]:
        return self.order()

    def checkpoint(self) -> DelayedSubmission:
        return DelayedSubmission(self)


def _setting(text: str) -> tuple[str, Any]:
    """ "partition=gpu" -> ("slurm_partition", "gpu"). Errors: EngineError."""
    key, equals, value = text.partition("=")
    if not equals:
        raise EngineError(f"cannot read --slurm {text!r}: expected key=value, e.g. partition=gpu")
    name = key if key in ("cluster", *SHARED) else f"slurm_{key}"
    try:
        return name, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return name, value
