"""A run that starts from the weights of another one."""

import json
import random
import shutil
import time

import pytest
import torch
from safetensors.torch import load_file
from soak import SETTINGS, soak
from test_reliability_kill import bench, eventually, free

from experiment.config import ConfigError
from harness.cli.verify import refusals as verified
from harness.model.transformer import Transformer, shape_of
from harness.runs.folder import RunFolder, StartError, finished
from harness.runs.run import execute
from harness.settings.protocol import load_protocol, resolve
from leaderboard.record.refusals import refusals
from leaderboard.record.schema import Record
from pezoo.registry import make, parse

FIRST = (*SETTINGS, "train.steps=12", "train.checkpoint_every=4")
READ = (*SETTINGS, "train.steps=0", "start.protocol=quick")
MODEL = ("model.width=16", "model.heads=2", "model.layers=1")
SMALL = (*MODEL, "eval.samples=4", "eval.min_samples=4")
ONCE = ("eval.lengths=[128, 200]", 'eval.sets=[{name="repeat", lengths=[200]}]')
PARENT = (*SMALL, "eval.lengths=[128]", "train.steps=4", "train.batch=2", "eval.every=2")


def config_of(pe="rope", first="rope", settings=READ, name="quick", task="copy"):
    sets = (*settings, f"start.encoding={first}", f"start.set={json.dumps(FIRST)}")
    return resolve(load_protocol(name, sets), task, parse(pe), 0, "cpu", "auto")


def run(config, root, start=True):
    if start:
        run(config.start, root, False)
    return execute(config, root, "pezoo bench", lambda event: None)


YARN = "rope,rope(rope_parameters=yarn(factor=auto))"


def command(root, *more, protocol="extend", pe=YARN, parent=PARENT):
    sets = (*SMALL, *ONCE, f"start.set={json.dumps(parent)}")
    words = ["bench", "--protocol", protocol, "--task", "text", "--pe", pe, "--device", "cpu"]
    words += ["--seeds", "0", "--jobs", "1", "--format", "json", "--runs", root]
    return [*words, *(word for one in sets for word in ("--set", one)), *more]


def test_no_earlier_run_has_another_hash():
    plain = resolve(load_protocol("quick"), "copy", parse("rope"), 0, "cpu", "auto")
    assert plain.start is None
    assert "start" not in plain.model_dump()
    assert config_of().hash != config_of(first="alibi").hash
    assert config_of().replace(seed=3).start.seed == 3


def test_a_dry_run_counts_the_parents_of_all_phases(call, tmp_path):
    tuned = ("--tune", "lr=1e-3,2e-3", "--dry-run", "--set", "train.steps=4")
    code, out, _ = call(*command(tmp_path, *tuned, protocol="extend-drope", pe="nope"))
    assert code == 0
    lines = {line["phase"]: line for line in json.loads(out)["lines"]}
    assert {phase: line["runs"] for phase, line in lines.items()} == {
        "start": 2,  # of seed 0 and of the tuning seed 100
        "sweep": 2,
        "comparison": 1,
    }
    assert lines["start"]["encoding"] == "rope"


