"""A protocol's name stands for its settings: what else calls itself that is in another table."""

import json
import re
from itertools import cycle

import pytest

from experiment.config import RunConfig
from experiment.protocol import PROTOCOLS, protocol_names
from harness import tasks
from harness.cli.verify import refusals
from harness.runs.record import blank_record
from harness.settings.catalog import read_catalog
from harness.settings.protocol import load_protocol, resolve
from leaderboard.record.read import RECORDS, load
from leaderboard.record.schema import Record
from leaderboard.stats.tables import PROTOCOL, tables
from pezoo.spec import parse


@pytest.fixture(scope="module")
def known():
    return read_catalog()


@pytest.fixture(scope="module")
def committed():
    return load([*RECORDS.glob("*/copy")])[0]


@pytest.mark.parametrize("name", ["quick", "quick+abc123", "quick+tune-12345678"])
def test_a_changed_copy_is_not_called_as_the_protocol(name, tmp_path):
    text = (PROTOCOLS / "quick.toml").read_text(encoding="utf-8")
    path = tmp_path / "quick.toml"
    path.write_text(text)
    assert load_protocol(str(path)).name == "quick"
    path.write_text(text.replace('"quick"', f'"{name}"').replace("steps = 2000", "steps = 20"))
    changed = load_protocol(str(path))
    assert re.fullmatch(r"quick\+[0-9a-f]{6}", changed.name)
    assert changed == load_protocol("quick", ("train.steps=20",))


def forged(record, change):
    """The record with a changed config, made to fit it, and newer than all others."""
    raw = json.loads(record.model_dump_json(by_alias=True))
    change(raw)
    raw["run"] = RunConfig.model_validate(raw["config"]).hash
    raw["provenance"]["finished"] = "2026-11-01T00:00:00+00:00"
    return Record.of(raw)


def first(records, protocol, encoding):
    return next(r for r in records if (r.protocol, r.encoding) == (protocol, encoding))


@pytest.mark.slow
def test_a_record_with_other_settings_never_enters_the_protocols_table(committed, known):
    def longer(raw):
        raw["config"]["train"]["steps"] = raw["learning"][-1]["step"] = 2001

    false = forged(first(committed, "quick", "rope"), longer)
    assert list(refusals(false)) == ["config.train.steps is 2001, but the command makes 2000"]
    before = [table for table in tables(committed, known) if table.policy == PROTOCOL]
    after = [table for table in tables([*committed, false], known) if table.policy == PROTOCOL]
    assert [table.records for table in after] == [table.records for table in before]
    (alone,) = tables([false], known)
    assert (alone.policy, alone.slug) == ("changed", f"quick.copy.{false.shared_hash}")


@pytest.mark.parametrize("grid", [{"steps": [20]}, {"lengths": ["x"]}, {"lr": [0.002]}])
def test_a_sweep_that_the_name_does_not_tell_is_in_no_table_of_the_protocol(grid, committed, known):
    from leaderboard.record.tuning import cells

    def chosen(raw):
        values = cells(grid)[0]
        trial = {"values": values, "exact": 1.0, "validation": 1.0, "loss": 0.1, "runs": ["0" * 16]}
        told = {"grid": grid, "seeds": [100], "chosen": values, "cells": [trial]}
        raw["provenance"]["tuning"] = told | {"cpu_seconds": 1.0, "seconds": 1.0}
        raw["config"]["train"] |= {k: v for k, v in values.items() if k != "lengths"}

    def untold(raw):
        raw["provenance"]["tuning"] = None

    false = [
        forged(first(committed, "quick", "rope"), chosen),
        forged(first(committed, "quick+tune-27014962", "rope"), untold),
    ]
    before = [(table.slug, table.policy, table.records) for table in tables(committed, known)]
    runs = {record.run for record in false}
    after = [t for t in tables([*committed, *false], known) if t.first.run not in runs]
    assert [(table.slug, table.policy, table.records) for table in after] == before
    assert {table.policy for table in tables(false, known)} == {"changed"}


def made_with(record, version, finished):
    """The record as if it were of that version of its protocol."""
    model, train, test = (part.model_dump(mode="json") for part in version.settings(record.task))
    raw = json.loads(record.model_dump_json(by_alias=True))
    raw["config"] |= {"model": model, "train": train, "eval": test}
    raw["run"] = RunConfig.model_validate(raw["config"]).hash
    raw["provenance"]["finished"] = finished
    return Record.of(raw)


