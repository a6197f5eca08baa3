"""A protocol's name stands for its settings: what else calls itself that is in another table."""

import hashlib
import json
import re

import pytest

from harness import tasks
from harness.settings.protocol import PROTOCOLS, load_protocol, protocol_names, resolve
from leaderboard import catalog
from leaderboard.check import refusals
from leaderboard.records import RECORDS, load
from leaderboard.schema import Record
from leaderboard.tables import PROTOCOL, tables
from pezoo.spec import parse


@pytest.fixture(scope="module")
def known():
    return catalog.read()


@pytest.fixture(scope="module")
def committed():
    return [record for record in load([RECORDS])[0] if record.task == "copy"]


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


def test_a_record_with_other_settings_never_enters_the_protocols_table(committed, known):
    raw = json.loads(next(r for r in committed if r.protocol == "quick").model_dump_json())
    raw["schema"] = raw.pop("schema_")
    raw["config"]["train"]["steps"] = raw["learning"][-1]["step"] = 2001
    text = json.dumps(raw["config"], sort_keys=True, separators=(",", ":"))
    raw["run"] = hashlib.sha256(text.encode()).hexdigest()[:16]
    raw["provenance"]["finished"] = "2026-11-01T00:00:00+00:00"  # newer than all others
    forged = Record.model_validate(raw)
    assert "the settings are those of no version of protocol quick" in list(refusals(forged, known))
    before = [table for table in tables(committed, known) if table.policy == PROTOCOL]
    after = [table for table in tables([*committed, forged], known) if table.policy == PROTOCOL]
    assert [table.records for table in after] == [table.records for table in before]
    (alone,) = tables([forged], known)
    assert (alone.policy, alone.slug) == ("changed", f"quick.copy.{forged.shared_hash}")


def test_the_known_settings_are_those_of_the_protocols_and_of_the_committed_records(known):
    records, _ = load([RECORDS])
    assert not [record.run for record in records if known.foreign(record)]
    for name in protocol_names():
        for task in tasks.names():
            run = resolve(load_protocol(name), task, parse("rope"), 0, "cpu", "auto")
            config = run.model_dump(mode="json")
            made = Record.model_construct(protocol=name, task=task, config=config)
            words = f"{made.protocol_hash} of {name}, {task} belongs into protocols/known.json"
            assert not known.foreign(made), words
