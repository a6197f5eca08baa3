"""Records that `check` refuses, each with its reason, and records that `add` takes."""

from __future__ import annotations

import hashlib
import json
import shlex
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from bad_records import FORGED, changed, committed, forged, named
from click.testing import CliRunner
from made_records import KNOWN, raw_record, text_record

from harness.cli.leaderboard import command
from harness.cli.verify import alike, refusals
from harness.settings.catalog import read_catalog
from leaderboard.build import build as build_site
from leaderboard.check import add as add_record
from leaderboard.check import check as check_records
from leaderboard.check import history
from leaderboard.record.clashes import NEAR, Claims
from leaderboard.record.read import RECORDS, load
from leaderboard.record.schema import Record, Scores
from leaderboard.render.markdown import stale
from leaderboard.stats.tables import kernels_of, tables

build = partial(build_site, catalog=KNOWN)
check = partial(check_records, catalog=KNOWN)
add = partial(add_record, catalog=KNOWN)


def run(*arguments, **options):
    return CliRunner().invoke(command, [str(one) for one in arguments], **options)


def test_a_good_record_passes(raw, save):
    report = check([save(raw("rope"), raw("randomized", config={"encoding_version": 2001}))])
    assert (report.records, report.refused, report.warnings) == (2, (), ())


def test_a_record_of_text_has_bits_in_place_of_exact_matches(save):
    def refused(best):
        return check(
            [save(text_record("rope", 0, {128: 2.5, 256: 3.5}) | {"best_step": best})]
        ).refused

    assert refused(1500) == ()
    assert "best_step 750 is not the last step" in refused(750)[0]


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


@pytest.mark.parametrize("options", ["file=a b", "file=[a]", "file=a:b", "file=" + "a" * 96])
def test_the_path_of_a_file_is_refused_in_words(raw, save, options):
    record = raw() | {"task": f"turing_machine({options})"}
    (line,) = check([save(record)]).refused
    assert "digits and _=,.+/-" in line
    assert "make a link" in line


def test_the_command_names_every_forged_record_and_exits_with_1(save):
    names = ["other hash", "no seed", "other seeds", "other chance"]
    result = run("check", save(*map(forged, names)))
    assert result.exit_code == 1
    assert [f"00{at}.json: " in result.stderr for at in range(4)] == [True] * 4
    assert "4 records checked, 4 refused" in result.stdout


@pytest.mark.slow
def test_committed_runs_of_an_encoding_differ_in_scans_by_device_alone_and_the_table_says_so():
    some = [path for path in RECORDS.rglob("*.json") if "_scan" in path.read_text("utf-8")]
    for table in tables(load(some)[0]):
        ran, on_device = defaultdict(set), defaultdict(set)
        for record in table.records:
            for operation, back_end in kernels_of(record):
                if operation.endswith("_scan"):
                    ran[record.config.spec, operation].add(back_end)
                    on_device[record.config.spec, operation, record.env.device].add(back_end)
        assert all(len(back_ends) == 1 for back_ends in on_device.values()), table.title
        said = [line for line in table.warnings if "runs of one encoding differ in" in line]
        for (_, operation), back_ends in ran.items():
            assert len(back_ends) == 1 or any(operation in line for line in said), table.title


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
    (line,) = check([tmp_path], tree=True).refused  # which says nothing against the good one
    assert "other.json" in line
    assert f"should be named {one['run']}.json" in line
    assert "should be in quick/copy/ENCODING/" in line


def test_a_path_without_folders_is_misplaced(raw, tmp_path, monkeypatch):
    (tmp_path / "a.json").write_text(json.dumps(raw()))
    monkeypatch.chdir(tmp_path)
    (line,) = check([Path()], tree=True).refused
    assert "should be in quick/copy/ENCODING/" in line


