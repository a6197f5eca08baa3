"""Figures of Turing Programs: one length of several, seeds apart, ten tasks, pairs of lengths."""

import csv
import io
from xml.etree import ElementTree

import pytest
from made_records import KNOWN, paper_run, paper_score

from harness.settings.protocol import load_protocol
from leaderboard.papers import text
from leaderboard.papers.cells import fill, pairs_of
from leaderboard.papers.paper import Number, read
from leaderboard.papers.pictures import figures_of, pictures
from leaderboard.render.site import build
from leaderboard.stats.tables import tables

MINI = load_protocol("turing2024-mini")


def run(task="turing_addition", encoding="hard_alibi", exact=0.5, seed=0, pairs=None, version=2):
    """A run of the mini protocol: `exact` at every length, or by length; `pairs` by both."""
    _, train, test = MINI.settings(task)
    high = train.lengths[1]

    def score(length, share):
        return paper_score(length, length <= high, share)

    last = [score(n, exact[n] if isinstance(exact, dict) else exact) for n in test.lengths]
    sets = {
        one.name: [score(n, (pairs or {}).get((int(one.name[:-2]), n), 0.25)) for n in one.lengths]
        for one in test.sets
    }
    config = {"task_version": version, "encoding_version": 2}
    return paper_run(MINI, task, encoding, last, seed=seed, config=config, more={"sets": sets})


def filled(number, records):
    paper = read("turing2024")
    part = paper.tables[number] if number in paper.tables else paper.figure(number)
    return fill(paper, part, records, MINI)


def test_table_1_counts_one_multiple_of_the_training_length():
    _, _, test = MINI.settings("turing_addition")
    exact = {n: 0.75 if n == 12 else 0.0 for n in test.lengths}
    found = filled(
        "1", [run(exact=exact), run("turing_sgd", exact={2: 1, 3: 0.5, 4: 0, 5: 0}, version=1)]
    )
    cells = {cell.task: cell for cell in found.cells}
    assert cells["turing_addition"].ours == Number(75.0)
    assert cells["turing_addition"].paper == Number(98.0)
    assert cells["turing_sgd"].ours == Number(50.0)  # 1.6 times 2, rounded
    assert cells["turing_multiplication_1"].ours is None
    lines = csv.DictReader(io.StringIO(text.as_csv(found)))
    assert {one["task"]: one["test_lengths"] for one in lines if one["ours"]} == {
        "turing_addition": "12", "turing_sgd": "3",
    }  # fmt: skip


def test_figure_3b_has_a_curve_per_seed():
    (one,) = pictures(filled("3b", [run(seed=seed) for seed in (2, 0, 1)]))
    assert (one.file, one.task) == ("turing2024.figure-3b.turing_addition.svg", "turing_addition")
    assert all(f"hard_alibi, seed {seed}" in one.svg for seed in range(3))
    ElementTree.fromstring(one.svg)


def test_figure_7_has_a_curve_per_machine_in_one_picture():
    records = [run("turing_machine", version=1), run("turing_machine(machine=3)", version=1)]
    (one,) = pictures(filled("7", records))
    assert (one.file, one.task) == ("turing2024.figure-7.svg", "")
    assert "turing_machine(machine=3)" in one.svg
    assert "turing_machine(machine=4)" not in one.svg
    ElementTree.fromstring(one.svg)


def test_figure_9_is_a_heat_map_of_both_lengths():
    records = [run(pairs={(4, 4): 1.0, (12, 9): 0.5}, seed=0), run(seed=1)]
    found = filled("9", records)
    pairs = pairs_of(records[0])
    assert len(pairs) == 16
    assert pairs[12, 9].exact == 0.5
    # 12 of 16 pairs go beyond 6: one seed has 0.5 at one of them, all others 0.25.
    assert found.cells[0].ours.value == pytest.approx(100 * (0.25 + 0.25 / 24))
    (one,) = pictures(found)
    root = ElementTree.fromstring(one.svg)
    shown = [x.text for x in root.iter() if (x.get("class") or "") in ("mid", "mid light")]
    assert (len(shown), shown.count("25")) == (16, 14)
    assert {"62", "38"} <= {*shown}  # means over the seeds
    assert sum(x.get("class") == "seen" for x in root.iter()) == 4


def test_task_pages_show_the_figures_that_have_runs(tmp_path):
    records = [run(), run("turing_machine(machine=1)", version=1)]
    found = figures_of(records, KNOWN)
    assert {one.file.split(".")[1] for one in found} == {
        "figure-3",
        "figure-3b",
        "figure-7",
        "figure-9",
    }
    assert figures_of([], KNOWN) == []
    build(tables(records), records, tmp_path / "site", catalog=KNOWN)
    page = (tmp_path / "site/task/turing_addition.html").read_text()
    for number in ("3", "3b", "9"):
        assert f"figure-{number}.turing_addition.svg" in page
        assert (
            tmp_path / f"site/pictures/turing2024.figure-{number}.turing_addition.svg"
        ).is_file()
    assert all("Ours: " not in one.svg for one in found)  # the page says it
    assert "figure-7" not in page
    assert "protocol turing2024 in brackets: model.layers 4 (12)" in page
    assert "train.steps 5,000 (200,000)" in page
    other = next((tmp_path / "site/task").glob("turing_machine*.html")).read_text()
    assert "pictures/turing2024.figure-7.svg" in other
