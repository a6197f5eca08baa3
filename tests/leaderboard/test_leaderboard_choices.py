"""The table of all encodings: properties by their files, results by the records."""

import pytest
from made_records import KNOWN

import pezoo
from leaderboard.render.choices import as_markdown, choices
from leaderboard.stats.tables import tables
from pezoo.adapters import resolve
from pezoo.testing import SHAPE


@pytest.fixture(scope="module")
def catalog():
    return KNOWN


def test_results_are_means_over_tasks_and_seeds_at_twice_and_ten_times(record, catalog):
    far = {10: 100, 20: 80, 100: 40}
    records = [
        record(name, seed, {n: right - 10 * seed for n, right in far.items()}, task=task)
        for name in ("rope", "alibi")
        for task in ("copy", "dyn_str_cpy")
        for seed in (0, 1)
    ]
    records += [record("rope", 0, {10: 100, 20: 10, 100: 0}, task="reverse")]
    records += [record("rope", 0, {10: 100, 20: 99, 100: 98}, task="copy", protocol="quick2")]
    rows = {row["encoding"]: row for row in choices(tables(records), catalog)}
    assert list(rows)[:2] == ["rope", "alibi"]  # equal on the kind that both have run
    assert rows["rope"]["copying"] == rows["alibi"]["copying"] == "75 / 35 ²"
    assert (rows["rope"]["reordering"], rows["alibi"]["reordering"]) == ("10 / 0 ¹", "-")
    assert rows["rope"]["training"] == "1.0x"
    assert (rows["fire"]["copying"], rows["coupled"]["training"]) == ("-", "-")
    assert len({doc.cls for doc in catalog.encodings.values()}) == len(rows)
    text = as_markdown([*rows.values()])
    assert len(text.splitlines()) == len(rows) + 2
    assert "| 75 / 35 ²" in text


def test_a_kind_that_one_encoding_has_not_run_does_not_count(record, catalog):
    far = {"rope": {10: 100, 20: 30}, "alibi": {10: 100, 20: 40}}
    far |= {"nope": {10: 100, 20: 0}}
    records = [record(name, 0, own) for name, own in far.items()]
    records.append(record("rope", 0, {10: 100, 20: 90}, task="reverse"))
    names = [row["encoding"] for row in choices(tables(records), catalog)]
    assert names[:3] == ["alibi", "rope", "nope"]


def test_what_has_not_learned_a_training_length_is_marked(record, catalog):
    records = [record("rope", seed, {10: 30, 20: 0}) for seed in range(5)]
    records += [record("alibi", seed, {10: 30, 20: 0}) for seed in range(5)]
    records += [record("alibi", s, {10: 95, 20: 50}, task="dyn_str_cpy") for s in range(5)]
    rows = {row["encoding"]: row for row in choices(tables(records), catalog)}
    assert (rows["rope"]["copying"], rows["alibi"]["copying"]) == ("not learned", "50 / - (1 of 2)")


def test_an_encoding_that_ran_with_options_alone_stands_with_these(record, catalog):
    far, spec = {10: 100, 20: 60, 100: 0}, "layers(every=2):rope,nope"
    records = [record(name, 0, far) for name in ("rope", "rope(base=500)", spec)]
    rows = {row["encoding"]: row for row in choices(tables(records), catalog)}
    assert rows[spec]["copying"] == rows["rope"]["copying"] == "60 / 0 ¹"
    assert not {"rope(base=500)", "layers"} & set(rows)
    assert rows["nope"]["copying"] == "-"  # only as a part


def test_an_encoding_that_ran_a_task_of_few_stands_with_it(record, catalog):
    records = [record(f"rope(base={at})", 0, {10: 100, 20: 60}) for at in range(12)]
    records.append(record("coupled", 0, {10: 100, 20: 30}, task="addition_coupled"))
    rows = {row["encoding"]: row for row in choices(tables(records), catalog)}
    (name,) = (name for name in rows if name.startswith("coupled"))
    assert rows[name]["arithmetic"].startswith("30")


def test_what_is_told_stands_below(record, catalog):
    records = [record("ideal", 0, {10: 100, 20: 100}), record("nope", 0, {10: 100, 20: 0})]
    names = [row["encoding"] for row in choices(tables(records, catalog), catalog)]
    assert names[0] == "nope"
    assert names[-1] == "ideal (oracle)"


@pytest.mark.parametrize("name", pezoo.names())
def test_properties_are_those_of_the_class(name, catalog, record):
    rows = choices(tables([record(name, 0, {10: 100, 20: 0})]), catalog)
    row = next(row for row in rows if row["encoding"].split(" ")[0] == name)
    encoding = pezoo.make(name, SHAPE)
    assert (row["cache"] == "yes") == encoding.prefix_stable
    fused = resolve("auto", encoding) == "sdpa" or (row["flash"] == "passes")
    assert row["flash"] == "-" or (row["flash"] == "no") == (not fused)
    if row["flash"] == "passes":
        assert resolve("flex", encoding) == "flex"
    assert (row["flash"] == "-") == (bool(encoding.wraps) and not getattr(encoding, "changes", ""))
    if encoding.relative and name != "nope":
        assert not row["reads"].startswith("position")
    assert bool(row["reads"]) or type(encoding).wraps
