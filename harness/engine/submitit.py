"""Runs as Slurm jobs, through submitit; its local executor stands in where there is no Slurm.

Results are read from the files of a run, not from submitit's pickle: unpickling runs code.
"""

import os
import signal
import tempfile
import time
import tomllib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import submitit

from experiment.config import RunConfig
from harness.engine import EngineError, check_kind, remote
from harness.engine.remote import RemoteJob, RemoteWorkers
from harness.engine.scheduler import without_ctrl_c
from harness.runs.events import Event

MINUTES = 24 * 60  # of a job, unless --slurm timeout_min says otherwise
PATIENCE = 15.0  # seconds for a result to appear on a slow file system after its job has ended
SHARED = ("name", "timeout_min", "mem_gb", "nodes", "cpus_per_task", "gpus_per_node")


class SlurmWorkers(RemoteWorkers):
    """One Slurm job per run."""

    def __init__(
        self, root: Path, command: str, threads: int, executor: submitit.AutoExecutor
    ) -> None:
        super().__init__(root, command, threads)
        self.executor = executor
        self.ends: dict[str, float] = {}  # when a job without a result was first seen to be over

    def submit(self, job: RemoteJob) -> tuple[submitit.Job, RemoteJob]:
        with without_ctrl_c():
            return self.executor.submit(job), job

    def ended(self, handle: tuple[submitit.Job, RemoteJob]) -> Event | None:
        job, run = handle
        if not job.done():
            return None
        if (event := run.outcome()) is not None:
            return event
        if time.monotonic() - self.ends.setdefault(job.job_id, time.monotonic()) < PATIENCE:
            return None
        said = (job.stderr() or "").strip().rpartition("\n")[2]
        return {"died": f"job {job.job_id} is {job.state} and left no result. {said:.200}".rstrip()}

    def cancel(self, handle: tuple[submitit.Job, RemoteJob], progress: Event) -> None:
        if self.executor.cluster != "local":
            handle[0].cancel(check=False)
        elif "pid" in progress:
            with suppress(ProcessLookupError):
                os.kill(progress["pid"], signal.SIGKILL)


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


class Engine(remote.Engine):
    """The cluster that submitit finds; options.slurm holds its settings."""

    @property
    def settings(self) -> dict[str, Any]:
        """Return settings of submitit's executor, and "cluster". Errors: EngineError."""
        return dict(map(_setting, self.options.slurm))

    def device(self, requested: str) -> str:
        """Return the device of the jobs: cuda if they ask for GPUs. Errors: EngineError."""
        check_kind("Slurm", requested)
        gpus = requested == "auto" and "gpus_per_node" in self.settings
        device = "cuda" if gpus or requested == "cuda" else "cpu"
        with tempfile.TemporaryDirectory() as folder:
            self._executor(Path(folder), device)  # a wrong setting ends here
        return device

    def workers(self, configs: Sequence[RunConfig], root: Path, command: str) -> SlurmWorkers:
        device = configs[0].device if configs else "cpu"
        executor = self._executor(root.resolve() / "submitit", device)
        return SlurmWorkers(root, command, self.threads, executor)

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