def test_scores_along_training_end_with_those_of_the_test(raw, save):
    config = {"eval": {"curve_lengths": [15, 20], "every": 750}}

    def problems(last, seconds=(1.0, 2.0), best=1500):
        made = raw(config=config, best_step=best)
        shares = ((0.1, 0.1), last)
        made["learning"] = [
            {
                "step": step,
                "loss": 1.0,
                "exact": 0.5 if step == best else 0.25,
                "seconds": s,
                "test_exact": exact,
                "test_token": token,
            }
            for step, s, (exact, token) in zip((750, 1500), seconds, shares, strict=True)
        ]
        return "\n".join(map(str, check([save(made)]).refused))

    exact, token = 0.7, 0.85  # of 15 and 20
    assert problems((exact, token)) == ""
    assert "test_exact 0.8 at 1500, but scores.last has 0.7" in problems((0.8, token))
    assert "test_token None" in problems((exact, None))
    assert "test_exact 0.1 at 750, but scores.best has 0.7" in problems((exact, token), best=750)
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


def test_a_commit_that_the_history_lacks_is_a_note(raw, save, tmp_path, monkeypatch):
    """It may be that of a fork or of a plug-in's author, or pip has installed the code."""

    def git(*words):
        own = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", *words]
        return subprocess.run(own, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    assert history(tmp_path) == ""  # no repository
    monkeypatch.setenv("GIT_COMMITTER_DATE", "2026-11-22T00:30:00Z")  # clocks may differ by an hour
    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "first")
    head, folder = git("rev-parse", "HEAD")[:12], tmp_path / "inside"
    folder.mkdir()
    assert history(folder) == ""  # that of another project
    monkeypatch.setattr("leaderboard.check.history", lambda root: history(tmp_path))
    env = raw()["env"]
    known, fork = raw(env=env | {"commit": head}), raw("alibi")
    installed = raw("nope", env=env | {"commit": "unknown", "dirty": None})
    report = check([save(known, fork, installed)])
    assert report.refused == ()
    notes = [line.split("/")[-1].partition(": ") for line in report.warnings]
    lacking = [name for name, _, note in notes if "not in the history" in note]
    assert lacking == ["001.json", "002.json"]
    known["provenance"]["finished"] = "2026-11-21T23:00:00+00:00"
    (line,) = check([save(known, fork, installed)]).refused
    assert "finished is 2026-11-21 23:00:00+00:00, before its commit of 2026-11-22 00:30" in line


def test_checkpoints_far_apart_at_an_unseen_length_are_a_note(raw, save):
    far, near = raw(best_step=750), raw("alibi", best_step=750)
    for made, right in ((far, {10: 100, 15: 30, 20: 50}), (near, {10: 30, 15: 90, 20: 10})):
        made["scores"]["best"] = raw(right=right)["scores"]["last"]
        made["learning"][0]["exact"] = 1.0
    report = check([save(far, near)])
    assert report.refused == ()
    (line,) = report.warnings
    assert "000.json: last and best are more than 0.5 apart" in line


def test_an_outdated_page_or_picture_is_refused(raw, save, tmp_path):
    records, page = save(raw()), tmp_path / "md" / "LEADERBOARD.md"
    build(None, records, tmp_path / "out", page)
    known = KNOWN
    found = tables(load([records])[0], known)
    assert stale(found, page, known) == []
    good = run("check", "--records", records, "--markdown", page)
    assert "the file should be named" in good.stderr
    assert "not up to date" not in good.stderr
    picture = page.parent / "pictures" / "quick.copy.svg"
    picture.write_text(picture.read_text() + " ")
    (picture.parent / "old.svg").write_text("<svg/>")
    page.write_bytes(b"# Leaderboard \xff")  # any bytes are not those of the records
    lines = stale(found, page, known)
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


def test_add_puts_a_record_into_the_users_own_folder(tmp_path, monkeypatch):
    one, public = committed("quick/copy/alibi"), sorted(RECORDS.rglob("*.json"))
    finished(tmp_path / "runs", one)
    monkeypatch.chdir(tmp_path)
    result = run("add", one["run"])
    assert (result.exit_code, sorted(RECORDS.rglob("*.json"))) == (0, public)
    assert result.stdout.endswith("now: pezoo leaderboard build --records records\n")
    assert [path.stem for path in Path("records").rglob("*.json")] == [one["run"]]


