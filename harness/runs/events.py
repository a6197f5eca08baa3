"""Events of a run: dicts that travel from a worker to the command line.

    {"step": 120, "of": 2000, "rate": 41.0, "loss": 0.7, "exact": 0.3}    training, once a second
    {"step": 500, "phase": "evaluating"}
    {"again": text}                                            for the user

The last event of a run is one of

    {"record": Record}     it is done, or failed in a way that a record holds
    {"busy": text}         another process has it, or it was stopped and saved
    {"error": text}        no record; with "halt": True other runs would end the same way
    {"died": text}         its process is gone
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

Event = dict[str, Any]
Report = Callable[[Event], None]
ReportOf = Callable[[int, Event], None]  # of run i of several
Stop = Callable[[], bool]
FINAL = {"record", "error", "busy", "died"}


class Stopped(Exception):
    """Training was asked to stop and did, after saving a checkpoint."""


def holder(lock: str) -> str:
    """Describe the process that has locked a file: ": process 17", with advice if it is stopped.

    Returns "" if the system does not tell: outside Linux, or for a process of another machine.
    """
    try:
        locks = Path("/proc/locks").read_text(encoding="utf-8")
        inode = Path(lock).stat().st_ino
        found = re.search(rf"^\d+: FLOCK .* (\d+) \w+:\w+:{inode} ", locks, re.MULTILINE)
        state = Path(f"/proc/{found[1]}/stat").read_text(encoding="utf-8") if found else ""
    except OSError:
        return ""
    if not found:
        return ""
    pid, stopped = found[1], state.rpartition(")")[2].split()[0] == "T"
    advice = f" is stopped; kill -CONT {pid} lets it go on, kill -9 {pid} frees the run"
    return f": process {pid}" + advice * stopped
