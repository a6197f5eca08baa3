"""Facts of a record that are known before the first step, and reasons of failures."""

import hashlib
import os
import platform
import re
import subprocess
import traceback
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import pezoo
from experiment.config import RunConfig
from harness import tasks
from harness.data.batches import training_batch
from harness.training.evaluate import LooksAhead
from harness.training.trainer import Diverged
from pezoo.base import PositionError

Draft = dict[str, Any]  # the JSON data of a record that is being made; see `leaderboard.record`
HASHED_BATCHES = 8
ROOT = Path(__file__).resolve().parents[2]
CODE = ("pezoo", "experiment", "harness", "leaderboard/record")  # what a record can depend on


def new_record(config: RunConfig, command: str) -> Draft:
    """Return the record of a run before its first step."""
    return {
        "schema": 1,
        "run": config.hash,
        "status": "done",
        "reason": None,
        "protocol": config.protocol,
        "task": config.task,
        "encoding": config.encoding,
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


def blank_record(config: RunConfig, command: str) -> Draft:
    """Return a record as long as the finished one, with placeholders for the results."""
    high, every = config.train.lengths[1], config.eval.every
    scores = [
        {"length": length, "seen": length <= high, "status": "no instance"}
        for length in config.eval.lengths
    ]
    steps = range(every, config.train.steps + 1, every)[:200_000]  # more than any record holds
    names = ["loss", "exact"]
    if config.eval.curve_lengths:
        names += ["seconds", "test_token", "test_exact"]
    names += ["least"] * (config.train.learned is not None)
    learning = [{"step": step} | dict.fromkeys(names, 1 / 3) for step in steps]
    return new_record(config, command) | {"scores": {"last": scores}, "learning": learning}


def now() -> str:
    """Return the time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def environment(config: RunConfig) -> dict[str, Any]:
    """Return versions, commit, device, threads and the requested attention backend."""
    commit, dirty = commit_of()
    return {
        "pezoo": pezoo.__version__,
        "commit": commit,
        "dirty": dirty,
        "python": platform.python_version(),
        "torch": torch.__version__,
        **{package: _version(package) for package in ("numpy", "numba", "triton")},
        "cuda": torch.version.cuda if config.device.startswith("cuda") else None,
        "platform": f"{platform.system()} {platform.machine()}",
        "device": _device(config.device),
        "cpu": processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "attention": config.attention,
    }


def data_hash(config: RunConfig) -> str:
    """Return a SHA-256 of the token ids of the first 8 training batches, 16 hex digits.

    Equal for all encodings at one protocol, task and seed; `Trainer` draws the same batches.
    """
    task, digest = tasks.make(config.task), hashlib.sha256()
    for step in range(min(HASHED_BATCHES, config.train.steps)):
        batch, _ = training_batch(task, config, step)
        ids = batch.ids if batch.causal else torch.cat([batch.inputs, batch.labels], 1)
        digest.update(f"{tuple(ids.shape)}".encode() + ids.cpu().numpy().tobytes())
    return digest.hexdigest()[:16]


def processor() -> str:
    """Return the name of the processor."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        text = ""
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1].strip() if found else platform.processor() or platform.machine()


def failure_reason(error: Exception) -> str:
    """Say on one line why a run failed, and where for an unexpected exception."""
    text = " ".join(str(error).split())[:500]
    if isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in text:
        return f"out of memory: {text}" if text else "out of memory"
    if isinstance(error, PositionError):
        return f"cannot represent: {text}"
    if isinstance(error, Diverged | LooksAhead):
        return f"{type(error).__name__}: {text}"
    at = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {text} ({Path(at.filename).name}:{at.lineno} in {at.name})"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _device(device: str) -> str:
    if device.startswith("cuda") and torch.cuda.is_available():
        return torch.cuda.get_device_name(device)
    return f"{device} {platform.processor() or platform.machine()}"


@cache
def commit_of(root: Path = ROOT) -> tuple[str, bool | None]:
    """Return the commit of the checkout at `root`, and whether the code that runs differs from it.

    ("unknown", None) if git fails, or if `root` is not the top of the checkout: a package that is
    installed inside some repository does not belong to its commit.
    """
    try:
        top = _git(root, "rev-parse", "--show-toplevel")
        if Path(top).resolve() != root:
            return "unknown", None
        changes = _git(root, "status", "--porcelain", "--", *CODE)
        return _git(root, "rev-parse", "HEAD")[:12], bool(changes)
    except (OSError, subprocess.SubprocessError):
        return "unknown", None


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", *words], cwd=root, capture_output=True, text=True, timeout=10, check=True
    )
    return done.stdout.strip()