def test_bench_trains_the_parent_once_and_its_records_pass_every_check(call, tmp_path):
    assert call(*command(tmp_path / "a"))[0] == 0
    records = {path.name: finished(path) for path in (tmp_path / "a").glob("?" * 16)}
    (parent,) = [one for one in records.values() if one.start is None]
    children = [one for one in records.values() if one.start]
    assert (parent.protocol[:4], parent.encoding, len(children)) == ("text", "rope", 2)
    assert [[*refusals(one), *verified(one)] for one in records.values()] == [[], [], []]
    weights = tmp_path / "a" / parent.run / "ckpt-00000004.safetensors"
    before = weights.read_bytes()
    assert {one.start.run for one in children} == {parent.run}
    assert len({one.start.weights for one in children}) == len({c.shared_hash for c in children})
    rope, yarn = sorted(children, key=lambda one: len(one.encoding))
    assert rope.scores.last[0].bits == yarn.scores.last[0].bits  # within 128 nothing changes
    assert rope.scores.last[1].bits != yarn.scores.last[1].bits
    assert rope.scores.last[0].bits == pytest.approx(read_by_hand(rope, before, tmp_path))

    # In another folder it counts where its checksum is right; deleted, it is trained again.
    shutil.copytree(tmp_path / "a" / parent.run, tmp_path / "known" / parent.run)
    assert call(*command(tmp_path / "b", "--known", tmp_path / "known"))[0] == 0
    copied = finished(tmp_path / "b" / parent.run)
    assert copied.provenance.finished == parent.provenance.finished
    again = tmp_path / "known" / parent.run / weights.name
    again.write_bytes(again.read_bytes()[:-1] + b"x")
    with pytest.warns(UserWarning, match=r"not used: .* have changed"):
        assert call(*command(tmp_path / "c", "--known", tmp_path / "known"))[0] == 0
    assert (tmp_path / "c" / parent.run / weights.name).read_bytes() == before
    assert call(*command(tmp_path / "d", "--known", tmp_path / "a"))[0] == 0
    assert not [*(tmp_path / "d").glob("?" * 16)]  # every run is known
    shown = call("show", rope.run, "--runs", tmp_path / "a")[1]
    assert f"run      {parent.run}" in shown
    for made in ("b", "c"):
        other = finished(tmp_path / made / rope.run)
        assert (other.scores, other.sets, other.start) == (rope.scores, rope.sets, rope.start)

    for claim, place in (("e" * 16, "run"), (["encoding.table"], "missing")):
        data = rope.data()
        data["start"][place] = claim
        found = [*refusals(Record.of(data)), *verified(Record.of(data))]
        assert any(reason.startswith(f"start.{place} is") for reason in found), found
    data = rope.data()
    data["config"]["start"]["train"]["steps"] = 99
    own = Record.of(data).config.hash
    data |= {"run": own}
    data["start"]["run"] = Record.of(data).config.start.hash
    assert "config.start.train.steps is 99, but the command makes 4" in [*verified(Record.of(data))]


def read_by_hand(record, weights, folder):
    """Return bits per byte of the record's first test: a model with these weights, read plainly."""
    from harness import tasks
    from harness.training.evaluate import examples

    (folder / "one.safetensors").write_bytes(weights)
    config = record.config
    encoding = make(config.spec, shape_of(config.model, 129))
    model = Transformer(config.model, encoding, 7)
    model.load_state_dict(load_file(folder / "one.safetensors"))
    sample = examples(tasks.make("text"), config, 128)
    ids = torch.cat([sample.prompt, sample.target], 1)
    with torch.no_grad():
        logits = model.eval()(ids[:, :-1], torch.arange(127)[None])
    chosen = logits.log_softmax(-1).gather(-1, ids[:, 1:, None])[:, -64:]
    return -float(chosen.mean()) / 0.6931471805599453


def test_missing_and_left_over_weights_are_in_the_record(tmp_path):
    config = config_of("learned(max_len=40)", "t5")
    record = run(config, tmp_path)
    (missing,), (left,) = record.start.missing, record.start.left
    assert missing.startswith("encoding.")
    assert left.startswith("encoding.")
    assert (record.learning, record.best_step, record.cost.tokens) == ([], None, 0)
    parent = load_file(tmp_path / config.start.hash / "ckpt-00000012.safetensors")
    assert left in parent
    kept = run(config_of("t5", "t5"), tmp_path)
    assert (kept.start.missing, kept.start.left) == ([], [])
    assert kept.scores.last == finished(tmp_path / config.start.hash).scores.last