def test_add_puts_a_record_where_check_wants_it(tmp_path):
    one, records = committed("quick/copy/alibi"), tmp_path / "not" / "there yet"
    folder = finished(tmp_path / "runs", one)
    result = run("add", one["run"][:6], "--runs", tmp_path / "runs", "--records", records)
    assert result.exit_code == 0, result.output
    assert result.stdout.endswith(
        f"now: pezoo leaderboard build --records {shlex.quote(str(records))}\n"
    )
    (path,) = records.rglob("*.json")
    assert path.read_bytes() == (folder / "result.json").read_bytes()
    assert check([records], tree=True).refused == ()
    assert add(str(folder), tmp_path, records) == path  # once more changes nothing
    odd = finished(tmp_path / "more", one | {"chance": 0.99})
    with pytest.raises(ValueError, match=r"chance is 0\.99"):
        run("add", odd, "--records", records, catch_exceptions=False)


@pytest.fixture
def clone(tmp_path):
    """A repository with an empty folder of records; git(*words) runs in it."""
    place = tmp_path / "clone"
    (place / "leaderboard" / "records").mkdir(parents=True)
    (place / "leaderboard" / "records" / ".keep").write_text("")

    def git(*words):
        command = ["git", "-C", place, "-c", "user.name=x", "-c", "user.email=x@x", *words]
        return subprocess.run(command, check=True, capture_output=True).stdout

    git("init", "-q", "-b", "main")
    for key in ("name", "email"):
        git("config", f"user.{key}", "x")
    git("add", ".")
    git("commit", "-qm", "x")
    return git, place


@pytest.mark.slow
def test_submit_commits_records_to_a_branch_and_prints_the_request(tmp_path, clone):
    git, place = clone
    one = committed("quick/copy/alibi")
    folder = finished(tmp_path / "runs", one)
    (place / "mine").write_text("stays")
    result = run("submit", one["run"], "--runs", tmp_path / "runs", "--clone", place)
    assert result.exit_code == 0, result.output
    first, _, title, *_ = result.stdout.splitlines()
    assert first == f"branch records-1: git -C {place} push -u origin records-1"
    assert title == "Records of 1 run: alibi on copy"
    assert one["provenance"]["command"] in result.stdout.splitlines()
    assert f"| {one['run']} | {one['protocol']} | copy | alibi | {one['seed']} |" in result.stdout
    where = f"records-1:leaderboard/records/{one['protocol']}/copy/alibi/{one['run']}.json"
    assert git("show", where) == (folder / "result.json").read_bytes()
    assert b"alibi" in git("show", "records-1:leaderboard/LEADERBOARD.md")
    assert git("log", "-1", "--format=%s", "records-1").decode().strip() == title
    assert git("status", "--short", "--branch").decode().split() == ["##", "main", "??", "mine"]
    assert git("worktree", "list").count(b"\n") == 1
    again = run("submit", folder, "--clone", place, "--branch", "records-1")
    assert (again.exit_code, "pass another --branch" in again.output) == (2, True)


def test_submit_leaves_nothing_of_what_it_refuses(tmp_path, clone):
    git, place = clone
    folder = finished(tmp_path / "runs", committed("quick/copy/alibi") | {"chance": 0.99})
    with pytest.raises(ValueError, match=r"chance is 0\.99"):
        run("submit", folder, "--clone", place, catch_exceptions=False)
    assert git("branch", "--format=%(refname:short)") == b"main\n"
    refused = run("submit", folder, "--clone", tmp_path)
    assert (refused.exit_code, "is no clone of pezoo" in refused.output) == (2, True)


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


def both_refused(folder, words, **options):
    """Return True if two records, and no others, are refused for each other."""
    names = {"000.json": "001.json", "001.json": "000.json"}
    lines = check([folder], **options).refused
    found = {line.partition(": ")[0][-8:]: line for line in lines}
    return len(lines) == 2 and all(
        words in found[name] and names[name] in found[name].partition(words)[2] for name in names
    )


@pytest.mark.parametrize("what", ["data_hash", "backbone_hash"])
def test_runs_of_one_seed_share_data_and_initial_weights(raw, save, what):
    one, other = raw("rope"), raw("alibi", **{what: "another"})
    assert both_refused(save(one, other), f"{what} differs from that of the same settings and")
    longer = raw("alibi", config={"train": {"warmup": 9}}, **{what: "another"})
    assert check([save(one, longer)]).refused == ()


