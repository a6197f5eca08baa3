"""What `check` refuses, each with its reason, and what `add` takes."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections import defaultdict
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.cli.bench import command as bench
from harness.cli.leaderboard import command
from harness.cli.train import LOCAL_OPTIONS
from harness.settings.catalog import read_catalog
from leaderboard.build import build as build_site
from leaderboard.record import add as adding
from leaderboard.record import check as checking
from leaderboard.record.commanded import FLAGS, VALUED
from leaderboard.record.read import RECORDS, load
from leaderboard.record.schema import Record
from leaderboard.render.markdown import stale
from leaderboard.stats.tables import kernels_of, tables

BAD = Path(__file__).parent / "bad_records"
KNOWN = read_catalog()
build = partial(build_site, catalog=KNOWN)
add = partial(adding.add, catalog=KNOWN)
REASONS = tomllib.loads((BAD / "reasons.toml").read_text(encoding="utf-8"))


def check(paths, catalog=KNOWN, **options):
    return checking.check(paths, catalog, **options)


def run(*arguments, **options):
    return CliRunner().invoke(command, [str(one) for one in arguments], **options)


def test_a_good_record_passes(raw, save):
    report = check([save(raw("rope"), raw("randomized", config={"encoding_version": 2001}))])
    assert (report.records, report.refused, report.warnings) == (2, (), ())


def test_a_record_is_of_what_a_second_name_in_its_command_stands_for(raw, save):
    record = raw("randomized:learned", config={"encoding_version": 2001})
    command = "pezoo bench --pe {} --task copy --seeds 0-4"
    for typed, refused in (("label_based(max_len=9)", False), ("label_bases", True)):
        record["provenance"]["command"] = command.format(f"'rope,{typed}'")
        assert bool(check([save(record)], KNOWN).refused) == refused


def test_a_run_of_an_earlier_protocols_file_passes(raw, save):
    record = raw("rope")
    name = record["protocol"]
    command = "pezoo bench --pe rope --task copy --seeds 0-4 --protocol {}.toml"
    cases = {f"earlier/{name}-1": False, f"earlier/{name}x-1": True, f"{name}-1": True}
    for typed, refused in cases.items():
        record["provenance"]["command"] = command.format(typed)
        (words,) = check([save(record)], KNOWN).refused or ("",)
        assert ("the command runs --protocol" in words) == refused


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("--threads 1 --jobs 2 --format csv --stack off --wide --seeds=0-4", ""),
        ("--blah", "'--blah' is no option of a bench that is recorded"),
        ("--seeds 0-99999999999999999999999", "are 100000000000000000000000 seeds: expected 1 to"),
        ("more", "'more' is no option"),
        ("--engine ray --address evil.example:6379", "'--engine' is no option"),
        ("--seeds", "--seeds needs a value"),
        ("--seeds x", "seeds"),
        ("--set train.steps=9", "protocol quick has its own settings, but the command changes t"),
        ("--compile", "the command changes train.compile=true"),
        ("--precision=bf16", "the command changes train.precision=bf16"),
        ("--precision float32", ""),
        ("--tune lr=1e-3,1e-2", "protocol is quick, but the command has --tune lr=1e-3,1e-2"),
        ("--device cuda", "config.device is cpu, but the command runs --device cuda"),
        ("--device auto", ""),
        ("--attention eager", "config.attention is auto, but the command runs --attention eager"),
        ("--protocol /tmp/evil/quick.toml", "is a file that other machines do not have"),
        ("--protocol quick.toml", "is a file that other machines do not have"),
        ("--protocol /a/b/experiment/protocols/earlier/quick-1.toml", ""),
        ("--protocol evil/quick", "but the command runs --protocol evil/quick"),
        ("--pe rope(base=500)", "pe is rope, but the command runs --pe rope(base=500)"),
        ("--pe rope(", "provenance.command: unbalanced parentheses in 'rope('"),
        ("--task copy(symbols=2)", "task is copy, but the command runs --task copy(symbols=2)"),
        ("--task copy(symbols=10),reverse", ""),
    ],
)
def test_a_command_has_what_bench_records_and_what_the_settings_say(raw, save, more, words):
    record = raw()
    record["provenance"]["command"] += f" {more}"
    refused = check([save(record)], KNOWN).refused
    assert len(refused) == bool(words)
    assert all(words in line for line in refused)


def test_the_best_evaluations_have_scores_where_the_settings_ask_for_them(raw, save):
    def refused(top, **parts):
        record = raw(config={"eval": {"top": top}})
        record["scores"] |= {part: scores(record) for part, scores in parts.items()}
        return check([save(record)], KNOWN).refused

    def own(record):
        return record["scores"]["last"]

    def other(record):
        return [own(record)[0] | {"length": 7777}]

    assert refused(3, top1=own, top3=own, top3_each=own) == ()
    assert "scores.top1 has scores, but eval.top is 0" in refused(0, top1=own)[0]
    assert "scores.top3 has scores, but eval.top is 1" in refused(1, top1=own, top3=own)[0]
    assert "has lengths [7777], which scores.last has not" in refused(1, top1=other)[0]


def test_the_options_of_recorded_commands_are_those_of_bench_but_for_those_of_one_site():
    every = {name for option in bench.params for name in option.opts}
    kept = every - {*LOCAL_OPTIONS, "--wait", "--dry-run"}
    assert kept == {*VALUED, *FLAGS}


def test_a_changed_protocol_is_one_that_the_command_changes(raw, save):
    record = raw(protocol="quick+ab12cd")
    assert check([save(record)], KNOWN).refused == ()
    record["provenance"]["command"] = "pezoo bench --pe rope --task copy"
    (line,) = check([save(record)], KNOWN).refused
    assert "protocol quick+ab12cd has changed settings, but the command changes none" in line


def test_formats_with_a_plus_and_machines_of_files_pass(raw, save):
    """A file's checksum is the version of its task, and no class has it."""
    machine = {"task_version": 1_234_567}
    records = [
        raw(task="turing_addition(format=reversed+hints)", config={"task_version": 2}),
        raw(task="turing_machine(file=machines/w-1.toml)", config=machine),
    ]
    assert check([save(*records)], KNOWN).refused == ()
    assert [KNOWN.earlier(Record.of(one)) for one in records] == ["", ""]
    random = raw(task="turing_machine(machine=3)", config=machine)
    (line,) = check([save(random, folder="random")], KNOWN).refused
    assert "task version 1234567 is not known" in line


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("file=a b", "letters, digits and _=,.+/- only, not ' '"),
        ("file=[a]", "not '['"),
        ("file=a:b", "not ':'"),
        ("file=" + "a" * 96, "have 1 to 100 characters, were 101: give a shorter path"),
    ],
)
def test_the_path_of_a_file_is_refused_in_words(raw, save, options, words):
    record = raw() | {"task": f"turing_machine({options})"}
    (line,) = check([save(record)], KNOWN).refused
    assert words in line


