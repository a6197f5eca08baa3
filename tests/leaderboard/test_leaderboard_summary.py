"""Every number of a row against values computed by hand or by scipy."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pytest
from made_records import KNOWN, markdown, text_record
from scipy import stats

from leaderboard.charts.styles import shown
from leaderboard.record.read import Record
from leaderboard.render.columns import rows_as_csv, rows_as_markdown
from leaderboard.render.overviews import findings
from leaderboard.stats.intervals import student, wilson
from leaderboard.stats.overview import bare_lines, overview
from leaderboard.stats.ranks import comparisons
from leaderboard.stats.summary import summarise
from leaderboard.stats.tables import leading, tables
from leaderboard.text import medians_text, notes_text, rank_text, reach_text


def only(records):
    (row,) = summarise(records)
    return row


def test_three_seeds_by_hand(record):
    row = only([record(seed=s, right={10: 100, 20: v}) for s, v in enumerate([80, 70, 60])])
    cell = row.cells[1]
    # mean 0.7, sd 0.1, t(0.975, 2) = 4.302653, half width 4.302653 * 0.1 / sqrt(3) = 0.248414
    assert cell.main.mean == pytest.approx(0.7)
    assert (cell.main.low, cell.main.high) == pytest.approx((0.451586, 0.948414), abs=1e-6)
    assert (cell.main.n, cell.main.method) == (3, "t")
    assert (cell.median, cell.beside) == pytest.approx((0.7, 0.85))
    assert (cell.correct, cell.count) == (210, 300)
    assert cell.seeds == ((0, 0.8), (1, 0.7), (2, 0.6))
    assert (row.unseen.mean, row.seeds) == (pytest.approx(0.7), (0, 1, 2))
    assert (row.steps_per_second, row.parameters) == (51.0, 100_000)


def test_intervals_equal_scipy():
    rng = np.random.default_rng(0)
    for n in (2, 3, 5, 20):
        values = list(rng.uniform(0.4, 0.6, n))
        expected = stats.t.interval(0.95, n - 1, np.mean(values), stats.sem(values))
        assert student(values) == pytest.approx(np.clip(expected, 0, 1))
    for correct, count in ((0, 10), (3, 10), (64, 128), (128, 128), (1, 1)):
        expected = stats.binomtest(correct, count).proportion_ci(0.95, "wilson")
        assert wilson(correct, count) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_one_seed_has_wilson_and_its_unseen_mean_no_interval(record):
    row = only([record(right={10: 100, 15: 80, 20: 40})])
    assert row.cells[1].main.method == "Wilson"
    assert (row.cells[1].main.low, row.cells[1].main.high) == wilson(80, 100)
    assert row.unseen.mean == pytest.approx(0.6)
    assert (row.unseen.low, row.unseen.high, row.unseen.method) == (None, None, "none")


def test_the_unseen_interval_is_over_the_means_of_the_seeds(record):
    row = only([record(seed=0, right={15: 80, 20: 40}), record(seed=1, right={15: 60, 20: 40})])
    assert (row.unseen.mean, row.unseen.n) == (pytest.approx(0.55), 2)
    assert (row.unseen.low, row.unseen.high) == pytest.approx(student([0.6, 0.5]))


@pytest.mark.parametrize(
    ("right", "reach", "open_"),
    [
        ({10: 100, 15: 90, 20: 89, 30: 100}, 1.5, False),
        ({10: 100, 15: 100, 20: 95}, 2.0, True),
        ({10: 50, 15: 100}, None, False),
        ({5: 100, 10: 50}, None, False),
        ({5: 50, 10: 95, 15: 0}, 1.0, False),
        ({8: 95, 15: 0}, 1.0, False),
        ({10: 95, 15: "cannot represent"}, 1.0, False),
        ({10: 95, 15: "no instance", 20: 95}, 2.0, True),
        ({10: "cannot represent"}, None, False),
    ],
)
def test_reach(right, reach, open_, record):
    row = only([record(right=right)])
    assert (row.reach, row.reach_open) == (reach, open_)


def test_below_the_bar_at_the_training_length_there_is_no_number(record):
    row = only([record(right={5: 100, 10: 89, 15: 100, 20: "cannot represent"})])
    assert (row.learned, row.unlearned, row.unseen, row.unseen_note) == (
        False, True, None, "not learned",
    )  # fmt: skip
    assert [cell.status for cell in row.cells] == ["ok", "ok", "not learned", "cannot represent"]
    assert (row.reach, row.rank, row.by_seed, row.reached(15)) == (None, None, (), (0, 1))
    assert reach_text(row) == "not learned¹"


def test_a_mode_has_learned_if_its_weights_have(raw):
    """Rounded gates may fail at the training length: its reach is 0, and it keeps its numbers."""
    good, bad = raw("prism", right={10: 95, 20: 0}), raw("prism", right={10: 50, 20: 60})
    runs = [(good, bad), (bad, good)]
    found = [
        {
            row.mode: row
            for row in summarise([Record.of(one | {"modes": {"snapped": two["scores"]}})])
        }
        for one, two in runs
    ]
    assert [(own["snapped"].learned, reach_text(own["snapped"])) for own in found] == [
        (True, "0¹"), (False, "not learned¹"),
    ]  # fmt: skip
    assert found[0]["snapped"].unseen.mean == 0.6


def test_cannot_represent_is_words_and_never_zero(record):
    row = only([record(seed=s, right={10: 100, 15: "cannot represent"}) for s in (0, 1)])
    assert (row.cells[1].status, row.cells[1].main) == ("cannot represent", None)
    assert (row.unseen, row.unseen_note, row.rank) == (None, "cannot represent", None)


def test_no_instance_leaves_the_unseen_mean_to_the_other_lengths(record):
    row = only([record(right={10: 100, 15: "no instance", 20: 40})])
    assert (row.cells[1].status, row.unseen.mean) == ("no instance", 0.4)


def test_failed_runs_are_counted_and_enter_no_mean(record):
    bad = {"status": "failed", "reason": "diverged", "scores": {"last": []}}
    mixed = only([*(record(seed=seed) for seed in range(4)), record(seed=4, **bad)])
    assert (mixed.seeds, mixed.failures) == ((0, 1, 2, 3), ((4, "diverged"),))
    assert (mixed.cells[0].main.mean, mixed.reached(10)) == (1.0, (4, 5))
    assert only([record(seed=0), record(seed=1, **bad)]).unlearned  # half of the seeds
    again = record(seed=0, config={"attention": "sdpa"}, **bad)  # a forgery, or a second try
    same = only([again, record(seed=0), record(seed=1)])
    assert (same.seeds, same.failures) == ((0, 1), ())
    assert same.notes == ("1 failed run(s) of finished seeds left out",)
    none, good = sorted(
        summarise([record("alibi", 0, **bad), record("rope", 0)]), key=lambda r: r.encoding
    )
    assert {cell.status for cell in none.cells} == {"failed"}
    assert (none.unseen, none.unseen_note, none.reach, none.rank) == (None, "failed", None, None)
    assert good.rank == 1


def test_failures_of_seeds_that_others_have_not_run_do_not_count(record):
    bad = {"status": "failed", "reason": "diverged", "scores": {"last": []}}
    runs = [record(name, seed) for name in "abcdef" for seed in (0, 1, 2)]
    rows = {row.label: row for row in summarise([*runs, record("a", 5, **bad)])}
    assert (rows["a"].seeds, rows["a"].failures, rows["a"].learned) == ((0, 1, 2), (), True)
    assert rows["a (seed 5)"].failures == ((5, "diverged"),)


def test_ranks_share_places_and_stay_within_a_table(record):
    rows = summarise(
        [record(name, right={20: v}) for name, v in [("a", 50), ("b", 70), ("c", 50), ("d", 10)]]
        + [record("e", right={20: 99}, task="odds_first")]
    )
    assert [(r.task, r.label, r.rank) for r in rows] == [
        ("copy", "b", 1), ("copy", "a", 2), ("copy", "c", 2), ("copy", "d", 4),
        ("odds_first", "e", 1),
    ]  # fmt: skip


def test_rank_ranges_follow_paired_differences(record):
    def seeds(name, *values):
        return [record(name, seed, {10: 100, 20: v}) for seed, v in enumerate(values)]

    # a - b: 10, 11, 12: mean 11, half width 4.3027 * 1 / sqrt(3) = 2.48. b - c: 30, -30, 0.
    rows = summarise(seeds("a", 60, 61, 62) + seeds("b", 50, 50, 50) + seeds("c", 20, 80, 47))
    places = {row.label: (row.rank, row.ranks) for row in rows}
    assert places == {"a": (1, (1, 2)), "b": (2, (2, 3)), "c": (3, (1, 3))}


def test_seeds_apart_name_their_version(record):
    records = [record(name, 0) for name in ("a", "b", "c")]
    newer = [record("a", seed, config={"encoding_version": 2}) for seed in (0, 40)]
    labels = {row.label for row in summarise(records + newer)}
    assert {"a (version 1)", "a (version 2)", "a (version 2) (seed 40)"} <= labels


def test_seeds_that_few_encodings_have_are_a_row_without_a_rank(record):
    """Six seeds of one encoding beside one of each other count as one."""
    names, many = ("a", "b", "c", "e"), (0, 40, 41, 42, 43, 44)
    records = [record(name, 0, {10: 100, 20: 50 + at}) for at, name in enumerate(names)]
    records += [record("a", seed, {10: 100, 20: 95}) for seed in many[1:]]
    records.append(record("d(n=1)", 40, {10: 100, 20: 95}))
    rows = {row.label: row for row in summarise(records)}
    assert {label: row.rank for label, row in rows.items()} == {
        "e": 1, "c": 2, "b": 3, "a": 4, "a (seeds 40-44)": None, "d(n=1)": 1,
    }  # fmt: skip
    assert (rows["a"].seeds, rows["a"].unseen.mean, rows["a"].reach) == ((0,), 0.5, 1.0)
    apart = rows["a (seeds 40-44)"]
    assert (apart.seeds, apart.plain, apart.reach_open) == (many[1:], "a", True)
    assert [row.label for row in shown(rows.values())] == ["e", "c", "b", "a"]
    found = tables(records)
    assert [line.label for line in bare_lines(overview(found))] == ["e", "c", "b", "a"]
    assert "a (seeds 40-44)" not in " ".join(findings(found))
    half = [record(name, seed, {10: 100, 20: 1}) for name in ("b", "c") for seed in many[1:]]
    assert {row.label for row in summarise(records + half)} == {"a", "b", "c", "e", "d(n=1)"}
    bad = {"status": "failed", "reason": "diverged", "scores": {"last": []}}
    failures = {r.label: r.failures for r in summarise([*records, record("b", 7, **bad)])}
    assert failures["b"] == ((7, "diverged"),)


def test_a_place_lies_within_its_bracket(record):
    """a beats b on the seeds that both have; b's mean over its own seeds is higher."""
    runs = [record("a", seed, {10: 100, 20: 50 + seed}) for seed in range(3)]
    runs += [record("b", seed, {10: 100, 20: 40 + seed}) for seed in range(3)]
    runs += [record("b", seed, {10: 100, 20: 99}) for seed in range(3, 6)]
    places = {row.label: (row.rank, row.ranks) for row in summarise(runs)}
    assert places == {"a": (2, (1, 2)), "b": (1, (1, 2))}


