"""Records are compared with what their command, encoding and task give."""

import json
import os

import pytest
from bad_records import changed, committed
from click.testing import CliRunner
from made_records import text_record

from experiment.config import RunConfig
from experiment.protocol import PROTOCOLS
from harness.cli.main import cli
from harness.cli.rerun import compare
from harness.cli.verify import alike, parse_command, refusals
from harness.runs.run import execute
from harness.settings.protocol import load_protocol, resolve
from leaderboard.record.read import Record
from pezoo.spec import parse

COPY = "quick/copy/alibi"
TUNED = "quick+tune-27014962/copy/rope"
ODD = "ruoss2023-mini/modular_arithmetic_simple/rope"  # its lengths are odd


def verified(raw, **changes):
    return [*refusals(Record.of(changed(raw, changes)))]


@pytest.mark.parametrize(("folder", "seed"), [(COPY, 1), (ODD, 1), (TUNED, 10)])
def test_a_committed_record_is_not_refused(folder, seed):
    assert verified(committed(folder, seed)) == []


@pytest.mark.parametrize(
    "words",
    [
        "--threads 1 --jobs 2 --format csv --wide --seeds=0-4",
        "--precision float32 --device auto --attention auto",
        "--protocol /a/b/experiment/protocols/earlier/quick-1.toml",
        "--protocol experiment/protocols/quick.toml",
        "--task 'copy(symbols=10),reverse'",
    ],
)
def test_a_command_may_say_the_same_in_other_words(words):
    assert verified(committed(COPY), append=words) == []


@pytest.mark.parametrize(
    ("encoding", "task", "versions"),
    [
        ("rope(base=500)", "copy(symbols=2)", {}),
        ("randomized(max_len=512):rope(base=2.5,layout=half)", "copy", {"encoding_version": 2001}),
    ],
)
def test_options_of_encodings_and_tasks_pass(encoding, task, versions):
    raw = committed("quick/copy/rope")
    changes = {f"config.{name}": version for name, version in versions.items()}
    changes |= dict.fromkeys(("encoding", "config.label", "config.encoding"), encoding)
    changes |= dict.fromkeys(("task", "config.task"), task)
    words = verified(raw, append=f"--pe '{encoding}' --task '{task}'", **changes)
    assert not [line for line in words if "command" in line or "built" in line]


@pytest.mark.parametrize(
    ("typed", "refused"), [("label_based(max_len=64)", False), ("label_bases", True)]
)
def test_a_second_name_in_a_command_stands_for_an_encoding(typed, refused):
    changes = dict.fromkeys(("encoding", "config.label"), "label_based(max_len=64)")
    raw = changed(committed(COPY), changes | {"config.encoding_version": 2001})
    words = verified(raw, append=f"--pe 'rope,{typed}'")
    assert any("unknown encoding" in line for line in words) == refused
    assert not any(line.startswith("encoding is") for line in words)


@pytest.mark.parametrize(
    ("old", "new", "refused"),
    [
        ("--tune lr=1e-3,3e-3", "--tune train.lr=3e-3,0.001 --tune-seeds 100", ""),
        ("--tune lr=1e-3,3e-3", "--tune lr=1e-3,1e-2", "config.protocol is"),
        ("--tune lr=1e-3,3e-3", "", "config.protocol is"),
        ("--tune ", "--tune-seeds 101 --tune ", "config.protocol is"),
        ("--tune ", "--tune-seeds 10 --tune ", "share 10"),
    ],
)
def test_a_sweep_tries_the_values_and_seeds_of_the_command(old, new, refused):
    raw = committed(TUNED, 10)
    raw["provenance"]["command"] = raw["provenance"]["command"].replace(old, new, 1)
    found = verified(raw)
    assert bool(found) == bool(refused)
    assert not refused or any(refused in line for line in found)


def test_the_command_of_a_changed_protocol_makes_its_settings():
    raw = committed("quick+096273/addition_coupled/coupled", 0)
    assert verified(raw) == []
    command = raw["provenance"]["command"]
    raw["provenance"]["command"] = command.replace("steps=12000", "steps=13000")
    found = verified(raw)
    assert "config.train.steps is 12000, but the command makes 13000" in found


def test_instances_that_the_task_lacks_can_only_be_missing():
    raw = committed(ODD)
    at = len(raw["scores"]["last"]) - 1
    lengths = [score["length"] for score in raw["scores"]["last"]]
    lengths[at] += 1  # an even one
    override = f"eval.lengths={lengths}"
    name = load_protocol("ruoss2023-mini", (override,)).name
    moved = {"config.eval.lengths": lengths, "append": f"--set '{override}'"}
    moved |= {"protocol": name, "config.protocol": name}
    line, _ = verified(raw, **moved, **{"scores.*." + f"{at}.length": lengths[at]})
    assert line.endswith(f"length {lengths[at]}: status is 'ok', expected 'no instance'")
    missing = {"length": lengths[at], "status": "no instance", "seen": False}
    assert verified(raw, **moved, **{f"scores.*.{at}": missing}) == []