def test_the_folder_of_bad_records_is_whole():
    assert {path.stem for path in BAD.glob("*.json")} == set(REASONS)
    assert len(REASONS) > 30


@pytest.mark.parametrize("name", REASONS)
def test_each_bad_record_is_refused_with_its_reason(name):
    report = check([BAD / f"{name}.json"], KNOWN)
    assert len(report.refused) == 1
    path, _, reason = report.refused[0].partition(": ")
    assert path.endswith(f"{name}.json")
    assert REASONS[name] in reason
    assert "; also " not in reason, "a bad record should have one fault"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"encoding": "rope()"}, "'rope()' is written 'rope'"),
        ({"encoding": "rope( )"}, "'rope( )' is written 'rope'"),
        ({"encoding": "rope(foo=1)"}, "unknown option of rope 'foo'"),
        ({"encoding": "rope(base=../x)"}, "option base of rope is '../x', expected float"),
        ({"encoding": "rope(base=2,base=3)"}, "given twice"),
        ({"task": "copy(zzz=1)"}, "unknown option of copy 'zzz'"),
        ({"task": "copy(symbols=10)"}, "symbols has its usual value"),
        ({"task": "copy(symbols=2,symbols=3)"}, "given twice"),
        ({"config": {"device": "banana"}}, "config.device is 'banana'"),
        ({"config": {"attention": "banana"}}, "unknown attention 'banana'"),
        ({"config": {"eval": {"min_samples": 101}}}, "100 examples of at least 101"),
        ({"protocol": "quick+"}, "expected NAME, NAME+6"),
        ({"protocol": "quick++"}, "expected NAME, NAME+6"),
        ({"protocol": "quick+zzz"}, "expected NAME, NAME+6"),
    ],
)
def test_what_does_not_exist_or_is_written_otherwise_is_refused(changes, words, raw, save):
    (line,) = check([save(raw(**changes))], KNOWN).refused
    assert words in line