def test_seeds_that_agree_have_an_interval(record):
    row = only([record(seed=seed, right={10: 100, 20: 80}) for seed in range(3)])
    half = 4.302653 * 0.01 / 3**0.5  # one right answer of 100
    for stat in (row.cells[1].main, row.unseen):
        assert (stat.low, stat.high) == pytest.approx((0.8 - half, 0.8 + half), abs=1e-6)


def test_one_shared_seed_distinguishes_nothing(record):
    rows = summarise([record("a", 0, {20: 99}), record("b", 0, {20: 1}), record("b", 1, {20: 1})])
    assert [(row.rank, row.ranks) for row in rows] == [(1, None), (2, None)]
    assert rank_text(rows[1]) == "2"


def test_custom_options_count_for_no_other_rank(record):
    rows = summarise(
        [record("rope", right={20: 50}), record("prism(gamma=2)", right={20: 90}),
         record("alibi", right={20: 20})]
    )  # fmt: skip
    assert [(r.label, r.custom, r.rank) for r in rows] == [
        ("prism(gamma=2)", True, 1), ("rope", False, 1), ("alibi", False, 2),
    ]  # fmt: skip


def test_a_mode_keeps_its_scores_apart(raw):
    one = raw("prism", right={10: 100, 20: 10})
    one["modes"] = {"snapped": raw(right={10: 100, 20: 90})["scores"]}
    rows = summarise([Record.of(one)])
    assert [(r.label, r.mode, r.unseen.mean) for r in rows] == [
        ("prism", "", 0.1), ("prism (snapped)", "snapped", 0.9),
    ]  # fmt: skip
    assert rows[0].runs == rows[1].runs