def test_the_file_and_not_the_clock_says_which_version_is_the_protocols_own(committed, known):
    now, before = known.protocols["quick"].versions
    rope = first(committed, "quick", "rope")
    current = made_with(rope, now, "2021-01-01T00:00:00+00:00")
    late = made_with(rope, before, "2026-11-01T00:00:00+00:00")
    found = tables([late, current], known)
    assert [(t.policy, t.records) for t in found] == [
        ("protocol", (current,)), ("earlier", (late,)),
    ]  # fmt: skip


def test_a_version_of_the_task_that_does_not_exist_displaces_nothing(committed, known):
    def newer(raw):
        raw["config"]["task_version"] = 10**18

    rope = first(committed, "quick", "rope")
    false = forged(rope, newer)
    (own,) = tables([rope], known)
    found = tables([rope, false], known)
    assert [(t.policy, t.records) for t in found] == [(own.policy, (rope,)), ("earlier", (false,))]


def test_a_tuned_record_has_the_protocols_settings_but_for_the_tuned(committed, known):
    def larger(raw):
        raw["config"]["train"]["batch"] += 1

    tuned = first(committed, "quick+tune-27014962", "rope")
    false = forged(tuned, larger)
    assert list(refusals(tuned)) == []
    (reason,) = refusals(false)
    assert reason == "config.train.batch is 65, but the command makes 64"
    before = [(table.slug, table.title, table.records) for table in tables(committed, known)]
    after = tables([*committed, false], known)
    assert [(t.slug, t.title, t.records) for t in after if false not in t.records] == before
    (alone,) = (table for table in after if false in table.records)
    assert (alone.policy, len(alone.records)) == ("changed", 1)


def test_options_that_the_protocol_does_not_give_are_shown_as_typed(committed, known):
    def wider(raw):
        raw["config"]["encoding"] = "prism_spectral(d_pe=320)"

    true = first(committed, "quick", "prism_spectral")
    false = forged(true, wider)
    assert any(reason.startswith("config.encoding is") for reason in refusals(false))
    found = tables([*committed, false], known)
    (table,) = (t for t in found if false.run in {record.run for record in t.records})
    assert true in table.records
    (row,) = (row for row in table.rows if false.run in row.runs and not row.mode)
    assert (row.label, row.custom) == (false.config.spec, True)


def test_an_earlier_version_of_a_protocol_is_known(tmp_path):
    path = PROTOCOLS / "earlier" / "quick-1.toml"
    text = path.read_text(encoding="utf-8")
    (tmp_path / "quick.toml").write_text(text.replace("steps = 2000", "steps = 3000"))
    run = resolve(load_protocol(str(path)), "copy", parse("rope"), 0, "cpu", "auto")
    record = Record.of(blank_record(run.replace(protocol="quick"), "pezoo bench"))

    assert read_catalog(tmp_path).foreign(record)
    (tmp_path / "earlier").mkdir()
    (tmp_path / "earlier" / "quick-1.toml").write_text(text)
    assert not read_catalog(tmp_path).foreign(record)
    assert not read_catalog(tmp_path).strange_options(record)


@pytest.mark.slow
def test_the_committed_records_and_what_the_harness_makes_are_of_known_versions(known):
    """One seed of every encoding: `pezoo leaderboard check` reads them all."""
    records, _ = load([*{path.parent: path for path in RECORDS.rglob("*.json")}.values()])
    for at, protocol in enumerate(map(load_protocol, protocol_names())):
        some = tasks.names()[at % 4 :: 4] if protocol.track != "text" else ["text"]
        for task, pe in zip(some, cycle(("rope", "randomized:prism(cursors=3)"))):
            run = resolve(protocol, task, parse(pe), 0, "cpu", "auto")
            records.append(Record.of(blank_record(run, "pezoo bench")))
    assert not [record.run for record in records if known.foreign(record)]
    for record in filter(known.strange_options, records):  # an earlier version gave these
        versions, pe = known.protocols[record.protocol].versions, parse(record.encoding)
        assert record.config.spec in {str(one.fill(record.task, pe)) for one in versions[1:]}
