"""Parts of a build in forked processes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from leaderboard.processes import in_processes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are copied on Linux")


@pytest.mark.parametrize("processes", [1, 2, 5])
def test_parts_come_back_in_order(processes: int) -> None:
    parts = [lambda i=i: (time.sleep(0.02 * (i % 2)), i * i)[1] for i in range(7)]
    assert in_processes(parts, processes) == [i * i for i in range(7)]


def test_several_processes_work() -> None:
    def who() -> int:
        time.sleep(0.2)
        return os.getpid()

    assert len({*in_processes([who] * 4, 2)}) == 2


def test_an_error_of_a_part_is_raised() -> None:
    def work() -> None:
        raise ValueError("no room")

    with pytest.raises(ValueError, match="no room"):
        in_processes([work] * 2, 2)


def test_a_killed_process_is_told() -> None:
    def work() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(ChildProcessError, match="killed"):
        in_processes([work] * 2, 2)


def test_no_process_outlives_a_parent_that_ends_at_once(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import os, threading, time\n"
        "from leaderboard.processes import in_processes\n"
        "threading.Timer(0.5, os._exit, [3]).start()\n"
        "in_processes([lambda: time.sleep(60)] * 2, 2)\n"
    )
    # A child that went on would keep the pipe open, which is read to its end.
    found = subprocess.run([sys.executable, script], stdout=subprocess.PIPE, timeout=30)
    assert found.returncode == 3