def test_options_that_exist_pass(raw, save):
    good = ["rope(base=500)", "randomized(max_len=512):rope(base=2.5,layout=half)"]
    versions = [1, 2001]
    records = [
        raw(one, config={"encoding_version": version})
        for one, version in zip(good, versions, strict=True)
    ]
    report = check([save(*records, raw(task="copy(symbols=2)"))], KNOWN)
    assert report.refused == ()


def test_the_command_names_every_bad_record_and_exits_with_1():
    result = run("check", BAD)
    assert result.exit_code == 1
    for name in REASONS:
        assert f"{name}.json: " in result.stderr
    assert f"{len(REASONS)} records checked, {len(REASONS)} refused" in result.stdout


def test_the_committed_records_pass():
    report = check([RECORDS], tree=True)
    assert report.refused == ()
    assert report.records > 0


def test_no_committed_table_mixes_the_scans_of_an_encoding():
    for table in tables(load([RECORDS])[0]):
        ran = defaultdict(set)
        for record in table.records:
            for operation, back_end in kernels_of(record):
                if operation.endswith("_scan"):
                    ran[record.config.encoding, operation].add(back_end)
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
            {"step": step, "loss": 1.0, "seconds": s, "test_exact": exact, "test_token": token}
            for step, s, (exact, token) in zip((750, 1500), seconds, shares, strict=True)
        ]
        return "\n".join(map(str, check([save(made)]).refused))

    exact, token = 0.7, 0.85  # of 15 and 20
    assert problems((exact, token)) == ""
    assert "learning ends at test_exact 0.8, but scores.last say 0.7" in problems((0.8, token))
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
    assert report.warnings[0].endswith("changes that no commit holds")


def test_a_record_of_an_older_version_is_a_note(raw, save, monkeypatch):
    newer = read_catalog()
    rope = newer.encodings["rope"]
    object.__setattr__(rope, "version", 2)
    report = check([save(raw())], newer)
    assert report.refused == ()
    assert "encoding version 1; the code is at 2" in report.warnings[0]


def test_an_outdated_page_or_picture_is_refused(raw, save, tmp_path):
    records, page = save(raw()), tmp_path / "md" / "LEADERBOARD.md"
    build(None, records, tmp_path / "out", page)
    known = read_catalog()
    found = tables(load([records])[0], known)
    assert stale(found, page, known) == []
    good = run("check", "--records", records, "--markdown", page)
    assert "000.json: the file should be named" in good.stderr
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


def test_add_puts_a_record_where_check_wants_it(raw, tmp_path):
    one, records = raw("rope(base=500)"), tmp_path / "records"
    records.mkdir()
    folder = finished(tmp_path / "runs", one)
    result = run("add", one["run"][:6], "--runs", tmp_path / "runs", "--records", records)
    assert result.exit_code == 0, result.output
    assert result.stdout.endswith(f"now: pezoo leaderboard build --records {records}\n")
    (path,) = records.rglob("*.json")
    assert path.read_bytes() == (folder / "result.json").read_bytes()
    assert check([records], tree=True).refused == ()
    assert add(str(folder), tmp_path, records) == path  # once more changes nothing
    odd = finished(tmp_path / "runs", raw("alibi", chance=0.99))
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
    odd = finished(runs, raw("no_such", 5))
    with pytest.raises(ValueError, match="unknown encoding 'no_such'"):
        add(str(odd), runs, records)
    assert list(records.rglob("*")) == []
    good = finished(runs, raw("alibi"))
    path = add(str(good), runs, records)
    path.write_text("{}")
    with pytest.raises(ValueError, match="is there with another content"):
        add(str(good), runs, records)


