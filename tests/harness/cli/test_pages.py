"""The pages that bench writes."""

import json
import shutil

import pytest

BENCH = ["bench", "--pe", "nope", "--task", "copy", "--seeds", "0", "--set", "train.steps=2"]
BENCH += ["--set", "eval.samples=4", "--set", "eval.min_samples=4", "--set", "eval.lengths=[10]"]


@pytest.fixture(autouse=True)
def committed(tmp_path, monkeypatch):
    """Put no records into the pages but the runs'."""
    monkeypatch.setattr("harness.cli.pages.RECORDS", tmp_path / "records")


def read(runs):
    return json.loads((runs / "leaderboard" / "leaderboard.json").read_text("utf-8"))


def test_the_pages_have_known_runs(call, tmp_path):
    mine, other = tmp_path / "mine", tmp_path / "other"
    call(*BENCH, "--runs", mine)
    (result,) = mine.glob("*/result.json")
    kept = tmp_path / "kept"
    kept.mkdir()
    result.rename(kept / f"{result.parent.name}.json")
    for _ in range(2):
        _, out, err = call(*BENCH, "--runs", other, "--known", kept)
        assert "task/copy.html#" in out, err
        assert "pick=nope" in out
        assert [row["label"] for table in read(other) for row in table["rows"]]


@pytest.mark.slow
def test_a_damaged_site_is_written_again(call, tmp_path):
    _, out, _ = call(*BENCH, "--runs", tmp_path)
    before = read(tmp_path)
    for damaged in ("{", "[{}]"):
        (tmp_path / "leaderboard" / "leaderboard.json").write_text(damaged)
        assert call(*BENCH, "--runs", tmp_path)[1] == out
        assert read(tmp_path) == before


def test_files_that_are_left_out_are_told(call, tmp_path):
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "result.json").write_text("{")
    assert "left out: " in call(*BENCH, "--runs", tmp_path)[2]


def test_a_folder_that_cannot_be_a_site_is_refused_before_training(call, tmp_path):
    (tmp_path / "leaderboard").mkdir()
    (tmp_path / "leaderboard" / "mine.txt").touch()
    code, _, err = call(*BENCH, "--runs", tmp_path)
    assert (code, "not a built site" in err) == (2, True)
    assert not [*tmp_path.glob("*/result.json")]


READ_ONLY = (PermissionError(13, "Permission denied"), OSError(30, "Read-only file system"))
TUNED = ("--tune", "lr=1e-3,3e-3", "--tune-seeds", "7")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "tuned", "pages"), [(READ_ONLY[0], (), True), (READ_ONLY[1], TUNED, False)]
)
def test_a_finished_comparison_in_a_read_only_folder_is_printed(
    call, tmp_path, monkeypatch, error, tuned, pages
):
    def refuse(*_, **__):
        raise error

    _, before, _ = call(*BENCH, *tuned, "--runs", tmp_path)
    if not pages:
        shutil.rmtree(tmp_path / "leaderboard")
    monkeypatch.setattr("pathlib.Path.touch", refuse)
    monkeypatch.setattr("pathlib.Path.mkdir", refuse)
    monkeypatch.setattr("experiment.files.write_whole", refuse)
    monkeypatch.setattr("harness.runs.files.write_whole", refuse)
    code, out, err = call(*BENCH, *tuned, "--runs", tmp_path)
    table = before.rpartition("\nleaderboard: ")[0]
    assert (code, out) == (0, before if pages else table), err
    assert ("warning: cannot write the leaderboard" in err) != pages
    code, _, err = call(*BENCH, "--runs", tmp_path, "--seeds", "1")
    assert (code, "cannot write to --runs" in err) == (2, True)
