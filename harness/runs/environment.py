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
from harness import tasks
from harness.runs.machine import processor
from harness.training.trainer import sequences_of
from leaderboard.config import RunConfig

HASHED_BATCHES = 8


def environment(config: RunConfig) -> dict[str, Any]:
    """Versions, commit, device, threads and the requested attention backend."""
    commit, dirty = _commit()
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
        batch, _ = sequences_of(task, config, step)
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
def _commit() -> tuple[str, bool]:
    """The commit of this checkout and whether its code differs; "unknown" when installed."""
    here = Path(__file__).parent
    try:
        run = [
            subprocess.run(
                ["git", *args], cwd=here, capture_output=True, text=True, timeout=10, check=True
            )
            for args in (["rev-parse", "HEAD"], ["status", "--porcelain", "../pezoo", "."])
        ]
    except (OSError, subprocess.SubprocessError):
        return "unknown", False
    return run[0].stdout.strip()[:12], bool(run[1].stdout.strip())
