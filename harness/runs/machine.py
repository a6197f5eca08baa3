"""What the machine is, as the system tells it."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path


def processor() -> str:
    """The processor's own name on Linux, else what Python knows."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        text = ""
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1].strip() if found else platform.processor() or platform.machine()


def is_alive(pid: int) -> bool:
    """Whether a process of this machine has that number."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True
