"""Runs as tasks of a Ray cluster: `ray start --head` on one machine, more join it."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray

from harness.engine import EngineError, Options, scheduler
from harness.engine.local import cores
from harness.engine.remote import Ended, Order, Remote
from harness.engine.stack_plan import Job, plan
from harness.settings.config import RunConfig


@dataclass(frozen=True)
class Engine:
    """The cluster at `address` (host:port, auto, ray://...), or one that lives as long as this."""

    options: Options

    @property
    def threads(self) -> int:
        return self.options.threads or 1

    @property
    def address(self) -> str | None:
        return self.options.address or os.environ.get("RAY_ADDRESS")

    def device(self, asked: str) -> str:
        """cuda where the cluster has GPUs. Errors: EngineError."""
        if asked not in ("auto", "cpu", "cuda"):
            raise EngineError(f"Ray chooses the GPU: expected auto, cpu or cuda, was {asked!r}")
        self._connect()
        gpus, most = (max(n.get(what, 0) for n in _nodes()) for what in ("GPU", "CPU"))
        if asked == "cuda" and not gpus:
            raise EngineError("no machine of this Ray cluster has a GPU (choose auto or cpu)")
        if self.threads > most:
            raise EngineError(
                f"--threads {self.threads}: the largest machine of this cluster has {most:g} cores"
            )
        return "cuda" if gpus and asked != "cpu" else "cpu"

    def jobs(self, configs: Sequence[RunConfig]) -> int:
        """All at once: Ray starts as many as it has room for."""
        return max(1, min(self.options.jobs or len(configs), len(configs)))

    def plan(self, configs: Sequence[RunConfig], root: Path) -> list[Job]:
        """Something to do for all that the cluster now has room for, up to `--jobs`."""
        on_gpu = bool(configs) and configs[0].device == "cuda"
        what, each = ("GPU", 1) if on_gpu else ("CPU", self.threads)
        room = sum(int(node.get(what, 0) // each) for node in _nodes())
        return plan(configs, root, min(room, self.jobs(configs)), self.options.stack)

    def run_all(
        self, configs: Sequence[RunConfig], root: Path, command: str, on_event: scheduler.Event
    ) -> None:
        """As `harness.engine.scheduler.run_all`."""
        self._connect()
        workers = Tasks(root, command, self.threads, self.options.stack == "auto")
        scheduler.run_all(
            workers, configs, root, command, self.jobs(configs), on_event, self.plan(configs, root)
        )

    def _connect(self) -> None:
        """Errors: EngineError where there is no cluster, or none can be started."""
        if ray.is_initialized():
            return
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        settings: dict[str, Any] = {"address": self.address}
        if self.address is None:
            memory = 100_000_000  # bytes; records are all that is passed
            settings = {"address": "local", "num_cpus": cores(), "include_dashboard": False}
            settings["object_store_memory"] = memory
        else:
            _check_reachable(self.address)
        try:
            ray.init(log_to_driver=False, logging_level="ERROR", **settings)
        except Exception as error:  # Ray raises all kinds, a plain Exception too
            where = f"no Ray cluster at --address {self.address}" if self.address else "Ray"
            raise EngineError(f"{where}: {' '.join(str(error).split())[:300]}") from error


Reference = ray.ObjectRef  # to the last events of an order's runs


class Tasks(Remote[Reference]):
    """One task per order. The sweep retries, in the same way for every engine, so Ray does not."""

    def submit(self, order: Order) -> Reference:
        first, seeds = order.configs[0], ",".join(str(config.seed) for config in order.configs)
        gpus = 1 if first.device == "cuda" else 0
        task = ray.remote(_carry_out).options(
            name=f"{first.label} {first.task} {seeds}",
            num_cpus=order.threads,
            num_gpus=gpus,
            max_retries=0,
        )
        return task.remote(order)

    def ended(self, handle: Reference) -> Ended | None:
        if not ray.wait([handle], timeout=0)[0]:
            return None
        try:
            events: list[dict[str, Any]] = ray.get(handle)
        except ray.exceptions.RayTaskError as error:
            return {"error": str(error.cause)}
        except ray.exceptions.RayError as error:
            return {"died": type(error).__name__}
        return events

    def cancel(self, handle: Reference, sign: dict[str, Any]) -> None:
        ray.cancel(handle, force=True)


def _carry_out(order: Order) -> list[dict[str, Any]]:
    return order()


def _nodes() -> list[dict[str, float]]:
    """What each machine of the cluster has: CPU, GPU, ..."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def _check_reachable(address: str) -> None:
    """Ray itself tries for a minute. Errors: EngineError."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if address in ("auto", "local"):
        return
    if not colon or not port.isdecimal():
        raise EngineError(f"cannot read --address {address!r}: expected host:port, or auto")
    try:
        socket.create_connection((host, int(port)), timeout=3).close()
    except OSError as error:
        raise EngineError(f"no Ray cluster at --address {address}: {error}") from error
