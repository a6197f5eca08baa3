"""A record is hostile until it has passed; a bad file is a message, never an exception."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from made_records import KNOWN

from experiment.config import Eval
from leaderboard.check import check as check_records
from leaderboard.record.read import load

check = partial(check_records, catalog=KNOWN)
MANY = Path(__file__).with_name("many_records.py")


def test_a_good_record_keeps_its_settings(record):
    one = record("prism", 3)
    assert (one.train_length, one.config.spec, one.config.task_version) == (10, "prism", 1)
    assert (one.config.train.steps, one.config.train.lengths) == (1500, (1, 10))


@pytest.mark.parametrize(
    "value",
    ["1e999", "NaN", "1" + "0" * 400, '"' + "x" * 3000 + '"', "[" * 150 + "]" * 150, '"\\u202e"'],
)
def test_settings_are_bounded_too(value, raw, save):
    text = json.dumps(raw()).replace('"steps": 1500', f'"steps": {value}')
    records, problems = load([save(text)])
    assert records == []
    assert len(problems) == 1
    assert len(problems[0]) < 1000


@pytest.mark.parametrize("text", ["", "[]", "null", "{", "\x00", '{"schema": 1}', "[" * 100_000])
def test_broken_files_are_problems(text, raw, save, record):
    records, problems = load([save(text, raw())])
    assert len(records) == len(problems) == 1


def test_bytes_that_are_no_text_and_large_files_are_problems(tmp_path):
    (tmp_path / "a.json").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "b.json").write_bytes(b" " * 5_000_000)
    (tmp_path / "c.json").mkdir()
    (tmp_path / "d.json").symlink_to(tmp_path / "nowhere")
    records, problems = load([tmp_path, tmp_path / "missing"])
    assert (records, len(problems)) == ([], 5)


def test_reasons_are_cleaned_not_refused(raw, save):
    (one,), _ = load([save(raw(reason="bad\n\x1b[31mred\u202e end"))])
    assert one.reason == "bad [31mred end"


def test_first_file_of_a_run_counts_and_other_scores_are_reported(raw, save):
    first, other = raw(right={10: 90}), raw(right={10: 90})
    other["scores"]["last"][0].update(exact=0.8, correct=80)
    folders = [save(first), save(first, other, folder="runs")]
    records, problems = load(folders)
    assert records[0].scores.last[0].exact == 0.9
    assert [f"other scores for run {first['run']}" in line for line in problems] == [True]


def test_a_done_run_replaces_a_failed_one(raw, save):
    done = raw()
    broken = done | {"status": "failed", "reason": "killed", "scores": {"last": []}}
    for order in ([broken, done], [done, broken]):
        records, problems = load([save(*order)])
        assert ([one.status for one in records], problems) == (["done"], [])


def test_in_a_run_folder_only_the_result_is_read(raw, tmp_path: Path):
    run = tmp_path / "runs" / "0123456789abcdef"
    run.mkdir(parents=True)
    (run / "config.json").write_text("{}")
    (run / "env.json").write_text("{}")
    assert load([tmp_path / "runs"]) == ([], [])
    result = json.dumps(raw())
    (run / "result.json").write_text(result)
    assert "there is no DONE" in load([tmp_path / "runs"])[1][0]
    (run / "DONE").write_text(hashlib.sha256(result.encode()).hexdigest())
    assert [len(part) for part in load([tmp_path / "runs"])] == [1, 0]
    (run / "result.json").write_text(json.dumps(raw() | {"chance": 0.2}))
    records, problems = load([tmp_path / "runs"])
    assert (records, "not what DONE says" in problems[0]) == ([], True)


def test_a_config_beside_committed_records_hides_none(raw, tmp_path: Path):
    one = raw()
    (tmp_path / f"{one['run']}.json").write_text(json.dumps(one))
    (tmp_path / "config.json").write_text("{}")
    records, problems = load([tmp_path])
    assert [record.run for record in records] == [one["run"]]
    assert ["config.json: " in line for line in problems] == [True]
    (tmp_path / f"{one['run']}.json").unlink()
    assert "config.json: " in check([tmp_path], tree=True).refused[0]


def test_of_a_huge_done_only_the_start_is_read(raw, tmp_path: Path):
    (tmp_path / "result.json").write_text(json.dumps(raw()))
    with (tmp_path / "DONE").open("wb") as file:
        file.truncate(60 * 10**9)
    assert "not what DONE says" in load([tmp_path])[1][0]


def test_lengths_are_bounded_before_they_are_counted_out_and_lists_in_records(raw, save):
    with pytest.raises(ValueError, match="9999999 lengths: expected at most 1000"):
        Eval.model_validate({"lengths": "1-9999999"})
    assert Eval.model_validate({"lengths": "41-44"}).lengths == (41, 42, 43, 44)
    one = raw()
    one["config"]["eval"]["lengths"] = "10-20"
    assert "expected a list of lengths" in load([save(one)])[1][0]


def test_the_tables_of_a_site_among_the_runs_are_no_bad_record(raw, save, tmp_path: Path):
    site = save(raw()) / "leaderboard"
    site.mkdir()
    (site / "leaderboard.json").write_text("[]")
    records, problems = load([site.parent])
    assert (len(records), problems) == (1, [])


@pytest.mark.parametrize(
    ("name", "more"),
    [("seed", '{"seed": 3,'), ("learning", '{"learning": [],'), ("x", '{"x": {"x": 1, "x": 2},')],
)
def test_a_name_that_is_twice_in_an_object_is_refused(raw, save, name, more):
    """Readers take the one or the other."""
    _, (problem,) = load([save(json.dumps(raw()).replace("{", more, 1))])
    assert f"{name!r} is twice" in problem


@pytest.mark.slow
def test_two_thousand_records_are_built_in_seconds_and_little_memory(tmp_path):
    words = [sys.executable, MANY, "--records", "2000", "--root", tmp_path]
    out = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    count, cpu, _, peak = map(float, re.findall(r"[\d.]+\b", out))
    assert count == 2000
    assert cpu < 40  # 13 on a busy core: finds quadratic work, whatever else runs here
    assert peak < 210  # 168