def test_a_changed_or_deleted_parent(tmp_path):
    config = config_of("rerope")
    with pytest.raises(StartError, match=r"which it starts from, is not trained"):
        run(config, tmp_path, start=False)
    run(config.start, tmp_path, False)
    weights = tmp_path / config.start.hash / "ckpt-00000012.safetensors"
    before = weights.read_bytes()
    weights.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
    with pytest.raises(StartError, match="have changed: delete that folder"):
        run(config, tmp_path)
    assert not (tmp_path / config.hash / "result.json").exists()
    shutil.rmtree(weights.parent)
    assert run(config, tmp_path).status == "done"
    assert weights.read_bytes() == before
    weights.with_suffix(".pt").unlink()  # the optimiser's state is not read
    assert RunFolder(tmp_path, config.start).weights()[0].keys() == load_file(weights).keys()


def test_killed_at_random_moments_nothing_is_lost_or_different(tmp_path):
    """The parent too is trained in the processes that are killed."""
    tuned = (*SETTINGS, "train.steps=12", "start.protocol=quick")
    report = soak([config_of("alibi", settings=tuned)], tmp_path, kills=4)
    assert (report.faults, report.kills) == (0, 4), report


@pytest.mark.slow
def test_bench_killed_while_it_trains_parent_or_children_goes_on_to_the_same_results(
    call, tmp_path
):
    whole, cut, draws = tmp_path / "whole", tmp_path / "cut", random.Random(0)
    longer = (*PARENT, "train.steps=60", "train.checkpoint_every=3")
    assert call(*command(whole, parent=longer))[0] == 0
    records = [finished(path) for path in whole.glob("?" * 16)]
    (parent,) = [record for record in records if record.start is None]
    words = [str(word) for word in command(cut, parent=longer)][1:]
    for ready in (f"{parent.run}/ckpt-*.json", f"{parent.run}/DONE"):
        process = bench(cut, "0", words=words)
        eventually(lambda ready=ready: [*cut.glob(ready)])
        time.sleep(draws.uniform(0, 0.2))
        process.kill()
        process.communicate()
        for record in records:  # workers follow their parent, and give the runs free
            eventually(lambda record=record: free(cut, record.config))
        assert finished(cut / parent.run) is None or "DONE" in ready
    assert bench(cut, "0", words=words).wait() == 0
    assert finished(cut / parent.run).cost.sessions == 2
    for record in records:
        other, folder = finished(cut / record.run), whole / record.run
        assert (record.scores, record.sets, record.start) == (other.scores, other.sets, other.start)
        assert record.learning == other.learning
        for file in folder.glob("*.safetensors"):
            assert file.read_bytes() == (cut / record.run / file.name).read_bytes()


@pytest.mark.parametrize(
    ("name", "sets", "words"),
    [
        ("quick", ("train.steps=0",), r"train.steps 0 needs a table \[start\]"),
        ("extend", ("start.protocol=txt",), "unknown protocol 'txt'; did you mean text"),
        ("extend", ("start.protocol=extend",), "start.protocol extend starts from another run"),
        ("extend", ("model.width=16",), "model.width is 16, and 128 in the run of text"),
        ("extend", ("start.encoding=rpoe",), "unknown encoding 'rpoe'; did you mean rope"),
        ("extend", ("start.protokol=text",), "unknown setting in start 'protokol'"),
    ],
)
def test_a_wrong_start_is_refused(name, sets, words):
    with pytest.raises((ConfigError, ValueError), match=words):
        resolve(load_protocol(name, sets), "text", parse("rope"), 0, "cpu", "auto")


def test_a_record_cannot_start_from_another_seed_or_a_chain():
    config = config_of()
    data = config.model_dump(mode="json")
    for start, words in (
        (data["start"] | {"seed": 5}, "start has another seed"),
        (data, "start must be a run that starts from no other"),
    ):
        with pytest.raises(ValueError, match=words):
            type(config).model_validate(data | {"start": start})


def test_whole_folder_is_adopted_after_a_kill(tmp_path):
    """Without DONE, which is copied last, the copy is a run to go on with."""
    config = config_of().start
    run(config, tmp_path / "a", False)
    RunFolder(tmp_path / "b", config).adopt(tmp_path / "a")
    (tmp_path / "b" / config.hash / "DONE").unlink()
    assert run(config, tmp_path / "b", False).cost.sessions == 2