def test_runs_of_different_seeds_have_different_data(raw, save):
    one, same, other = (raw("rope", seed, data_hash=text) for seed, text in enumerate("aab"))
    (line,) = check([save(one, same, other)], KNOWN).refused
    assert "001.json: seed 1 has the data of seed 0, " in line


@pytest.mark.parametrize("what", ["data_hash", "backbone_hash"])
def test_runs_of_one_seed_share_data_and_initial_weights(raw, save, what):
    one, other = raw("rope"), raw("alibi", **{what: "another"})
    (line,) = check([save(one, other)], KNOWN).refused
    assert f"001.json: {what} is another, but " in line
    assert "000.json of the same settings and seed" in line
    longer = raw("alibi", config={"train": {"steps": 3000}}, **{what: "another"})
    assert not any(f"{what} is" in line for line in check([save(one, longer)], KNOWN).refused)


def test_chance_and_the_models_size_are_those_of_most_records(raw, save):
    cost = raw()["cost"] | {"parameters": 100_001}
    records = raw("alibi", chance=0.99), raw("nope", cost=cost), raw("rope")
    lines = check([save(*records, raw("t5"))], KNOWN).refused
    assert [line.partition("records/")[2].partition(" in ")[0] for line in lines] == [
        "000.json: chance is 0.99, but 0.1",
        "001.json: cost.parameters without those of the encoding is 100001, but 100000",
    ]
    assert lines[0].endswith("001.json of the same task")


def test_what_a_run_draws_is_named(raw, save):
    for name in ("backbone_hash", "chance"):
        (line,) = check([save(raw() | {name: None})], KNOWN).refused
        assert line.endswith(f": {name} is missing")
    report = check([save(raw() | {"data_hash": None})], KNOWN)
    assert report.refused == ()
    assert "no data_hash" in report.warnings[0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"method": "one pass"}, "method is 'one pass', which is not how decoders answer"),
        ({"tokens": 99}, "99 tokens in 100 answers: each has one at least"),
        ({"tokens": 1001, "token": 0.5}, "token=0.5 is no number of tokens out of 1001"),
        ({"tokens": 1000, "token": 0.5}, ""),
        ({"method": "decoded"}, ""),
    ],
)
def test_how_answers_are_made_and_their_tokens_fit(raw, save, changes, words):
    record = raw(right={10: 50})
    scores = [record["scores"]["last"][0] | changes]
    record["scores"] = {"last": scores, "best": record["scores"]["best"]}
    record["best_step"] = 750
    refused = check([save(record)], KNOWN).refused
    assert len(refused) == bool(words)
    assert all(words in line for line in refused)


def test_add_refuses_a_task_that_reads_a_file(raw, tmp_path):
    machine = raw(task="turing_machine(file=mine.toml)", config={"task_version": 1_234_567})
    with pytest.raises(ValueError, match=r"reads mine\.toml, which other machines do not have"):
        add(str(finished(tmp_path / "runs", machine)), tmp_path, tmp_path / "records")


def test_what_cannot_be_built_is_refused(raw, save):
    records = [raw("rope(base=-5.0)"), raw(task="copy(symbols=99999)"), raw("alibi")]
    result = run("check", save(*records))
    assert "base must be above 0 and finite, was -5.0" in result.output
    assert "symbols must be within 2..10" in result.output
    assert "3 records checked, 2 refused" in result.output


def test_runs_of_different_seeds_have_different_initial_weights(raw, save):
    one, same, other = (raw("rope", seed, backbone_hash=text) for seed, text in enumerate("aab"))
    (line,) = check([save(one, same, other)], KNOWN).refused
    assert "001.json: seed 1 has the initial weights of seed 0, " in line
