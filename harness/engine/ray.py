"""Runs as tasks of a Ray cluster: `ray start --head` on one machine, more join it."""

import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ray
from ray._private import ray_constants

from experiment.config import RunConfig
from harness.engine import EngineError, check_kind, remote
from harness.engine.local import cores
from harness.engine.remote import RemoteJob, RemoteWorkers
from harness.runs.events import Event


def _stay_on_this_machine() -> None:
    """Have a new cluster listen on the loopback address alone, which Ray does on a Mac by itself.

    The setting has no public name; Ray reads it when it is imported, and its processes do.
    """
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    ray_constants.ENABLE_RAY_CLUSTER = False


class RayWorkers(RemoteWorkers):
    """One task per run. The scheduler retries, as with every engine; Ray does not."""

    def submit(self, job: RemoteJob) -> ray.ObjectRef:
        config = job.config
        task = ray.remote(_execute).options(
            name=f"{config.encoding} {config.task} {config.seed}",
            num_cpus=job.threads,
            num_gpus=1 if config.device == "cuda" else 0,
            max_retries=0,
        )
        return task.remote(job)

    def ended(self, handle: ray.ObjectRef) -> Event | None:
        if not ray.wait([handle], timeout=0)[0]:
            return None
        try:
            event: Event = ray.get(handle)
        except ray.exceptions.RayTaskError as error:
            return {"error": str(error.cause)}
        except ray.exceptions.RayError as error:
            return {"died": type(error).__name__}
        return event

    def cancel(self, handle: ray.ObjectRef, progress: Event) -> None:
        ray.cancel(handle, force=True)


def _execute(job: RemoteJob) -> Event:
    return job()


def _check_reachable(address: str) -> None:
    """Connect once, because Ray itself tries for a minute. Errors: EngineError."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if address in ("auto", "local"):
        return
    if not colon or not port.isdecimal():
        raise EngineError(f"cannot read --address {address!r}: expected host:port, or auto")
    try:
        socket.create_connection((host, int(port)), timeout=3).close()
    except OSError as error:
        raise EngineError(f"no Ray cluster at --address {address}: {error}") from error


class Engine(remote.Engine):
    """The cluster at `address` (host:port, auto, ray://...), or one that lives as long as this."""

    @property
    def address(self) -> str | None:
        return self.options.address or os.environ.get("RAY_ADDRESS")

    def device(self, requested: str) -> str:
        """Return cuda if the cluster has GPUs. Errors: EngineError."""
        check_kind("Ray", requested)
        self._connect()
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        gpus, most = (max(one.get(what, 0) for one in nodes) for what in ("GPU", "CPU"))
        if requested == "cuda" and not gpus:
            raise EngineError("no machine of this Ray cluster has a GPU (choose auto or cpu)")
        if self.threads > most:
            raise EngineError(
                f"--threads {self.threads}: the largest machine of this cluster has {most:g} cores"
            )
        return "cuda" if gpus and requested != "cpu" else "cpu"

    def workers(self, configs: Sequence[RunConfig], root: Path, command: str) -> RayWorkers:
        self._connect()
        return RayWorkers(root, command, self.threads)

    def _connect(self) -> None:
        """Join or start the cluster. Errors: EngineError if neither is possible."""
        if ray.is_initialized():
            return
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        settings: dict[str, Any] = {"address": self.address}
        if self.address is None:
            memory = 100_000_000  # bytes; records are all that is passed
            settings = {"address": "local", "num_cpus": cores(), "include_dashboard": False}
            settings["object_store_memory"] = memory
            _stay_on_this_machine()
        else:
            _check_reachable(self.address)
        try:
            ray.init(log_to_driver=False, logging_level="ERROR", **settings)
        except Exception as error:  # Ray raises many types, including Exception itself
            where = f"no Ray cluster at --address {self.address}" if self.address else "Ray"
            raise EngineError(f"{where}: {' '.join(str(error).split())[:300]}") from error