def test_changed_settings_have_a_ranking_of_their_own(record):
    def at(name, lr, protocol, right):
        train = {"train": {"steps": 1500, "lengths": [1, 10], "lr": lr}}
        return record(name, right={20: right}, protocol=protocol, config=train)

    own, changed = tables(
        [
            at("rope", 1.0, "quick", 10),
            at("alibi", 1.0, "quick", 40),
            at("rope", 2.0, "quick+aaaaaa", 90),
            at("alibi", 2.0, "quick+aaaaaa", 80),
        ]
    )
    assert (own.policy, changed.policy) == ("protocol", "changed")
    assert changed.changes == (("train.lr", "2.0", "1.0"),)
    assert [(row.label, row.rank) for row in own.rows] == [("alibi", 1), ("rope", 2)]
    assert [(row.label, row.rank) for row in changed.rows] == [("rope", 1), ("alibi", 2)]


def test_other_training_lengths_make_another_table(record):
    other = {"train": {"steps": 1500, "lengths": [1, 5]}}
    records = [record("rope", right={20: 50}), record("rope", right={20: 50}, config=other)]
    assert [group.policy for group in tables(records)] == ["protocol", "earlier"]


def test_of_two_versions_of_a_protocol_the_newer_is_the_main_one(record):
    old = record("rope")
    new = record(
        "rope", config={"train": {"steps": 10, "lengths": [1, 10]}},
        provenance={"command": "pezoo", "finished": "2026-11-23T00:00:00+00:00"},
    )  # fmt: skip
    policies = {group.first.run: group.policy for group in tables([old, new]) if group.rows}
    assert policies[old.run] == "earlier"
    assert tables([old, new])[0].first.run == new.run