def test_what_is_longer_than_in_training_is_not_seen():
    raw = committed("turing2024-mini/turing_addition/rope")
    for score in (score for scores in raw["sets"].values() for score in scores):
        score["seen"] = score["length"] <= 6
    found = {line.partition(":")[0] for line in verified(raw)}
    assert found == {f"sets.{n}+n, length {length}" for n in (9, 12) for length in (4, 6)}


@pytest.mark.parametrize(("encoding", "size"), [("rope", 0), ("prism", 82364), ("learned", 1408)])
def test_an_encoding_has_the_parameters_that_it_is_built_with(encoding, size):
    raw = committed(f"quick/copy/{encoding}")
    assert verified(raw) == []
    *_, line = verified(raw, **{"cost.encoding_parameters": size + 1})
    assert line.endswith(f"expected {size}")


def test_a_record_of_an_earlier_version_is_refused():
    raw = changed(committed("turing2024-mini/turing_addition/rope"), {"config.task_version": 1})
    assert verified(raw) == ["task_version is 1: the code is at 2"]


@pytest.mark.parametrize("longest", [1, 5000])
def test_two_runs_that_cannot_be_trained_do_not_train_alike(longest):
    task = "alternation" if longest == 1 else "copy"
    changes = {"task": task, "config.task": task, "config.train.lengths": [1, longest]}
    rope, alibi = (changed(committed(f"quick/copy/{n}"), changes) for n in ("rope", "alibi"))
    one, other = (RunConfig.model_validate(raw["config"]) for raw in (rope, alibi))
    assert not alike(one, other)


def test_a_run_that_failed_early_has_seen_few_tokens():
    failed = {"status": "failed", "reason": "Diverged: loss is nan at step 30", "learning": []}
    raw = committed(COPY) | failed | {"scores": {"last": []}, "best_step": None}
    assert verified(raw, **{"cost.tokens": 1384}) == []
    (line,) = verified(raw, **{"cost.tokens": 10**9})
    assert line.startswith("cost.tokens is 1000000000, expected 0 to")


def test_a_limited_encoding_cannot_represent_some_lengths():
    raw = committed("quick/copy/learned")
    assert verified(raw) == []
    right = raw["scores"]["last"][0] | {"length": 11, "seen": False}
    (line,) = verified(raw, **{"scores.last.1": right})
    assert line.endswith("length 11: status is 'ok', expected 'cannot represent'")
    lost = {"length": 10, "seen": True, "status": "cannot represent"}
    (line,) = verified(raw, **{"scores.last.0": lost})
    assert line.endswith("length 10: status is 'cannot represent', expected 'ok'")


def test_an_override_that_an_earlier_version_cannot_take():
    command = "pezoo bench --pe rope --task copy --protocol quick --set eval.curve_lengths=[{}]"
    new = parse_command(command.format(11))  # not among the lengths of the first version
    assert len(new[0]) == 1
    with pytest.raises(ValueError, match="curve_lengths"):
        parse_command(command.format(12))


def test_a_protocol_has_no_versions_of_another_whose_name_begins_alike():
    command = "pezoo bench --pe rope --task copy --protocol ruoss2023 --set train.lr=0.5"
    names = {one.protocol.name.partition("+")[0] for one, _ in parse_command(command)[0]}
    assert names == {"ruoss2023"}


def test_wrong_answers_are_the_first_ones_of_the_test_set():
    raw = committed(COPY)
    *before, score = raw["scores"]["last"][:3]
    own = score["wrong"]
    place = f"scores.last.{len(before)}.wrong"
    for wrong, words in (
        ([own[0] | {"given": own[0]["expected"]}, *own[1:]], "is said to be wrong and expected"),
        (own[::-1], "is not in the test set"),  # in this order
        ([own[0]] * 3, "is not in the test set"),  # three times
        (raw["scores"]["last"][3]["wrong"], "is not in the test set"),  # of another length
    ):
        (line,) = verified(raw, **{place: wrong})
        assert line.startswith(f"scores.last, length {score['length']}: ")
        assert line.endswith(words)


def test_answers_before_the_last_wrong_one_are_right():
    raw = committed(COPY)
    none = {"correct": 0, "exact": 0.0, "token": 0.5}  # but the wrong ones are not the first three
    lines = verified(raw, **{f"scores.*.1.{name}": value for name, value in none.items()})
    assert any("length 11: correct is 0, but" in line for line in lines)


