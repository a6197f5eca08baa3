"""Tuned runs: a ranking of their own, and nothing in it that the grid does not explain."""

import pytest
from made_records import GRID, KNOWN, markdown, raw_record, tuned_record

from leaderboard import check as checks
from leaderboard.record.read import Record
from leaderboard.render import site
from leaderboard.render.data import site_data
from leaderboard.stats.tables import TUNED, tables


def read(raw):
    return Record.of(raw)


def test_encodings_with_different_values_share_one_tuned_table_and_no_other():
    plain = [read(raw_record(e, s)) for e in ("rope", "alibi") for s in (0, 1)]
    tuned = [read(tuned_record("rope", s)) for s in (0, 1)]
    tuned += [
        read(tuned_record("alibi", s, lr=0.001, right={10: 90, 15: 8, 20: 7})) for s in (0, 1)
    ]
    other = [read(tuned_record("rope", s, grid=GRID | {"lr": [0.003, 0.01]})) for s in (0, 1)]
    groups = tables([*plain, *tuned, *other])
    grids = sorted((tuned, other), key=lambda records: records[0].protocol)
    assert [(g.policy, {r.run for r in g.records}) for g in groups] == [
        ("protocol", {r.run for r in plain}),
        *((TUNED, {r.run for r in records}) for records in grids),
    ]
    rows = {row.encoding: row for row in groups[1 + grids.index(tuned)].rows}
    assert (rows["rope"].chosen, rows["rope"].rank) == ("lr=0.003, steps=1500", 1)
    assert (rows["alibi"].chosen, rows["alibi"].rank) == ("lr=0.001, steps=1500", 2)
    assert len(rows["rope"].tried) == 4
    text = markdown(groups)
    assert "quick / copy (tuned)" in text
    assert "(tuned): lr of 0.001, 0.003; steps of 1000, 1500; 2 encodings, 4 runs" in text


def test_what_else_differs_in_a_tuned_table_is_named():
    raw = tuned_record()
    raw["config"]["train"]["batch"] = 7
    groups = tables([read(raw_record()), read(raw)])
    assert groups[1].settings_name == "tuned: lr of 0.001, 0.003; steps of 1000, 1500; batch 7"


def test_the_site_says_what_was_tuned(tmp_path):
    records = [read(tuned_record("rope", s)) for s in (0, 1)]
    groups = tables(records)
    table = site_data(groups, KNOWN)["tables"][0]
    assert table["policy"] == "tuned"
    assert table["name"] == "tuned: lr of 0.001, 0.003; steps of 1000, 1500"
    assert (table["rows"][0]["chosen"], table["rows"][0]["tuning_seconds"]) == (
        "lr=0.003, steps=1500",
        120,
    )
    site.build(groups, records, tmp_path)
    run = (tmp_path / "run" / f"{records[0].run}.html").read_text(encoding="utf-8")
    assert "Chosen: <b>lr=0.003, steps=1500</b>, the best of 4 configs" in run
    assert "120 CPU-seconds" in run


def test_runs_that_served_to_choose_are_in_no_table():
    sweep = raw_record(
        "rope", 100, config={"eval": {"lengths": [10, 15, 20], "examples": "tuning"}}
    )
    plain = raw_record("rope", 0)
    (group,) = tables([read(sweep), read(plain)])
    assert [record.run for record in group.records] == [plain["run"]]


def test_a_grid_of_astronomic_size_is_no_record():
    raw = tuned_record()
    raw["provenance"]["tuning"]["grid"] = {f"n{i}": list(range(1000)) for i in range(20)}
    with pytest.raises(ValueError, match="not those of the grid"):
        read(raw)


@pytest.mark.parametrize(("field", "value"), [("exact", 0.3), ("loss", 0.2)])
def test_seeds_of_an_encoding_come_from_one_sweep(save, field, value):
    one, other = tuned_record(seed=0), tuned_record(seed=1)
    assert checks.check([save(one, other)], KNOWN).refused == ()
    other["provenance"]["tuning"]["cells"][0][field] = value
    lines = checks.check([save(one, other)], KNOWN).refused
    assert len(lines) == 2
    assert all("the sweep differs from that of the same encoding in " in line for line in lines)