def test_records_of_an_earlier_version_alone_are_never_shown_as_the_protocols_own(record):
    known = KNOWN
    now, old = known.protocols["quick"].versions

    def of(version):
        model, train, test = version.settings("copy")
        config = {"track": version.track, "model": model, "train": train, "eval": test}
        made = record("rope", protocol=version.name, task="copy")
        config["task_version"] = known.tasks["copy"].version
        return made.model_copy(update={"config": made.config.replace(**config)})

    (table,) = alone = tables([of(old)], known)
    assert (table.policy, table.version, table.about) == (
        "earlier", "earlier version: 1, now 2", old.description,
    )  # fmt: skip
    assert table.title == "quick / copy (earlier version: 1, now 2)"
    assert "eval.lengths" in {key for key, _, _ in table.changes}
    assert leading(alone) == alone
    text = markdown(alone, known)
    assert old.description.partition(":")[0] in text
    assert "Runs of an earlier version of the protocol" in text
    both = tables([of(old), of(now)], known)
    assert [(one.policy, one.version) for one in both] == [
        ("protocol", ""), ("earlier", "earlier version: 1, now 2"),
    ]  # fmt: skip
    assert leading(both) == both[:1]


def test_options_of_one_encoding_make_rows_with_telling_labels(record):
    one, two = {"encoding": "prism(cursors=2)"}, {"encoding": "prism(cursors=4)"}
    newer = one | {"encoding_version": 2}
    rows = summarise([record("prism", config=c) for c in (one, two, newer)] + [record("rope")])
    assert {row.label for row in rows} == {
        "prism(cursors=2) (version 1)", "prism(cursors=2) (version 2)", "prism(cursors=4)", "rope",
    }  # fmt: skip


def test_two_runs_of_one_seed_are_not_two_seeds(record):
    old = record("rope", 0, right={20: 10}, config={"device": "cuda"})
    new = record(
        "rope", 0, right={20: 90},
        provenance={"command": "pezoo", "finished": "2026-11-23T00:00:00+00:00"},
    )  # fmt: skip
    row = only([new, old])
    assert (row.cells[0].main.mean, row.cells[0].main.n) == (0.1, 1)  # the first counts
    assert "1 later run(s)" in row.notes[0]


def test_of_a_whole_test_set_every_example_counts_alike(raw):
    def notes(draw, samples):
        settings = {"train": {"draw": draw}, "eval": {"samples": samples}}
        both = [raw("rope", seed, {10: 100, 20: 50, 30: 3}, config=settings) for seed in (0, 1)]
        for one in both:
            one["scores"]["last"][-1] |= {"count": 12, "exact": 0.25}
        return only([Record.of(one) for one in both]).notes

    assert notes("lengths", 1000) == ()
    assert notes("instances", 100) == ()  # there may be more than 100 of length 20
    assert notes("instances", 1000) == ("whole answers: 47.3 % of all 112 unseen instances right",)


