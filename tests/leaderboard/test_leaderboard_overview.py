"""All tasks of a protocol in one table: which tasks count, who has a place, what stands beside."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from made_records import KNOWN, markdown
from parsed import Page

from leaderboard.catalog import Catalog
from leaderboard.render import site
from leaderboard.render.data import site_data
from leaderboard.render.markdown import files
from leaderboard.render.overviews import disclosure
from leaderboard.stats.overview import counting, heads, overview, with_column
from leaderboard.stats.ranks import comparisons
from leaderboard.stats.summary import summarise
from leaderboard.stats.tables import tables

TASKS = ("copy", "reverse")


def results(record, names="abc", tasks=TASKS, seeds=(0,), **more):
    """The first name is best, on every task; 90, 80, ... of 100 are right."""
    return [
        record(name, seed, {10: 100, 20: 90 - 10 * at - seed}, task=task, **more)
        for at, name in enumerate(names)
        for task in tasks
        for seed in seeds
    ]


def test_one_record_on_a_new_task_takes_no_place_away(record):
    records = results(record)
    before = [(line.label, line.rank) for line in overview(tables(records))]
    assert before == [("a", 1), ("b", 2), ("c", 3)]
    found = tables([*records, record("c", right={10: 100, 20: 100}, task="scan_cot")])
    lines = overview(found)
    assert [(line.label, line.rank) for line in lines] == before
    assert lines[0].unseen.mean == pytest.approx(0.9)
    text = re.sub(" +", " ", markdown(found))
    assert (
        "| rank | encoding | mean | 1/rank | copy | reverse | scan&#95;cot (run by 1 of 3) |"
        in text.replace("scan_cot", "scan&#95;cot")
    )
    assert "| 3 | c | 70.0 | 0.33 | 1x¹ (70.0) | 1x¹ (70.0) | ≥2x¹ (100.0) |" in text
    data = site_data(found, Catalog())["overviews"][0]
    assert data["heads"][2] == "scan_cot (run by 1 of 3)"


def test_a_task_that_less_than_a_tenth_have_run_has_a_section_and_no_column(record):
    records = [record(name, task=task) for name in "abcdefghijk" for task in TASKS]
    records.append(record("k", task="sort"))
    found = tables(records)
    pages = {name: re.sub(" +", " ", page) for name, page in files(found).items()}
    assert "| copy | reverse |\n" in pages["LEADERBOARD.md"]
    assert "## quick / sort" in pages["LEADERBOARD-quick.md"]
    data = site_data(found, Catalog())
    assert data["overviews"][0]["tasks"] == data["overviews"][0]["heads"] == ["copy", "reverse"]
    assert "sort" in data["tasks"]
    one_each = [record(name, task=f"t{name}") for name in "abcdefghijk"]
    assert len(with_column(tables(one_each))) == 11
    rope, other = record("rope"), record("rope(base=500)", task="reverse")
    assert len(with_column(tables([rope, other]))) == 2


def test_without_a_number_on_a_task_that_counts_there_is_no_place(record):
    records = results(record) + results(record, "z", ["copy"]) + results(record, "y", ["scan_cot"])
    lines = overview(tables(records))
    assert [(line.label, line.rank, line.learned) for line in lines] == [
        ("a", 1, 2), ("b", 2, 2), ("c", 3, 2), ("y", None, 1), ("z", None, 1),
    ]  # fmt: skip
    assert lines[3].unseen is None
    assert "learned 1 of 3" in markdown(tables(records))


def test_the_mean_reciprocal_rank_is_that_of_a_plain_loop(record):
    """Scores with ties, other orders by task, typed options and an encoding without a task."""
    right = {
        "copy": {"a": 90, "b": 90, "c": 10, "d": 50, "rope(base=5)": 95},
        "reverse": {"a": 20, "b": 30, "c": 90, "d": 30, "rope(base=5)": 30},
        "scan_cot": {"a": 0, "b": 0, "c": 0, "rope(base=5)": 0},
    }
    records = [
        record(name, right={10: 100, 20: score}, task=task)
        for task, own in right.items()
        for name, score in own.items()
    ]
    found = {line.label: line for line in overview(tables(records))}
    for name in ("a", "b", "c", "rope(base=5)"):
        total = 0.0
        for own in right.values():
            rivals = [key for key in own if key not in (name, "rope(base=5)")]
            place = 1
            for rival in rivals:
                place += own[rival] > own[name]
            total += 1 / place
        assert found[name].reciprocal_rank == pytest.approx(total / 3)
    assert found["d"].reciprocal_rank is None
    data = {
        line["label"]: line
        for line in site_data(tables(records), Catalog())["overviews"][0]["lines"]
    }
    assert data["b"]["reciprocal_rank"] == pytest.approx(found["b"].reciprocal_rank)


def test_seeds_apart_stand_below_their_encoding(record):
    records = results(record, "abcd") + results(record, "a", seeds=(40, 41))
    lines = overview(tables(records))
    assert [(line.label, line.rank) for line in lines] == [
        ("a", 1), ("a (seeds 40-41)", None), ("b", 2), ("c", 3), ("d", 4),
    ]  # fmt: skip


@pytest.mark.parametrize(("sharing", "apart"), [("abcd", True), ("abcde", False)])
def test_a_seed_of_five_encodings_counts_in_a_table_of_many(record, sharing, apart):
    seeds = [(name, 0) for name in "abcdefghijklmnopqr"]
    seeds += [(name, seed) for name in sharing for seed in (5, 6)]
    records = [record(name, seed, {10: 100, 20: 50}) for name, seed in seeds]
    lines = overview(tables(records))
    assert any("seeds 5-6" in line.label for line in lines) is apart


def test_seeds_apart_without_a_parent_carry_its_name(record, tmp_path):
    records = results(record, tasks=["copy"]) + results(record, "d", ["copy"], seeds=(5, 6))
    site.build(tables(records), records, tmp_path, catalog=Catalog())
    names = [row["encoding"] for row in Page(tmp_path / "task" / "copy.html").table("encoding")]
    assert any(name.startswith("d (seeds 5-6)") for name in names)
    assert not any(name.startswith("seeds 5-6") for name in names)


def test_the_mean_is_of_the_seeds_that_the_tests_see(record):
    """On copy both have a third seed, which is far from the others."""
    records = results(record, "ab", seeds=(0, 1))
    records += [record(name, 2, {10: 100, 20: 0}) for name in "ab"]
    line = overview(tables(records))[0]
    assert line.unseen.mean == pytest.approx((0.9 + 0.89) / 2)
    assert (line.unseen.n, line.unseen.method, line.unseen.low < line.unseen.mean) == (2, "t", True)
    one = overview(tables(results(record) + results(record, seeds=(1, 2), tasks=["copy"])))[0]
    assert one.unseen.mean == pytest.approx((0.9 + 0.89) / 2)  # copy's three seeds, reverse's one
    assert (one.unseen.low, one.ranks) == (None, None)


def test_every_table_says_how_many_seeds_a_cell_has(record, tmp_path):
    records = results(record, "ab", seeds=(0, 1, 2)) + results(record, "c")
    found = tables(records)
    text = re.sub(" +", " ", markdown(found))
    assert "| | seeds | | | 1-3 | 1-3 |" in text
    assert "| 1 [1-3] | c | 90.0 | 1.00 | ≥2x¹ (90.0) | ≥2x¹ (90.0) |" in text
    site.build(found, records, tmp_path)
    lines = {line["encoding"]: line for line in Page(tmp_path / "index.html").table("copy")}
    assert (lines["seeds"]["copy"], lines["c"]["copy"]) == ("1-3", "≥2x¹90.0")


def test_encoders_have_a_baseline_without_a_place(record, tmp_path):
    records = results(record, "ab", config={"track": "encoder"})
    found = tables(records)
    assert "| - | baseline | 10.0 | - | 10.0 | 10.0 |" in re.sub(" +", " ", markdown(found))
    assert "baseline |" not in markdown(tables(results(record)))
    (data,) = site_data(found, Catalog())["overviews"]
    assert data["baseline"] == 0.1


def test_options_are_disclosed_by_the_tasks_that_they_were_chosen_on(record):
    known = KNOWN
    names = ("prism", "prism_spectral", "lbpe_sh", "rope")
    found = tables([record(name, task=task) for name in names for task in ("copy", "odds_first")])
    said = disclosure(found, known)
    both = "prism and prism_spectral on copy and odds_first"
    assert both in said
    assert "lbpe_sh on copy" in said
    data = site_data(found, known)
    assert data["overviews"][0]["disclosure"] == said
    assert {table["task"]: "lbpe_sh" in table["disclosure"] for table in data["tables"]} == {
        "copy": True, "odds_first": False,
    }  # fmt: skip


def test_the_pairs_of_the_data_are_those_of_the_tests(record):
    found = tables(results(record, tasks=["copy"], seeds=(0, 1, 2)))
    (table,) = site_data(found, Catalog())["tables"]
    labels = [row["label"] for row in table["rows"]]
    assert [(labels[one[0]], labels[one[1]], one[-1]) for one in table["pairs"]] == [
        ("a", "b", 1), ("a", "c", 1), ("b", "c", 1),
    ]  # fmt: skip
    one, found = table["pairs"][0], comparisons(found[0].rows)[0]
    stat = found.difference
    want = [stat.mean, stat.low, stat.high, 3, found.p, found.adjusted]
    assert one[2:8] == pytest.approx(want, 1e-5)


def test_a_decoded_row_says_so(record):
    made = record()
    last = [replace(one, method="decoded") for one in made.scores.last]
    scores = made.scores.model_copy(update={"last": last})
    assert [row.decoded for row in summarise([made.model_copy(update={"scores": scores})])] == [
        True
    ]
    assert [row.decoded for row in summarise([made])] == [False]


def test_what_an_encoding_receives():
    names = ("ideal", "lbpe_sh", "coupled", "randomized:coupled", "abacus", "latch:t5")
    names += ("ssmax:latch(gates=2):rope", "lbpe_sh(middle=False)")
    assert [KNOWN.receives(name) for name in names] == [
        "oracle", "receives the length", "receives positions", "receives positions", "",
        "control", "control", "receives the length",
    ]  # fmt: skip


def test_a_task_counts_by_the_encodings_that_ran_it(record):
    """Two of three that ran scan_cot have learned it, of four; an oracle and a control are none."""
    records = results(record, "abcd")
    for name, trained in {"a": 100, "b": 100, "c": 0, "ideal": 100, "latch:rope": 0}.items():
        records.append(record(name, right={10: trained, 20: 0}, task="scan_cot"))
    found = tables(records, KNOWN)
    assert {row.label for table in found for row in table.rows if row.receives} == {
        "ideal", "latch:rope",
    }  # fmt: skip
    assert heads(found)[2] == "scan_cot"
    assert counting(found) == (True, True, True)
    records.append(record("d", right={10: 0, 20: 0}, task="scan_cot"))
    records.append(record("e", right={10: 0, 20: 0}, task="scan_cot"))
    assert heads(tables(records, KNOWN))[2] == "scan_cot (2 of 5 learned)"
