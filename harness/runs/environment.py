"""What could explain a difference between two records: versions, machine, data."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import pezoo
from experiment.config import RunConfig
from harness import tasks
from harness.data.batches import training_batch
from harness.runs.machine import processor

HASHED_BATCHES = 8
ROOT = Path(__file__).resolve().parents[2]
# Below ROOT: what a record can depend on.
CODE = ("pezoo", "experiment", "harness", "leaderboard/record")


def environment(config: RunConfig) -> dict[str, Any]:
    """Versions, commit, device, threads and the requested attention backend."""
    commit, dirty = _code()
    return {
        "pezoo": pezoo.__version__,
        "commit": commit,
        "dirty": dirty,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": _version("numpy"),
        "numba": _version("numba"),
        "triton": _version("triton"),
        "cuda": torch.version.cuda if config.device.startswith("cuda") else None,
        "platform": f"{platform.system()} {platform.machine()}",
        "device": _device(config.device),
        "cpu": processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "attention": config.attention,
        "compiled": config.train.compile,
    }


def data_hash(config: RunConfig) -> str:
    """SHA-256 over the token ids of the first 8 training batches, 16 hex digits.

    Equal for all encodings at one protocol, task and seed; `Trainer` draws the same batches.
    """
    task, digest = tasks.make(config.task), hashlib.sha256()
    for step in range(min(HASHED_BATCHES, config.train.steps)):
        batch, _ = training_batch(task, config, step)
        ids = batch.ids if batch.causal else torch.cat([batch.inputs, batch.labels], 1)
        digest.update(f"{tuple(ids.shape)}".encode() + ids.cpu().numpy().tobytes())
    return digest.hexdigest()[:16]


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
def _code(root: Path = ROOT) -> tuple[str, bool | None]:
    """The commit of the checkout at `root`, and whether the code that runs differs from it.

    ("unknown", None) where git says neither, and where `root` is no checkout: what is installed
    below a repository is not of that repository's commit.
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