def test_every_mode_of_the_encoding_has_scores_like_any_other():
    raw = committed("quick/copy/prism")
    place = "modes.snapped.last.11."
    few = {f"{place}{name}": number for name, number in (("correct", 50), ("count", 53))}
    lines = verified(raw, **few, **{f"{place}exact": 50 / 53})
    assert any(line.startswith("modes.snapped.scores.last, length 101: count") for line in lines)
    invented = {f"{place}wrong.0.prompt": "12="}
    assert any("not in the test set" in line for line in verified(raw, **invented))
    assert verified(raw, modes={}) == ["modes is [], expected ['snapped']"]


def test_best_evaluations_are_sums_of_as_many_test_sets():
    raw = committed(COPY)
    override = "eval.top=3"
    name = load_protocol("quick", (override,)).name
    changes = {"protocol": name, "config.protocol": name, "config.eval.top": 3}
    asked = changed(raw, changes | {"append": f"--set {override}"})
    plain = [one | {"wrong": []} for one in raw["scores"]["last"]]
    summed = [one | {key: one[key] * 3 for key in ("correct", "count", "tokens")} for one in plain]
    assert verified(asked, **{"scores.top3": summed, "scores.top3_each": summed}) == []
    found = verified(asked, **{"scores.top3": plain})
    assert "scores.top3, length 10: count is 128, expected 384" in found


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"grid": {"lr": [0.001, 0.01], "steps": [2000, 4000]}}, "sweep is"),
        ({"seeds": [101]}, "sweep is"),
        ({"cells.0.values": {"lr": 0.5, "steps": 2000}}, "cells is"),
        ({"cells.1.runs": ["0" * 16]}, "cells is"),
        ({"cells.1.runs": []}, "cells is"),
        ({"cells.0.exact": 1.0, "cells.1.exact": 0.0}, "the best cell is"),
        ({"cells.3.exact": None}, "the best cell is"),
        ({"cells.1.token": 0.5}, "cells with token accuracy, with bits is"),
        ({"chosen": {"lr": 0.001, "steps": 4000}}, "chosen is"),
        (None, "a sweep in provenance is False, expected True"),
    ],
)
def test_what_the_grid_does_not_explain_is_refused(change, words):
    changes = {f"provenance.tuning.{path}": value for path, value in (change or {}).items()}
    found = verified(committed(TUNED, 10), **(changes or {"provenance.tuning": None}))
    assert any(line.startswith(words) for line in found)


def test_a_run_without_a_sweep_names_none():
    raw = committed(COPY)
    raw["provenance"]["tuning"] = committed(TUNED, 10)["provenance"]["tuning"]
    assert verified(raw) == ["a sweep in provenance is True, expected False"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"bits": 0.0001, "token": 0.5}, "bits is 0.0001, expected 0.5 or more: each wrong token"),
        ({"gain": 1e9}, "gain is 1e+09, expected -"),
        ({"gain": -1e9}, "gain is -1e+09, expected -"),
        ({"gain_error": 1e9}, "gain_error is 1e+09, expected at most"),
        ({"by_place": [0.0] * 8}, "by_place gives 0 to 0 bits a token of the target, but bits is"),
        ({"by_place": [1e9] * 8}, "1e+09 bits a token, expected at most 1000"),
        ({"by_place": [9.0] * 9}, "by_place has 9 numbers, expected 8"),
        ({"by_place": [0.0] * 8, "tokens": None}, "by_place gives 0 to 0 bits a token"),
        ({"by_place": [], "tokens": None}, "by_place has 0 numbers, expected 8"),
        ({"token": None}, "token=None of"),
        ({"gain": None}, "bits is 1.7365275621414185 and gain None"),
    ],
)
def test_the_bits_of_a_text_agree_with_its_tokens_and_places(change, words):
    raw = committed("text/text/alibi", 0)
    assert verified(raw) == []
    at = next(i for i, score in enumerate(raw["scores"]["last"]) if score["length"] == 256)
    found = verified(raw, **{f"scores.last.{at}.{name}": own for name, own in change.items()})
    assert any(line.startswith(f"scores.last, length 256: {words}") for line in found)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("gain", 0.5, "gain is 0.5, expected 0 to 0"),
        ("by_place.6", 9.0, "by_place gives 9 to 9 bits a token of the target, but bits is"),
    ],
)
def test_at_its_training_length_a_text_gains_nothing_and_its_target_is_the_last_places(
    name, value, words
):
    (line,) = verified(committed("text/text/alibi", 0), **{f"scores.last.0.{name}": value})
    assert line.startswith(f"scores.last, length 128: {words}")


