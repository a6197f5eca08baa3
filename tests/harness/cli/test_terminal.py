"""What the terminal shows: tables that fit, lists, formats, one line for bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.cli.tables import print_records

LONG = "prism_spectral(controller=latch,cursors=2,gate_noise=3.0,mu=-4.0)"


@pytest.fixture
def made_record(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "leaderboard")
    from made_records import raw_record

    return raw_record


@pytest.fixture
def records(made_record):
    lengths = (10, 11, 15, 16, 20, 21, 30, 31, 50, 51, 100, 101)
    names = ("rope", "randomized:shifted_sinusoidal", LONG)
    right = {length: 100 - length // 2 for length in lengths}
    return [made_record(name, seed, right) for name in names for seed in range(3)]


@pytest.mark.parametrize("width", [80, 120])
def test_no_row_of_the_closing_table_wraps(width, records, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    print_records(records, "table")
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= width
    table = out[: out.index("every length")]
    assert "randomized:shifted_sinusoidal" in out  # names are not cut
    assert sum(head.isdigit() for head in table.splitlines()[1].split()) >= 3
    assert f"prism_spectral [a] = {LONG}" in " ".join(out.split())


def test_wide_has_every_length_and_interval(records, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    print_records(records, "table", wide=True)
    head, _, row = capsys.readouterr().out.splitlines()[1:4]
    assert sum(word.isdigit() for word in head.split()) == 12
    assert row.count("[") >= 13


def test_a_mode_has_no_rank(made_record, capsys):
    one = made_record("prism", 0)
    one["modes"] = {"snapped": one["scores"]}
    print_records([one], "table")
    (line,) = [text for text in capsys.readouterr().out.splitlines() if "(snapped)" in text]
    assert line.split()[2] == "70.0"


def test_lists_fit_80_columns_and_options_are_told_by_name(call, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for what in ("encodings", "tasks", "protocols"):
        code, out, _ = call("list", what)
        assert code == 0
        assert max(map(len, out.splitlines())) <= 80
    code, out, _ = call("list", "encodings", "rope")
    assert "base=10000.0" in out
    code, out, _ = call("list", "encodings", "--format", "json")
    assert {"name", "summary", "paper", "options"} == set(json.loads(out)[0])
    code, _, err = call("list", "encodings", "roppe")
    assert (code, "did you mean rope?" in err) == (2, True)


BENCH = ("bench", "--pe", "rope", "--task", "copy")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([*BENCH, "--set", "eval.lengths=[]"], "at least 1 item"),
        ([*BENCH, "--set", "eval.lengths=[1000000000]"], "less than or equal to 10000000"),
        ([*BENCH, "--set", "train.lengths=[10,1]"], "expected the shortest, then the longest"),
        ([*BENCH, "--set", "model.layers=1000000"], "less than or equal to 1000"),
        (["bench", "--pe", "rope(base=0)", "--task", "copy"], "base must be above 0"),
        (["bench", "--pe", "learned(max_len=0)", "--task", "copy"], "max_len must be at least 1"),
        ([*BENCH, "--seeds", ""], "--seeds expects a value, was given an empty text"),
        ([*BENCH, "--seeds="], "expected for example 0-2"),
        ([*BENCH, "--known", " "], "--known expects a value"),
        ([*BENCH, "--threads", "100000"], "1<=x<=1024"),
        (["leaderboard", "build", "--out", __file__], "--out expects a folder"),
        (["leaderboard", "open", "--out", "nowhere"], "there is no nowhere/index.html"),
    ],
)
def test_bad_input_is_one_line_before_anything_is_written(args, words, call, tmp_path):
    folder = tmp_path / "runs"
    code, out, err = call(*args, *(["--runs", str(folder)] if args[0] == "bench" else []))
    assert (code, out) == (2, "")
    assert words in err
    assert len(err.strip().splitlines()) == 1
    assert not folder.exists()


def test_an_empty_name_is_no_folder_of_runs(call):
    code, _, err = call(*BENCH, "--runs", "")
    assert (code, err) == (2, "Error: --runs expects a value, was given an empty text\n")