def test_what_a_run_draws_is_named(raw, save):
    """Of every record: those of the earliest code, which lacked some, were made anew."""
    for name in ("data_hash", "backbone_hash", "chance"):
        (line,) = check([save(raw() | {name: None})]).refused
        assert line.endswith(f": {name} is missing")


def test_add_refuses_a_task_that_reads_a_file(raw, tmp_path):
    machine = raw(task="turing_machine(file=mine.toml)", config={"task_version": 1_234_567})
    with pytest.raises(ValueError, match=r"reads mine\.toml, which other machines do not have"):
        add(str(finished(tmp_path / "runs", machine)), tmp_path, tmp_path / "records")


@pytest.mark.parametrize("day", [21, 23])
def test_of_two_results_of_a_seed_no_date_chooses(raw, save, tmp_path, day):
    """The second may have another attention or device, a new id, and any date it likes."""
    first, again = raw(), raw(config={"attention": "eager"})
    again["provenance"]["finished"] = f"2026-11-{day}T05:00:00+00:00"
    assert both_refused(save(again, first), "seed 0 has another result, and neither counts: ")
    records = tmp_path / "published"
    records.mkdir()
    there = add(str(finished(tmp_path / "runs", first)), tmp_path, records)
    with pytest.raises(ValueError, match=f"seed 0 has another result.*: {there}"):
        add(str(finished(tmp_path / "runs", again)), tmp_path, records)


def test_what_is_amiss_among_the_published_does_not_keep_others_out(raw, tmp_path):
    records = tmp_path / "records"
    records.mkdir()
    there = add(str(finished(tmp_path / "runs", raw())), tmp_path, records)
    twin = raw(config={"attention": "eager"})
    there.with_name(f"{twin['run']}.json").write_text(json.dumps(twin))
    assert add(str(finished(tmp_path / "runs", raw(seed=1))), tmp_path, records).is_file()


def unlike(one, other):
    return False


def test_runs_share_no_learning_curve(raw, save):
    first = raw()
    for other in (raw(seed=1), raw("alibi"), raw(task="reverse")):
        copied = other | {"learning": first["learning"]}
        assert both_refused(save(first, copied), "the learning curve is that of", alike=unlike)
    version = raw(config={"encoding_version": 2}) | {"learning": first["learning"]}
    assert check([save(first, version)], alike=unlike).refused == ()  # which may compute the same


def test_encodings_that_train_alike_are_no_copies(save):
    """A window that holds every text trains as its inner encoding, and is not a copy."""
    first = committed("quick/copy/rope", 1)
    names = dict.fromkeys(("encoding", "config.label", "config.encoding"), "window:rope")
    names |= {"config.encoding_version": 1001}
    for changes, copy in ((names, False), (named("encoding", "rope(base=500.0)", "--pe"), True)):
        other = changed(first, changes)
        lines = check([save(first, other)], alike=alike).refused
        assert [["the scores are those of" in line for line in lines], len(lines)] == (
            [[True, True], 2] if copy else [[], 0]
        )


def test_encodings_train_alike_whichever_version_of_the_task_they_ran_on():
    first = changed(committed("quick/copy/rope", 1), {"config.task_version": 99})
    one, *same, other = (
        Record.of(changed(first, {"config.encoding": name})).config
        for name in ("rope", "window:rope", "self_extend(group=0)", "rope(base=9900.0)")
    )
    assert all(alike(one, config) for config in same)
    assert not alike(one, other)


def test_losses_that_are_rounded_in_other_ways_are_alike(monkeypatch):
    one, other = (Record.of(committed("quick/copy/rope", seed)).config for seed in (1, 2))
    losses = {one.seed: [7.434447288513184, 5.104269027709961], other.seed: [7.434447765350342]}
    losses[other.seed] += [5.104269504547119]  # of self_extend(group=0) and rope at 1,024 bytes
    facts = sys.modules["harness.cli.verify.facts"]
    monkeypatch.setattr(facts, "_first_losses", lambda config: losses[config.seed])
    assert alike(one, other)
    losses[other.seed][0] *= 1 + 1e-6
    assert not alike(one, other)


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
    folder = save(first, other)
    assert both_refused(folder, "the learning curve is nearly that of") == refused
    assert refused or check([folder]).refused == ()


