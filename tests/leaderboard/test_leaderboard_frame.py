"""`leaderboard.frame()`: one row per run, evaluation mode and length, with fixed types."""

import subprocess
import sys

import pandas as pd
import pytest

import leaderboard
from leaderboard.record.read import RECORDS, load
from leaderboard.stats.frame import COLUMNS
from leaderboard.stats.intervals import wilson
from leaderboard.stats.tables import tables


def test_a_row_holds_what_its_record_says(raw, save):
    one = raw("rope(base=500)", 3, {10: 98, 20: "cannot represent"})
    folder = save(one)
    (record,), _ = load([folder])
    first, second = leaderboard.frame(folder).to_dict("records")
    assert (first["run"], first["task"], first["seed"], first["mode"]) == (
        one["run"],
        "copy",
        3,
        "",
    )
    assert (first["name"], first["encoding"]) == ("rope", "rope(base=500)")
    assert first["settings"] == record.shared_hash
    assert (first["length"], first["seen"], first["train_length"]) == (10, True, 10)
    assert (first["exact"], first["correct"], first["count"]) == (0.98, 98, 100)
    assert (first["token"], first["chance"], first["steps"]) == (0.99, 0.1, 1500)
    assert (first["wilson_low"], first["wilson_high"]) == wilson(98, 100)
    assert (first["parameters"], first["cpu_seconds"]) == (100_000, 35.0)
    assert first["finished"] == pd.Timestamp("2026-11-22", tz="UTC")
    assert second["status"] == "cannot represent"
    assert all(pd.isna(second[name]) for name in ("exact", "correct", "token", "wilson_low"))


def test_modes_checkpoints_and_failures(raw, failed, save):
    one = raw("prism", 0, {10: 50})
    one["modes"] = {"snapped": raw(right={10: 90})["scores"]}
    one["scores"]["best"] = [one["scores"]["last"][0] | {"exact": 0.6, "correct": 60}]
    folder = save(one, failed("t5", 1, "out of memory"))
    last = leaderboard.frame(folder, modes=True).set_index(["encoding", "mode"])
    assert last.exact["prism", ""] == 0.5
    assert last.exact["prism", "snapped"] == 0.9
    assert last.loc[("t5", ""), ["status", "note"]].tolist() == ["failed", "out of memory"]
    assert pd.isna(last.length["t5", ""])
    best = leaderboard.frame(folder, checkpoint="best", modes=True)
    assert best.exact.dropna().tolist() == [0.6, 0.9]
    with pytest.raises(ValueError, match="unknown checkpoint 'first'"):
        leaderboard.frame(folder, checkpoint="first")


def test_a_plain_pivot_equals_the_leaderboard(raw, save):
    records = [raw("prism", seed, {10: 90, 20: 50 + seed}) for seed in range(3)]
    for one in records:
        one["modes"] = {"snapped": raw(right={10: 100, 20: 100})["scores"]}
    folder = save(*records, *(raw("rope", seed) for seed in range(3)))
    pivot = leaderboard.frame(folder).pivot_table(
        index="encoding", columns="length", values="exact"
    )
    rows = [row for table in tables(load([folder])[0]) for row in table.rows if not row.mode]
    shown = {
        (row.label, cell.length): cell.main.mean for row in rows for cell in row.cells if cell.main
    }
    assert shown == pytest.approx(pivot.stack().dropna().to_dict())


def test_columns_and_their_types_do_not_depend_on_the_records(raw, save, tmp_path):
    for scores in (leaderboard.frame(save(raw())), leaderboard.frame(tmp_path / "records" / "..")):
        assert {name: str(kind) for name, kind in scores.dtypes.items()} == COLUMNS
    (tmp_path / "empty").mkdir()
    empty = leaderboard.frame(tmp_path / "empty")
    assert (len(empty), list(empty.dtypes.astype(str))) == (0, list(COLUMNS.values()))


def test_every_column_is_explained():
    words = leaderboard.frame.__doc__.replace(",", " ").replace(";", " ").replace(":", " ").split()
    assert [name for name in COLUMNS if name not in words] == []


@pytest.mark.slow
def test_the_committed_records_are_all_there(monkeypatch):
    some = RECORDS / "quick" / "copy"
    monkeypatch.setattr("leaderboard.stats.frame.RECORDS", some)
    records, _ = load([some])
    scores = leaderboard.frame(modes=True)
    assert set(scores["mode"]) > {""}
    expected = sum(len(one.last) for record in records for one in record.by_mode.values())
    assert len(scores) == expected + sum(record.status == "failed" for record in records)
    assert not scores.duplicated(["run", "mode", "length"]).any()
    assert set(scores.run) == {record.run for record in records}


def test_bad_files_are_named_and_a_missing_folder_is_an_error(raw, save, tmp_path):
    with pytest.warns(UserWarning, match=r"001\.json: "):
        assert len(leaderboard.frame(save(raw(), "{"))) == 3
    with pytest.raises(FileNotFoundError, match="no such file or folder"):
        leaderboard.frame(tmp_path / "nowhere")


@pytest.mark.slow
def test_pandas_is_imported_for_the_frame_alone(tmp_path):
    folder = str(RECORDS.parents[1] / "tests" / "leaderboard")
    code = f"""
import sys
sys.path.append({folder!r})
import leaderboard, leaderboard.build
from harness.cli.main import cli
from harness.cli.tables import print_records
from leaderboard.record.schema import Record
from made_records import raw_record
for form in ("table", "csv", "markdown", "json"):
    print_records([Record.of(raw_record()), Record.of(raw_record("alibi"))], form)
assert "pandas" not in sys.modules
leaderboard.frame({str(tmp_path)!r})
assert "pandas" in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
