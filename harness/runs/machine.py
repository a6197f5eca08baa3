"""What the machine is, as the system tells it."""

from __future__ import annotations

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
