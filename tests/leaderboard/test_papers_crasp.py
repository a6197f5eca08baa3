"""The table of C-RASP: two ranges of lengths side by side, and what the theory expects."""

from statistics import fmean

import pytest
from made_records import paper_run, paper_score

from harness.settings.protocol import load_protocol
from leaderboard.papers import text
from leaderboard.papers.cells import fill
from leaderboard.papers.paper import Number, lines_of, read

MINI = load_protocol("crasp-mini")
MAJORITY = "binary_majority(strings=3)"


def run(encoding, task="majority", seed=0):
    """A run whose exact match at length n is (n + seed) / 64; no instance of other lengths."""
    _, train, test = MINI.settings(task)
    step = 3 if task == MAJORITY else 1
    last = [
        paper_score(n, n <= train.lengths[1], (n + seed) / 64 if n % step == 0 else "no instance")
        for n in test.lengths
    ]
    return paper_run(MINI, task, encoding, last, seed=seed)


def filled(records):
    paper = read("crasp")
    return fill(paper, paper.table("1"), records, MINI)


@pytest.mark.parametrize("task", ["majority", MAJORITY])
def test_a_column_counts_the_lengths_between_its_multiples(task):
    found = filled([run("shifted:learned", task, seed) for seed in (0, 1)])
    cells = {cell.column: cell for cell in found.cells if cell.task == task}
    step = 3 if task == MAJORITY else 1
    for column, low, high in (("APE 51-100", 21, 40), ("APE 101-150", 41, 60)):
        own = [n for n in MINI.settings(task)[2].lengths if low <= n <= high and n % step == 0]
        assert cells[column].ours.value == pytest.approx(100 * (fmean(own) + 0.5) / 64)
    assert cells["NoPE 51-100"].ours is None


def test_what_theory_expects_agrees_with_what_was_published():
    """At 101-150 an encoding with a program is right more often than one without on any problem."""
    lines = lines_of(read("crasp"), read("crasp").tables["1"])
    assert len(lines) == 8
    with_program, without = [], []
    for line in lines:
        for name in ("APE", "NoPE"):
            expected = line.group == "both" or line.group == name
            number = line.numbers[f"{name} 101-150"].value
            (with_program if expected else without).append(number)
    assert (len(with_program), len(without)) == (8, 8)
    assert min(with_program) > max(without)


def test_the_terminal_shows_the_theory_beside_the_task():
    shown = text.as_text(filled([run("nope")]), width=200)
    (head,) = [line for line in shown.splitlines() if line.startswith("task")]
    (row,) = [line for line in shown.splitlines() if line.startswith("unique_copy")]
    assert head.split()[:2] == ["task", "C-RASP"]
    assert row.split()[:2] == ["unique_copy(symbols=150)", "APE"]
    assert "| C-RASP" in text.as_markdown(filled([]))


def test_published_means_are_those_of_the_repository():
    """Five runs each, from its files of several seeds: a sample of them."""
    lines = {line.task: line.numbers for line in lines_of(read("crasp"), read("crasp").tables["1"])}
    interleaved = fmean([0.504, 0.976, 0.865, 0.9795, 0.9105])
    sort = fmean([0.9225, 0.4195, 0.839, 0.8925, 0.9565])
    assert lines[MAJORITY]["APE 101-150"] == Number(pytest.approx(100 * interleaved))
    assert lines["sort(symbols=150)"]["NoPE 101-150"] == Number(pytest.approx(100 * sort))
