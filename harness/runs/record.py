"""The record of a run before its first step, and the reason why a run failed."""

from __future__ import annotations

import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from experiment.config import RunConfig
from harness.runs.environment import environment
from harness.training.losses import Diverged
from pezoo.base import PositionError


def failure_reason(error: Exception) -> str:
    """Why a run failed, on one line; for an unexpected exception also where."""
    text = " ".join(str(error).split())[:500]
    if isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in text:
        return f"out of memory: {text}" if text else "out of memory"
    if isinstance(error, PositionError):
        return f"cannot represent: {text}"
    if isinstance(error, Diverged):
        return f"Diverged: {text}"
    at = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {text} ({Path(at.filename).name}:{at.lineno} in {at.name})"


def new_record(config: RunConfig, command: str) -> dict[str, Any]:
    """The record of a run before its first step."""
    return {
        "schema": 1,
        "run": config.hash,
        "status": "done",
        "reason": None,
        "protocol": config.protocol,
        "task": config.task,
        "encoding": config.label,
        "seed": config.seed,
        "config": config.model_dump(mode="json"),
        "backbone_hash": None,
        "data_hash": None,
        "scores": {"last": []},
        "modes": {},
        "learning": [],
        "cost": {},
        "env": environment(config),
        "provenance": {"command": command, "finished": now()},
    }


def blank_record(config: RunConfig, command: str) -> dict[str, Any]:
    """A record as long as the finished one, with nothing in it that training finds out."""
    high, every = config.train.lengths[1], config.eval.every
    scores = [
        {"length": length, "seen": length <= high, "status": "no instance"}
        for length in config.eval.lengths
    ]
    steps = range(every, config.train.steps + 1, every)[:200_000]  # more than any record holds
    names = ["loss", "exact"]
    if config.eval.curve_lengths:
        names += ["seconds", "test_token", "test_exact"]
    learning = [{"step": step} | dict.fromkeys(names, 1 / 3) for step in steps]
    return new_record(config, command) | {"scores": {"last": scores}, "learning": learning}


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")