def test_notes_that_rows_share_are_said_once(record):
    rows = summarise([record("rope"), record("alibi"), record("t5")])
    noted = [replace(row, notes=("decoded",) if row.label != "t5" else ()) for row in rows]
    assert notes_text(noted, {"alibi": "a"}) == ["a, rope: decoded"]


def test_the_median_over_seeds_is_said_where_the_length_has_doubled(record):
    lengths = {"eval": {"lengths": [10, 15, 20, 21, 30]}}
    right = {10: 100, 15: 99, 30: 0}
    records = [
        record("rope", seed, right={**right, 20: good, 21: bad}, config=lengths)
        for seed, (good, bad) in enumerate([(100, 4), (95, 1), (0, 7)])
    ]
    assert medians_text(summarise(records)) == [
        "median over seeds at 20, 21, 30, %: rope 95.0, 4.0, 0.0"
    ]
    assert medians_text(summarise(records), {"rope": "r"})[0].endswith(": r 95.0, 4.0, 0.0")
    assert medians_text(summarise(records[:2])) == []  # of two, a median is a mean
    nothing = [  # a length without instances counts as little as one that is not tested
        record("rope", s, right={**right, 20: "no instance", 21: 5}, config=lengths)
        for s in range(3)
    ]
    assert medians_text(summarise(nothing)) == ["median over seeds at 21, 30, %: rope 5.0, 0.0"]
    near = [
        record("rope", s, right={10: 9, 15: 9}, config={"eval": {"lengths": [10, 15]}})
        for s in range(3)
    ]
    assert medians_text(summarise(near)) == []


def test_a_length_that_one_encoding_lacks_is_not_tested(record):
    same = {"eval": {"lengths": [20, 30]}}
    rows = summarise(
        [record("a", right={20: 50, 30: 40}, config=same), record("b", right={20: 90}, config=same)]
    )
    assert rows[1].label == "b"
    assert (rows[1].cells[1].status, rows[1].unseen_note) == ("not tested", "not tested")


def test_a_table_says_which_weights_runs_did_not_get_from_their_start(record):
    weights = {"run": "a" * 16, "weights": "b" * 64, "missing": [], "left": []}
    changed = {"weights": "c" * 64, "missing": ["encoding.table"], "left": ["encoding.a"]}
    one, two, other = (
        record("rope", start=weights),
        record("t5", start=weights | changed),
        record("t5", seed=1, start=weights | changed | {"weights": "d" * 64}),
    )
    told = (
        "t5 started without weights: encoding.table",
        "t5 left over weights: encoding.a",
    )
    several = "runs of one seed did not start from the same weights"
    assert tables([one, two])[0].warnings == (several, *told)
    assert tables([one, other])[0].warnings == told


def test_warnings_name_what_weakens_a_comparison(record):
    (group,) = tables([record("rope"), record("alibi", backbone_hash="other")])
    assert group.warnings == ("seed 0: the backbones did not start from the same weights",)
    env = asdict(record().env) | {"device": "NVIDIA", "dirty": True}
    (group,) = tables([record("rope"), record("alibi", env=env)])
    assert group.warnings == (
        "runs differ in device: NVIDIA (alibi), cpu (rope)",
        "1 of 2 runs come from code that equals no known commit",
    )


def test_rows_that_ran_on_different_kernels_are_named(record):
    def ran(name, seed=0, **changes):
        return record(name, seed, env=asdict(record().env) | changes)

    fused = ran("rope", kernels={"layer": "numba"})
    plain = ran("alibi", kernels={})
    scan, other = (ran("prism", s, kernels={"scan": b}) for s, b in enumerate(("numba", "triton")))
    layers = "layer kernels: numba (rope), torch ({})"
    scans = "scan kernels: numba (prism), triton (prism)"
    twice = ("runs of one encoding differ in scan kernels: prism",)
    for runs, kernels, warnings in (
        ((plain, scan), (), ()),  # only prism has a scan
        ((fused, plain), (layers.format("alibi"),), ()),
        ((fused, ran("alibi")), (), ()),  # nothing recorded
        ((scan, other), (scans,), twice),
        ((fused, scan, other), (layers.format("prism"), scans), twice),
    ):
        (table,) = tables(runs)
        assert (table.kernels, table.warnings) == (kernels, warnings)


