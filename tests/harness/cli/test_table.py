"""`pezoo table` as a user meets it; what it fills a table with is in test_papers.py."""

import json

import pytest

from leaderboard.papers.paper import names
from leaderboard.record.read import RECORDS

SOME = ("--records", str(RECORDS / "ruoss2023-mini" / "missing_duplicate" / "rope"))
MINI = ("--records", str(RECORDS / "chen2026-mini" / "select_first"))


def test_without_a_number_it_lists_the_tables(call):
    code, out, _ = call("table", "ruoss2023")
    assert code == 0
    tables, figures = [line.split() for line in out.splitlines()[1:7]], out.splitlines()[7:]
    assert [words[0] for words in tables] == ["1", "2", "3", "4", "5", "means"]
    assert [line.split()[:2] for line in figures] == [["--figure", n] for n in "234"]


def test_the_help_names_every_paper(call):
    code, out, _ = call("table", "--help")
    assert code == 0
    assert all(name in out for name in names())


def test_a_papers_only_table_needs_no_number(call, tmp_path):
    folders = ["--runs", str(tmp_path), "--records", str(tmp_path)]
    code, out, err = call("table", "crasp", *folders)
    assert code == 0
    assert "parity_check(ones=uniform)  neither" in out
    assert "pezoo bench --protocol crasp-mini" in err


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["ruos2023", "1"], "did you mean ruoss2023"),
        (["ruoss2023", "9"], "known: 1, 2, 3, 4, 5"),
        (["ruoss2023", "6"], "pezoo show RUN"),
        (["turing2024", "2"], "known: 1"),
        (["ruoss2023", "--figure", "9"], "known: 2, 3, 4"),
        (["ruoss2023", "--figure", "5"], "pezoo show RUN"),
        (["chen2026", "4"], "pezoo show RUN"),
        (["ruoss2023", "1", "--figure", "3"], "exclude each other"),
        (["ruoss2023", "1", "--lengths", "x"], "42-100"),
        (["ruoss2023", "1", *SOME, "--lengths", "999"], "no run is tested there; runs are tested"),
        (["ruoss2023", "1", "--lengths", "0-3"], "lengths from 1 on"),
        (["ruoss2023", "1", "--set", "train.lr=1e-4"], "--set train.lr"),
        (["ruoss2023", "1", "--protocol", "ruos2023"], "did you mean ruoss2023"),
        (["ruoss2023", "1", "--records", "nowhere"], "no folder nowhere"),
        (["ruoss2023", "1", "--out", "x"], "--out needs"),
        (["ruoss2023", "--figure", "3", "--out", ""], "--out expects a value"),
        (["ruoss2023", "--format", "json"], "--format needs NUMBER"),
        (
            ["chen2026", "3", *MINI, "--out", f"{__file__}/x"],
            f"cannot read or write {__file__}/x: Not a",
        ),
    ],
)
def test_bad_input_exits_2_with_one_message(call, args, words):
    code, out, err = call("table", *args)
    assert code == 2
    assert words in err
    assert "Traceback" not in err + out


def test_the_papers_own_protocol_is_run_at_each_of_its_rates(call, tmp_path):
    words = ["ruoss2023", "3", "--protocol", "ruoss2023", *SOME, "--runs", str(tmp_path)]
    _, _, err = call("table", *words)
    commands = [line for line in err.splitlines() if "bench" in line]
    rates = [line.partition("--set train.lr=")[2].split(" ")[0] for line in commands]
    assert rates == ["0.0001", "", "0.0005"]  # the second is the protocol's own


def test_a_number_is_a_figures_where_a_paper_has_no_tables(call, tmp_path):
    folders = ["--runs", str(tmp_path), "--records", str(tmp_path)]
    code, out, err = call("table", "chen2026", "3", *folders)
    assert (code, "Figure 3" in out, "with --out FOLDER" in err) == (0, True, True)
    assert call("table", "chen2026", "3", *folders, "--out", str(tmp_path))[0] == 0


@pytest.mark.slow
def test_a_figures_pictures_are_drawn_where_asked_for(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    args = "table", "chen2026", "3", "--runs", str(tmp_path), *MINI
    assert call(*args)[0] == 0
    assert not list(tmp_path.iterdir())
    assert call(*args, "--out", "here")[0] == 0
    assert list(tmp_path.glob("here/*.svg"))


def test_every_format_has_the_number(call):
    (folder,) = RECORDS.glob("ruoss2023-mini/missing_duplicate/rope")
    words = "table", "ruoss2023", "1", "--runs", "none", "--records", folder, "--format"
    code, out, _ = call(*words, "json")
    (ours,) = (cell["ours"] for cell in json.loads(out)["cells"] if cell["runs"])
    assert code == 0
    for form, number in (("csv", f",rope,{ours},"), ("markdown", f"| {ours:.1f} (")):
        code, out, _ = call(*words, form)
        assert (code, number in out) == (0, True)


def test_runs_that_the_check_refuses_are_named(call, tmp_path):
    path = next(RECORDS.glob("ruoss2023-mini/missing_duplicate/rope/*.json"))
    one = json.loads(path.read_text())
    one["scores"]["last"] = one["scores"]["last"][:2]
    (tmp_path / path.name).write_text(json.dumps(one))
    words = ["ruoss2023", "1", "--runs", "none", "--records"]
    assert "check refuses" not in call("table", *words, str(path.parent))[2]
    code, _, err = call("table", *words, str(tmp_path))
    assert (code, f"check refuses run {path.stem}: scores.last has lengths [20, 21]" in err) == (
        0,
        True,
    )
