"""Where a run took place: what could explain a difference between two records."""

from __future__ import annotations

import platform
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import torch

import pezoo
from harness.config import RunConfig


def environment(config: RunConfig) -> dict[str, Any]:
    """Versions, commit, device, threads and attention backend."""
    commit, dirty = _commit()
    return {
        "pezoo": pezoo.__version__,
        "commit": commit,
        "dirty": dirty,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "platform": f"{platform.system()} {platform.machine()}",
        "device": _device(config.device),
        "threads": torch.get_num_threads(),
        "attention": config.attention,
    }


def _device(device: str) -> str:
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    return f"{device} {platform.processor() or platform.machine()}"


@cache
def _commit() -> tuple[str, bool]:
    """The commit of this checkout and whether tracked code differs; "unknown" when installed."""
    here = Path(__file__).parent
    try:
        run = [
            subprocess.run(
                ["git", *args], cwd=here, capture_output=True, text=True, timeout=10, check=True
            )
            for args in (["rev-parse", "HEAD"], ["status", "--porcelain", "-uno", "../pezoo", "."])
        ]
    except (OSError, subprocess.SubprocessError):
        return "unknown", False
    return run[0].stdout.strip()[:12], bool(run[1].stdout.strip())