def test_attention_that_ran_differently_is_named(record):
    def ran(name, train, evaluation):
        env = asdict(record().env) | {"attention_ran": {"train": train, "eval": evaluation}}
        return record(name, env=env)

    one, other = ran("rope", ["numba"], ["numba"]), ran("t5", ["numba", "sdpa math"], ["numba"])
    (table,) = tables([one, other])
    assert table.kernels == ("training attention kernels: numba (rope), numba with sdpa math (t5)",)
    (table,) = tables([one, record("t5")])  # an older record does not say
    assert (table.kernels, table.warnings) == ((), ())


def test_nothing_in_nothing_out():
    assert (summarise([]), tables([])) == ([], [])


def test_encoders_are_compared_by_their_tokens(record):
    """In made records token accuracy is half way from exact match to 1."""
    runs = [
        record(seed=s, right={10: 100, 20: v}, config={"track": "encoder"})
        for s, v in enumerate([80, 70, 60])
    ]
    row = only(runs)
    cell = row.cells[1]
    assert (row.metric, row.other) == ("token accuracy", "exact match")
    assert (cell.main.mean, cell.beside) == pytest.approx((0.85, 0.7))
    assert (row.unseen.mean, row.unseen_beside) == pytest.approx((0.85, 0.7))
    assert cell.seeds == ((0, 0.9), (1, 0.85), (2, 0.8))
    assert "unseen exact" in rows_as_markdown([row])
    header, _, line = rows_as_csv([row]).splitlines()
    found = dict(zip(header.split(","), line.split(","), strict=True))
    assert (float(found["exact_mean"]), float(found["token_mean"])) == pytest.approx((0.7, 0.85))
    assert (found["exact_low"], found["metric"]) == ("", "token accuracy")
    one = only(runs[:1]).cells[1]
    assert (one.main.method, one.main.low) == ("none", None)  # tokens of an answer go together


def test_a_decoder_and_an_encoder_share_no_table(record):
    rows = summarise([record("rope"), record("rope", config={"track": "encoder"})])
    assert len({row.settings for row in rows}) == 2


@pytest.mark.parametrize(("bits", "saves"), [(2.48, False), (2.479, True)])
def test_longer_context_saves_bits_by_a_t_test_over_the_texts(bits, saves):
    """Of 32 texts: t(0.975, 31) is 2.04, and the standard error .01."""
    row = only([Record.of(text_record("alibi", 0, {128: 2.5, 256: bits}))])
    cell = row.at(256)
    assert cell.gain_half == pytest.approx(stats.t.ppf(0.975, 31) * 0.01)
    assert (cell.saved == 1, row.reach == 2) == (saves, saves)


def test_text_is_compared_by_bits_and_fewer_are_better():
    """Against scipy: the intervals lie above 1, and the first of every pair has fewer bits."""
    bits = {"alibi": (2.0, 2.2, 2.1), "rope": (4.0, 4.3, 4.2), "fox": (3.0, 3.1, 2.9)}
    runs = [
        Record.of(text_record(name, seed, {128: 1.5, 256: own, 512: own + 0.5}))
        for name, every in bits.items()
        for seed, own in enumerate(every)
    ]
    rows = summarise(runs)
    assert [(row.label, row.rank) for row in rows] == [("alibi", 1), ("fox", 2), ("rope", 3)]
    for row in rows:
        means = [value + 0.25 for value in bits[row.label]]
        expected = stats.t.interval(0.95, 2, np.mean(means), stats.sem(means))
        found = row.unseen
        assert (found.mean, found.low, found.high) == pytest.approx((np.mean(means), *expected))
        assert (row.metric, row.unseen_beside) == ("bits per byte", 0.5)
        # equal bits of all seeds: t(0.975, 2) * 0.001 / sqrt(3)
        assert row.cells[0].main.high - 1.5 == pytest.approx(4.302653 * 0.001 / 3**0.5)
    pairs = {(pair.first, pair.second): pair for pair in comparisons(rows)}
    for (a, b), pair in pairs.items():
        oracle = stats.ttest_rel(bits[a], bits[b])
        own = pair.difference
        assert (own.low, own.high) == pytest.approx([*oracle.confidence_interval()])
        assert (pair.p, pair.sign) == (pytest.approx(oracle.pvalue), 1)
    assert [row.ranks for row in rows] == [(1, 1), (2, 2), (3, 3)]
    lines = rows_as_markdown(rows).splitlines()
    assert "unseen bits" in lines[0]
    assert "2.350 [2.102, 2.598]" in lines[2]
