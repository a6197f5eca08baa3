"""Parts of a build in forked processes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiment.files import write
from leaderboard.processes import beside, in_processes

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


@pytest.mark.parametrize("processes", [1, 2])
def test_a_part_beside_is_waited_for(processes: int) -> None:
    with beside(os.getpid, processes) as who:
        assert (who() == os.getpid()) == (processes == 1)


@pytest.mark.parametrize("processes", [1, 2])
def test_an_error_beside_is_raised_where_the_result_is_asked_for(processes: int) -> None:
    def work() -> None:
        raise ValueError("no room")

    with beside(work, processes) as result, pytest.raises(ValueError, match="no room"):
        result()


def test_a_killed_process_beside_is_told() -> None:
    with (
        beside(lambda: os.kill(os.getpid(), signal.SIGKILL), 2) as result,
        pytest.raises(ChildProcessError, match="killed"),
    ):
        result()


def test_an_error_here_ends_the_part_beside() -> None:
    began = time.monotonic()
    with pytest.raises(ValueError, match="here"), beside(lambda: time.sleep(60), 2):
        raise ValueError("here")
    assert time.monotonic() - began < 30


def test_the_part_beside_takes_half_a_file_away_when_it_is_ended(tmp_path: Path) -> None:
    def half() -> Iterator[bytes]:
        yield b"half"
        (tmp_path / "begun").touch()
        time.sleep(60)

    def there() -> list[str]:
        return [path.name for path in tmp_path.glob(".runs.csv.*")]

    with beside(lambda: write(tmp_path / "runs.csv", half()), 2):
        while not (tmp_path / "begun").exists():
            time.sleep(0.01)
        assert there()
    assert not there()


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
