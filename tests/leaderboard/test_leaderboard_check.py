"""What `check` refuses, each with its reason, and what `add` takes."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from functools import partial
from pathlib import Path

import pytest
from bad_records import FORGED, changed, committed, forged
from click.testing import CliRunner
from made_records import raw_record

from harness.cli.leaderboard import command
from harness.cli.verify import refusals
from harness.settings.catalog import read_catalog
from leaderboard.build import build as build_site
from leaderboard.record.check import add as add_record
from leaderboard.record.check import check as check_records
from leaderboard.record.read import RECORDS, load
from leaderboard.record.schema import Record
from leaderboard.render.markdown import stale
from leaderboard.stats.tables import kernels_of, tables

KNOWN = read_catalog()
build = partial(build_site, catalog=KNOWN)
check = partial(check_records, catalog=KNOWN)
add = partial(add_record, catalog=KNOWN)


def run(*arguments, **options):
    return CliRunner().invoke(command, [str(one) for one in arguments], **options)


def test_a_good_record_passes(raw, save):
    report = check([save(raw("rope"), raw("randomized", config={"encoding_version": 2001}))])
    assert (report.records, report.refused, report.warnings) == (2, (), ())


@pytest.mark.parametrize("name", FORGED)
def test_each_forged_record_is_refused_with_its_reason(name, save):
    (line,) = check([save(forged(name))], verify=refusals).refused
    assert FORGED[name][1] in line


def test_the_best_evaluations_have_scores_where_the_settings_ask_for_them(raw, save):
    def refused(top, **parts):
        record = raw(config={"eval": {"top": top}})
        record["scores"] |= {part: scores(record) for part, scores in parts.items()}
        return check([save(record)]).refused

    def own(record):
        return record["scores"]["last"]

    def other(record):
        return [own(record)[0] | {"length": 7777}]

    assert refused(3, top1=own, top3=own, top3_each=own) == ()
    assert "scores.top1 has scores, but eval.top is 0" in refused(0, top1=own)[0]
    assert "scores.top3 has scores, but eval.top is 1" in refused(1, top1=own, top3=own)[0]
    assert "has lengths [7777], unlike scores.last" in refused(1, top1=other)[0]


def test_the_version_of_a_machine_of_a_file_is_its_checksum():
    """No class has it, so it is not an earlier version of the task."""
    machine = raw_record(
        task="turing_machine(file=machines/w-1.toml)", config={"task_version": 1_234_567}
    )
    assert KNOWN.earlier(Record.of(machine)) == ""


@pytest.mark.parametrize(
    "options",
    [
        "file=a b",
        "file=[a]",
        "file=a:b",
        "file=" + "a" * 96,
    ],
)
def test_the_path_of_a_file_is_refused_in_words(raw, save, options):
    record = raw() | {"task": f"turing_machine({options})"}
    (line,) = check([save(record)]).refused
    assert "digits and _=,.+/-" in line
    assert "give a shorter path" in line


def test_the_command_names_every_forged_record_and_exits_with_1(save):
    names = ["other hash", "no seed", "other seeds", "other chance"]
    result = run("check", save(*map(forged, names)))
    assert result.exit_code == 1
    assert [f"00{at}.json: " in result.stderr for at in range(4)] == [True] * 4
    assert "4 records checked, 4 refused" in result.stdout


def test_the_committed_records_pass():
    report = check([RECORDS], tree=True, verify=refusals)
    assert report.refused == ()
    assert report.records > 0


def test_no_committed_table_mixes_the_scans_of_an_encoding():
    for table in tables(load([RECORDS])[0]):
        ran = defaultdict(set)
        for record in table.records:
            for operation, back_end in kernels_of(record):
                if operation.endswith("_scan"):
                    ran[record.config.spec, operation].add(back_end)
        mixed = {key: back_ends for key, back_ends in ran.items() if len(back_ends) > 1}
        assert not mixed, table.title


def test_names_of_ten_megabytes_are_refused_in_few_words(raw, save):
    report = check(
        [save(raw() | {"encoding": "x" * 10_000_000}, raw() | {"task": "y" * 3_000_000})]
    )
    assert len(report.refused) == 2
    assert all(len(line) < 1000 for line in report.refused)


def test_in_the_tree_place_and_name_must_fit(raw, tmp_path):
    one = raw()
    good = tmp_path / "quick" / "copy" / "rope" / f"{one['run']}.json"
    bad = tmp_path / "quick" / "reverse" / "rope" / "other.json"
    for path in (good, bad):
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(one))
    (line,) = check([tmp_path], tree=True).refused
    assert "other.json" in line
    assert f"should be named {one['run']}.json" in line
    assert "should be in quick/copy/ENCODING/" in line
    assert f"run {one['run']} is also in" in line


def test_a_path_without_folders_is_misplaced(raw, tmp_path, monkeypatch):
    (tmp_path / "a.json").write_text(json.dumps(raw()))
    monkeypatch.chdir(tmp_path)
    (line,) = check([Path()], tree=True).refused
    assert "should be in quick/copy/ENCODING/" in line


def test_scores_along_training_end_with_those_of_the_test(raw, save):
    config = {"eval": {"curve_lengths": [15, 20], "every": 750}}

    def problems(last, seconds=(1.0, 2.0)):
        made = raw(config=config)
        shares = ((0.1, 0.1), last)
        made["learning"] = [
            {
                "step": step,
                "loss": 1.0,
                "exact": 0.5,
                "seconds": s,
                "test_exact": exact,
                "test_token": token,
            }
            for step, s, (exact, token) in zip((750, 1500), seconds, shares, strict=True)
        ]
        return "\n".join(map(str, check([save(made)]).refused))

    exact, token = 0.7, 0.85  # of 15 and 20
    assert problems((exact, token)) == ""
    assert "learning ends at test_exact 0.8, but scores.last has 0.7" in problems((0.8, token))
    assert "test_token None" in problems((exact, None))
    assert "seconds of learning do not rise" in problems((exact, token), (2.0, 1.0))


@pytest.mark.parametrize(
    ("dirty", "doubt"), [(True, "the code had"), (None, "it is not known whether")]
)
def test_doubts_are_notes(raw, save, dirty, doubt):
    env = raw()["env"] | {"dirty": dirty}
    report = check([save(raw(env=env))])
    assert report.refused == ()
    assert report.warnings[0].split("000.json: ")[1].startswith(doubt)
    assert report.warnings[0].endswith("uncommitted changes")


def test_a_record_of_an_older_version_is_a_note(raw, save, monkeypatch):
    newer = read_catalog()
    rope = newer.encodings["rope"]
    object.__setattr__(rope, "version", 2)
    report = check([save(raw())], catalog=newer)
    assert report.refused == ()
    assert "encoding version 1; the code is at 2" in report.warnings[0]


def test_an_outdated_page_or_picture_is_refused(raw, save, tmp_path):
    records, page = save(raw()), tmp_path / "md" / "LEADERBOARD.md"
    build(None, records, tmp_path / "out", page)
    known = read_catalog()
    found = tables(load([records])[0], known)
    assert stale(found, page, known) == []
    good = run("check", "--records", records, "--markdown", page)
    assert "the file should be named" in good.stderr
    assert "not up to date" not in good.stderr
    picture = page.parent / "pictures" / "quick.copy.svg"
    picture.write_text(picture.read_text() + " ")
    (picture.parent / "old.svg").write_text("<svg/>")
    page.write_text("# Leaderboard")
    lines = stale(found, page)
    assert [line.split(" ")[0] for line in lines] == [
        str(page),
        str(picture),
        str(picture.parent / "old.svg"),
    ]
    assert "not up to date" in run("check", "--records", records, "--markdown", page).stderr


def finished(folder: Path, record: dict) -> Path:
    path = folder / record["run"]
    path.mkdir(parents=True)
    data = json.dumps(record).encode()
    (path / "result.json").write_bytes(data)
    (path / "DONE").write_text(hashlib.sha256(data).hexdigest())
    return path


def test_add_puts_a_record_where_check_wants_it(tmp_path):
    one, records = committed("quick/copy/alibi"), tmp_path / "records"
    records.mkdir()
    folder = finished(tmp_path / "runs", one)
    result = run("add", one["run"][:6], "--runs", tmp_path / "runs", "--records", records)
    assert result.exit_code == 0, result.output
    assert result.stdout.endswith(f"now: pezoo leaderboard build --records {records}\n")
    (path,) = records.rglob("*.json")
    assert path.read_bytes() == (folder / "result.json").read_bytes()
    assert check([records], tree=True).refused == ()
    assert add(str(folder), tmp_path, records) == path  # once more changes nothing
    odd = finished(tmp_path / "more", one | {"chance": 0.99})
    with pytest.raises(ValueError, match=r"chance is 0\.99"):
        run("add", odd, "--records", records, catch_exceptions=False)


def test_add_refuses_what_is_not_a_finished_sound_run(raw, tmp_path):
    records, runs = tmp_path / "records", tmp_path / "runs"
    records.mkdir()
    folder = finished(runs, raw())
    with pytest.raises(ValueError, match="expected a run's folder or its id"):
        add("ffff", runs, records)
    (folder / "result.json").write_text(json.dumps(raw() | {"chance": 0.2}))
    with pytest.raises(ValueError, match="not what DONE says"):
        add(raw()["run"], runs, records)
    (folder / "DONE").unlink()
    with pytest.raises(ValueError, match="not a finished run"):
        add(raw()["run"], runs, records)
    odd = finished(runs, raw("alibi", 1) | {"chance": None})
    with pytest.raises(ValueError, match="chance is missing"):
        add(str(odd), runs, records)
    assert list(records.rglob("*")) == []
    good = finished(runs, raw("alibi"))
    path = add(str(good), runs, records)
    path.write_text("{}")
    with pytest.raises(ValueError, match="is there with another content"):
        add(str(good), runs, records)


@pytest.mark.parametrize("what", ["data_hash", "backbone_hash"])
def test_runs_of_one_seed_share_data_and_initial_weights(raw, save, what):
    one, other = raw("rope"), raw("alibi", **{what: "another"})
    (line,) = check([save(one, other)]).refused
    assert f"001.json: {what} is another, unlike that of the same settings and seed" in line
    longer = raw("alibi", config={"train": {"steps": 3000}}, **{what: "another"})
    assert not any(f"{what} is" in line for line in check([save(one, longer)]).refused)


def test_only_the_earliest_records_lack_costs(save):
    """A date does not excuse it: dates can be invented."""
    folder = (
        "quick+344ccd/copy/prism_spectral-alpha-1-0-controller-gru-copy_every-0-copy_ga-32153f6e"
    )
    old = next(
        raw for raw in map(json.loads, (p.read_text() for p in (RECORDS / folder).glob("*")))
        if not raw.get("data_hash")
    )  # fmt: skip
    assert check([save(old)]).refused == ()
    new = changed(old, {"seed": 99, "config.seed": 99})
    (line,) = check([save(new)]).refused
    assert "data_hash is missing; also cost.tokens is missing" in line


def test_what_a_run_draws_is_named(raw, save):
    for name in ("data_hash", "backbone_hash", "chance"):
        (line,) = check([save(raw() | {name: None})]).refused
        assert line.endswith(f": {name} is missing")


def test_add_refuses_a_task_that_reads_a_file(raw, tmp_path):
    machine = raw(task="turing_machine(file=mine.toml)", config={"task_version": 1_234_567})
    with pytest.raises(ValueError, match=r"reads mine\.toml, which other machines do not have"):
        add(str(finished(tmp_path / "runs", machine)), tmp_path, tmp_path / "records")


def later(record, **env):
    return {
        "provenance": record["provenance"] | {"finished": "2026-02-01T00:00:00+00:00"},
        "env": record["env"] | env,
    }


def test_a_second_run_of_a_seed_does_not_replace_the_first(raw, save):
    """It may have another attention or device, and a new id."""
    again = raw(config={"attention": "eager"})
    again |= later(again)
    (line,) = check([save(again, raw())]).refused
    assert "000.json: seed 0 has an earlier result, which counts: " in line
    assert line.endswith("001.json")


def test_add_takes_no_second_run_of_a_seed(raw, tmp_path):
    records, again = tmp_path / "records", raw(config={"attention": "eager"})
    records.mkdir()
    add(str(finished(tmp_path / "runs", raw())), tmp_path, records)
    with pytest.raises(ValueError, match="seed 0 has an earlier result"):
        add(str(finished(tmp_path / "runs", again | later(again))), tmp_path, records)


def test_an_earlier_run_that_is_added_later_is_not_told_to_contradict_itself(raw, tmp_path):
    records, again = tmp_path / "records", raw(config={"attention": "eager"})
    records.mkdir()
    there = add(str(finished(tmp_path / "runs", again | later(again))), tmp_path, records)
    with pytest.raises(ValueError, match=f"cannot be added: {there}: seed 0 has an earlier"):
        add(str(finished(tmp_path / "runs", raw())), tmp_path, records)


def test_runs_share_no_learning_curve(raw, save):
    first = raw()
    for other in (raw(seed=1), raw("alibi")):
        copied = other | {"learning": first["learning"]} | later(other)
        (line,) = check([save(first, copied)]).refused
        assert "001.json: the learning curve is that of" in line
    version = raw(config={"encoding_version": 2}) | {"learning": first["learning"]}
    assert check([save(first, version)]).refused == ()  # which may compute the same


@pytest.mark.parametrize(
    ("one", "same"), [("learned(max_len=64)", "learned(max_len=128)"), ("ideal", "ideal_sh")]
)
def test_options_that_change_nothing_at_the_training_lengths_are_no_copy(raw, save, one, same):
    """As the rows of a table beyond them, and as oracles may."""
    first, other = raw(one), raw(same)
    other |= later(other) | {"learning": first["learning"]}
    for record in (first, other):
        for score in record["scores"]["last"]:
            score["tokens"] = 1000
    assert check([save(first, other)]).refused == ()


@pytest.mark.parametrize(
    ("off", "other_scores", "refused"),
    [(1e-3, False, True), (1e-3, True, True), (5e-3, False, True), (5e-3, True, False),
     (0.02, False, False)],
)  # fmt: skip
def test_seeds_share_no_near_learning_curve(raw, save, off, other_scores, refused):
    often = {"eval": {"every": 250}}
    first, other = (raw(seed=seed, config=often) for seed in (0, 1))
    if other_scores:
        other = raw(seed=1, config=often, right={10: 100, 15: 90, 20: 51})
    other["learning"] = [p | {"loss": p["loss"] * (1 + off)} for p in first["learning"]]
    lines = check([save(first, other | later(other))]).refused
    assert ["001.json: the learning curve is nearly that of" in x for x in lines] == [
        True
    ] * refused


def test_runs_share_no_scores_that_chance_does_not_explain(raw, save):
    def found(right):
        records = [raw(seed=seed, right=right) for seed in (0, 1)]
        for score in (score for record in records for score in record["scores"]["last"]):
            score["tokens"] = 1000
        records[1] |= later(records[1])
        return "; ".join(check([save(*records)]).refused)

    assert "001.json: the scores are those of" in found({10: 100, 15: 90, 20: 50})
    assert found({10: 100, 15: 99, 20: 99}) == ""  # two seeds may each be wrong once
    assert found({10: 100, 15: 90, 20: 0}) == ""  # one length may be equal by chance


def test_the_scores_of_a_committed_seed_in_the_record_of_another_are_those_of_it(save):
    first, other = committed("quick/copy/alibi", 1), committed("quick/copy/alibi", 2)
    other["scores"] = first["scores"]
    (line,) = check([save(first, other)]).refused
    assert "the scores are those of" in line


def test_initial_weights_are_compared_on_one_kind_of_processor(raw, save):
    one, other = raw("rope"), raw("alibi", backbone_hash="another")
    other["env"] |= {"platform": "Linux aarch64"}
    assert check([save(one, other)]).refused == ()


def test_a_sparse_file_of_gigabytes_is_named(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "DONE").write_text("0" * 64)
    with (folder / "result.json").open("wb") as file:
        file.truncate(6 * 10**9)
    with pytest.raises(ValueError, match=r"result\.json: .*6000000000 bytes"):
        add(str(folder), tmp_path, tmp_path / "records")