def test_a_protocol_lies_in_its_folder(tmp_path):
    (tmp_path / "easy.toml").write_text('extends = "quick"\n[train]\nsteps = 2\n')
    outside = os.path.relpath(tmp_path / "easy", PROTOCOLS)
    (line,) = verified(committed(COPY), append=f"--protocol {outside}")
    assert line.startswith("provenance.command: unknown protocol '../")


def test_a_pipe_as_a_machine_is_refused_at_once(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "m")
    monkeypatch.chdir(tmp_path)
    task = "turing_machine(file=m)"
    named = {"task": task, "config.task": task, "append": f"--task '{task}'"}
    (line,) = verified(committed(COPY), **named)
    assert "expected a regular file" in line


@pytest.mark.parametrize("setting", ["train.batch", "train.samples"])
def test_what_no_memory_holds_is_not_drawn(setting):
    override = f"{setting}={10**12}"
    name = load_protocol("quick", (override,)).name
    changes = {"protocol": name, "config.protocol": name, "append": f"--set {override}"}
    found = verified(committed(COPY), **changes, **{f"config.{setting}": 10**12})
    assert "are too many to check" in found[-1]


def test_positions_that_take_minutes_to_draw_are_too_many():
    encoding = f"randomized(max_len={2**25}):rope"
    changes = dict.fromkeys(("encoding", "config.label", "config.encoding"), encoding)
    changes["config.encoding_version"] = 2001
    found = verified(committed("quick/copy/rope"), append=f"--pe '{encoding}'", **changes)
    assert "33,554,432 positions are too many to check" in found[-1]


@pytest.mark.slow
def test_a_run_of_a_protocols_file_is_added_checked_and_repeated(tmp_path, monkeypatch):
    """The file uses the name of a packaged protocol, with settings of its own."""
    (tmp_path / "records").mkdir()
    (tmp_path / "mine.toml").write_text(
        'extends = "quick"\nname = "quick"\n[train]\nsteps = 4\nbatch = 2\nlengths = [1, 4]\n'
        "curriculum = []\n[eval]\nlengths = [4, 5]\nsamples = 2\nmin_samples = 1\nevery = 2\n"
    )
    monkeypatch.chdir(tmp_path)
    command = "pezoo bench --pe rope --task copy --seeds 0 --protocol mine.toml"
    run = resolve(load_protocol("mine.toml"), "copy", parse("rope"), 0, "cpu", "auto")
    execute(run, tmp_path / "runs", command, lambda event: None)
    (result,) = tmp_path.glob("runs/*/result.json")
    assert json.loads(result.read_text())["protocol"].startswith("quick+")
    where, given = ("--records", "records"), ("--protocol", "mine.toml")

    def invoke(*words):
        return CliRunner().invoke(cli, [str(word) for word in words])

    refused = invoke("leaderboard", "add", result.parent.name, *where)
    assert "repeat it here, as --protocol mine.toml" in str(refused.exception)
    added = invoke("leaderboard", "add", result.parent.name, *where, *given)
    assert added.exit_code == 0, added.stderr
    checked = invoke("leaderboard", "check", "records", *given)
    assert (checked.exit_code, checked.stderr) == (0, "")
    again = invoke("leaderboard", "rerun", result, *given)
    assert again.exit_code == 0, again.stderr
    assert "the results agree bit for bit" in again.stdout


def test_a_run_that_is_repeated_with_other_results_differs(tmp_path):
    given = Record.of(committed(COPY))
    lines, agrees = compare(given, given)
    assert (agrees, lines[-1]) == (True, "the results agree bit for bit")
    raised = committed(COPY)
    for score in raised["scores"]["last"][1:]:
        score |= {"exact": 1.0, "correct": score["count"], "wrong": []}
    forged = Record.of(raised)
    for other in (forged, Record.of(changed(raised, {"env.cpu": "another"}))):
        lines, agrees = compare(other, given)
        assert not agrees
        assert "scores: differ" in lines
    rounded = Record.of(changed(committed(COPY), {"env.cpu": "another", "learning.0.loss": 1.0}))
    lines, agrees = compare(rounded, given)
    assert agrees
    assert "the results agree" in lines[-1]


@pytest.mark.parametrize(("token", "agrees"), [(0.47, True), (0.3, False)])
def test_a_text_is_repeated_where_its_tokens_are_close(token, agrees):
    given, other = (text_record("rope", 0, {128: 2.5, 256: 3.5}) for _ in range(2))
    for score in other["scores"]["last"]:
        score["token"] = token  # the record's is .5
    other = Record.of(changed(other, {"env.cpu": "another"}))
    assert compare(other, Record.of(given))[1] is agrees


def test_no_sweep_has_a_loss_below_0():
    raw = changed(committed(TUNED, 10), {"provenance.tuning.cells.0.loss": -1e12})
    with pytest.raises(ValueError, match="greater than or equal to 0"):
        Record.of(raw)
