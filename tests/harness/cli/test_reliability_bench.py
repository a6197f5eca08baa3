"""What `pezoo bench` leaves behind is what the other commands may trust."""

import shutil

import pytest
from soak import SETTINGS

SMALL = [word for setting in SETTINGS for word in ("--set", setting)]


@pytest.fixture
def bench(call, tmp_path, monkeypatch):
    """(*args) -> exit code, stdout and stderr of a small comparison in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    words = ["bench", "--pe", "rope", "--task", "copy", "--seeds", "0", "--device", "cpu"]
    return lambda *args: call(*words, *SMALL, *args)


@pytest.mark.slow
def test_the_site_of_a_bench_is_no_source_of_records(bench, call, tmp_path):
    code, out, err = bench()
    assert code == 0, err
    count = int(out.rpartition("(")[2].split()[0])
    assert (tmp_path / "runs/leaderboard/record").is_dir()
    code, out, err = call("leaderboard", "check", "runs")
    assert (code, err) == (0, "")
    assert "1 records checked, 0 refused" in out
    (folder,) = (path.parent for path in (tmp_path / "runs").glob("*/config.json"))
    shutil.rmtree(folder)  # a run that was deleted is nowhere
    code, out, err = call("leaderboard", "build", "--out", "runs/leaderboard", "--markdown", "L.md")
    assert f"{count - 1} records" in out, err