def made_claims(raw, curves):
    """Claims of runs of one table that differ in seed and losses; each is named by its seed."""
    first, claims = Record.of(raw(config={"eval": {"every": 250}})), Claims(alike)
    for seed, losses in enumerate(curves):
        points = [replace(p, loss=own) for p, own in zip(first.learning, losses, strict=True)]
        right = replace(first.scores.last[0], tokens=1 + (seed % 2))
        claims.note(
            Path(f"{seed}"),
            first.model_copy(
                update={
                    "run": f"{seed:016x}",
                    "seed": seed,
                    "data_hash": None,
                    "config": first.config.model_copy(update={"seed": seed}),
                    "learning": points,
                    "scores": Scores(last=[right], best=[]),
                }
            ),
        )
    return claims


def test_near_curves_are_those_that_a_naive_loop_finds(raw):
    drawn = np.random.default_rng(0)
    curves = drawn.uniform(0.1, 2, (40, 6))
    curves = np.concatenate([curves, curves * (1 + drawn.uniform(-0.005, 0.005, (40, 6)))])
    expected = set()
    for i, one in enumerate(curves):
        for j, other in enumerate(curves):
            spread = min(np.ptp(one), np.ptp(other))
            slack = NEAR * (3 if i % 2 == j % 2 else 1) * np.minimum(np.maximum(one, other), spread)
            if i != j and (abs(one - other) <= slack).all():
                expected.add(str(i))
    found = [path.name for path, words in made_claims(raw, curves).clashes() if "nearly" in words]
    assert sorted(found) == sorted(expected)
    assert 10 < len(expected) < 80


def test_five_thousand_records_of_one_table_are_compared_in_seconds(raw):
    """Copies of a few curves, which all clash, and others: 2,000 took 5 CPU-seconds, 4,000 22."""
    drawn = np.random.default_rng(0)
    curves = np.concatenate([np.tile(drawn.random((5, 6)), (500, 1)), drawn.random((2500, 6))])
    claims, start = made_claims(raw, curves), time.process_time()
    assert len({path for path, _ in claims.clashes()}) >= 2500
    assert time.process_time() - start < 8


def test_a_bar_shows_how_many_records_are_left(raw, save, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    result = run("check", save(raw(), raw("alibi")))
    assert "checking" in result.stderr
    assert "100%" in result.stderr


def test_seeds_that_learn_nothing_have_near_curves_by_chance(raw, save):
    """Their losses stay at the logarithm of 2, for example."""
    often = {"eval": {"every": 250}}
    records = [raw(seed=seed, config=often) for seed in (0, 1)]
    for record, sign in zip(records, (1, -1), strict=True):
        for at, point in enumerate(record["learning"]):
            point["loss"] = 0.6931 + sign * 1e-4 * (at % 3 - 1)
    assert check([save(*records)]).refused == ()


def test_runs_share_no_scores_that_chance_does_not_explain(raw, save):
    def scored(right):
        records = [raw(seed=seed, right=right) for seed in (0, 1)]
        for score in (score for record in records for score in record["scores"]["last"]):
            score["tokens"] = 1000
        return save(*records)

    assert both_refused(scored({10: 100, 15: 90, 20: 50}), "the scores are those of")
    assert check([scored({10: 100, 15: 99, 20: 99})]).refused == ()  # each may be wrong once
    assert check([scored({10: 100, 15: 90, 20: 0})]).refused == ()  # one length may be equal


def test_the_scores_of_a_committed_seed_in_the_record_of_another_are_those_of_it(save):
    first, other = committed("quick/copy/alibi", 1), committed("quick/copy/alibi", 2)
    other["scores"] = first["scores"]
    assert both_refused(save(first, other), "the scores are those of")


def test_initial_weights_are_compared_on_one_kind_of_processor(raw, save):
    one, other = raw("rope"), raw("alibi", backbone_hash="another")
    other["env"] |= {"device": "cpu aarch64", "platform": "Linux aarch64"}
    assert check([save(one, other)]).refused == ()


def test_a_sparse_file_of_gigabytes_is_named(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "DONE").write_text("0" * 64)
    with (folder / "result.json").open("wb") as file:
        file.truncate(6 * 10**9)
    with pytest.raises(ValueError, match=r"result\.json: .*6000000000 bytes"):
        add(str(folder), tmp_path, tmp_path / "records")
