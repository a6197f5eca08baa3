"""The sweep: its grid, its seeds, what is chosen, and what the records then say."""

import json

import pytest
import torch

from harness import tasks
from harness.cli.tables import print_choices
from harness.cli.verify import refusals
from harness.runs.record import new_record
from harness.runs.run import execute
from harness.settings import sweep as tune
from harness.settings.protocol import load_protocol, parse_request
from harness.tasks.base import TaskError
from harness.tasks.corpus import places, read_corpus
from harness.training.evaluate import examples
from leaderboard.record.read import Record
from leaderboard.record.tuning import cells

QUICK = load_protocol("quick")
TINY = [
    *("--set", "train.batch=4"),
    *("--set", "eval.samples=4"),
    *("--set", "eval.min_samples=4"),
    *("--set", "eval.validation_samples=1"),
    *("--set", "eval.lengths=[10,20]"),
]


def made(*options, seeds="100", compared=(0, 1, 2)):
    return tune.parse_sweep(options, seeds, QUICK, compared)


@pytest.mark.parametrize(
    ("options", "seeds", "words"),
    [
        (["lrr=1e-3"], "100", "did you mean lr"),
        (["model.width=64"], "100", "unknown setting to tune 'model.width'"),
        (["curriculum=1,2"], "100", "unknown setting"),
        (["draw=lengths,instances"], "100", "unknown setting"),
        (["lr"], "100", "lr=1e-3,3e-3"),
        (["lr=fast,1e-3"], "100", "lr: expected a number, was .fast"),
        (["lr=inf"], "100", "finite"),
        (["lr=-1"], "100", "greater than 0"),
        (["steps=1.5"], "100", "steps: expected a whole number, was .1.5"),
        (["schedule=cosin"], "100", "'linear' or 'constant'"),
        (["lr=1e-3,0.001"], "100", "value 0.001 twice"),
        (["lr=" + ",".join("1" * 20)] * 4, "100", "160,000 runs of each encoding"),
        (["lr=1,2,3"], "0-999", "3,000 runs of each encoding"),
        (["lr=1e-3", "train.lr=2e-3"], "100", "--tune lr is given twice"),
        (["lr=1e-3,3e-3"], "2-4", "share 2"),
        (["lr=1e-3,3e-3"], "x", "cannot read seeds"),
    ],
)
def test_a_wrong_grid_says_what_is_wrong(options, seeds, words):
    with pytest.raises(ValueError, match=words):
        made(*options, seeds=seeds)


def test_a_grid_is_the_same_however_it_is_typed():
    grid = {"lr": [0.001, 0.003], "steps": [10, 20]}
    assert made("steps=20,10", "train.lr=3e-3, 1e-3").grid == grid
    assert made("lr=1e-3,3e-3", "steps=10,20") == made("steps=20,10", "lr=0.003,0.001")
    assert isinstance(made("steps=10").grid["steps"][0], int)


def sweep_of(encodings="rope,alibi"):
    request = parse_request(encodings, "copy,reverse", "quick", "0-1", ())
    grid = made("lr=1e-3,3e-3", "steps=10,20", seeds="100-101", compared=request.seeds)
    plain = request.configs("cpu", "auto")
    return plain, grid, tune.sweep_configs(grid, plain)


def test_every_encoding_and_task_gets_every_cell_on_seeds_and_examples_of_its_own():
    plain, grid, runs = sweep_of()
    found = {}
    for run in runs:
        values = {"lr": run.train.lr, "steps": run.train.steps}
        found.setdefault((run.encoding, run.task, run.seed), []).append(values)
    assert set(found) == {
        (e, t, s) for e in ("rope", "alibi") for t in ("copy", "reverse") for s in (100, 101)
    }
    assert all(tried == cells(grid.grid) for tried in found.values())
    assert {run.eval.examples for run in runs} == {"tuning"}
    assert {run.protocol for run in runs} == {"quick+tuning"}
    assert not {run.hash for run in runs} & {run.hash for run in plain}
    assert all("examples" not in run.model_dump()["eval"] for run in plain)


def outcome(config, exact, validation=0.5, loss=1.0, status="done", token=0.5, bits=None):
    """A record as far as choosing reads it."""
    ok = {"status": "ok", "count": 10**6, "token": token, "method": "teacher-forced"}
    ok |= {"length": 10, "seen": config.train.lengths[1] >= 10}
    ok |= {"correct": round(exact * 10**6), "exact": exact, "bits": bits}
    cannot = {"length": 20, "seen": config.train.lengths[1] >= 20, "status": "cannot represent"}
    done = {
        "scores": {"last": [ok, cannot]},
        "learning": [{"step": 1, "exact": validation, "loss": loss}],
    }
    costs = {"cost": {"cpu_seconds": 2.0, "train_seconds": 3.0, "eval_seconds": 1.0}}
    ended = done if status == "done" else {"status": "failed", "reason": "diverged"}
    return Record.of(new_record(config, "pezoo bench") | costs | ended)


def chosen(score, encodings="rope"):
    """encoding, task -> the values chosen where `score(config)` is a run's outcome."""
    _, grid, runs = sweep_of(encodings)
    found = tune.choose(grid, runs, [outcome(run, **score(run)) for run in runs])
    return {(c.encoding, c.task): c.tuning and c.tuning["chosen"] for c in found}


def test_the_best_mean_over_tuning_seeds_is_chosen_for_each_encoding_and_task():
    def score(run):
        good = run.train.lr == (0.001 if run.task == "copy" else 0.003)
        lucky = run.seed == 100 and run.train.steps == 10  # one seed alone does not decide
        return {"exact": (0.6 if good and run.train.steps == 20 else 0.2) + 0.3 * lucky}

    assert chosen(score) == {
        ("rope", "copy"): {"lr": 0.001, "steps": 20},
        ("rope", "reverse"): {"lr": 0.003, "steps": 20},
    }


@pytest.mark.parametrize(
    ("score", "values"),
    [
        (lambda run: {"exact": 0.5, "validation": run.train.lr}, {"lr": 0.003, "steps": 10}),
        (lambda run: {"exact": 0.5, "loss": 1 / run.train.steps}, {"lr": 0.001, "steps": 20}),
        (lambda run: {"exact": 0.5}, {"lr": 0.001, "steps": 10}),
        (
            lambda run: {
                "exact": run.train.lr,
                "status": "failed" if run.train.lr == 0.003 and run.seed == 101 else "done",
            },
            {"lr": 0.001, "steps": 10},
        ),
        (lambda run: {"exact": 0.5, "status": "failed"}, None),
    ],
    ids=["validation", "loss", "fewest steps, then the grid", "a failed cell", "all failed"],
)
def test_ties_and_failures(score, values):
    assert set(map(str, chosen(score).values())) == {str(values)}


def test_encoders_are_chosen_by_what_their_tables_compare_token_accuracy(capsys):
    request = parse_request("rope", "copy", "ruoss2023-mini", "0", ())
    sweep = tune.parse_sweep(["lr=1e-4,3e-4"], "100", request.protocol, [0])
    records = []
    for run in tune.sweep_configs(sweep, request.configs("cpu", "auto")):
        slow = run.train.lr == 1e-4
        records.append(outcome(run, 0.1 if slow else 0.2, token=0.8 if slow else 0.7))
    runs = tune.sweep_configs(sweep, request.configs("cpu", "auto"))
    (choice,) = tune.choose(sweep, runs, records)
    assert choice.tuning["chosen"] == {"lr": 1e-4}
    assert [cell["token"] for cell in choice.tuning["cells"]] == [0.8, 0.7]
    print_choices([choice], aside=False)
    out = capsys.readouterr().out
    assert "mean token accuracy" in out
    assert "80.0" in out


def test_text_is_tuned_by_bits_on_files_for_validation(capsys):
    request = parse_request("rope", "text", "text", "0", ())
    sweep = tune.parse_sweep(["lr=1e-3,2e-3"], "100", request.protocol, [0])
    runs = tune.sweep_configs(sweep, request.configs("cpu", "auto"))
    records = [outcome(run, 0, bits=2.5 if run.train.lr == 1e-3 else 1.5) for run in runs]
    (choice,) = tune.choose(sweep, runs, records)
    assert choice.tuning["chosen"] == {"lr": 2e-3}
    print_choices([choice], aside=False)
    out = capsys.readouterr().out
    assert "mean bits per byte" in out
    assert "1.500" in out
    task = tasks.make("text")
    tested = [task.test_set(name, None, 16, 128).target for name in ("validation", "test")]
    for run, targets in zip((runs[0], *request.configs("cpu", "auto")), tested, strict=True):
        assert torch.equal(examples(task, run, 128).target, targets)
    assert not torch.equal(*tested)


def test_a_folder_without_a_file_to_choose_on_is_refused_before_training(tmp_path):
    for name in "ab":
        (tmp_path / name).write_bytes(f"{name} text ".encode() * 2000)
    request = parse_request("rope", f"text(path={tmp_path})", "text", "0", ())
    sweep = tune.parse_sweep(["lr=1e-3,2e-3"], "100", request.protocol, [0])
    plain = request.configs("cpu", "auto")
    with pytest.raises(TaskError, match="no text for validation: it takes 3 or more files"):
        tune.sweep_configs(sweep, plain)
    (tmp_path / "c").write_bytes(b"c text " * 2000)
    read_corpus.cache_clear(), places.cache_clear()
    request = parse_request("rope", f"text(path={tmp_path})", "text", "0", ())
    assert len(tune.sweep_configs(sweep, request.configs("cpu", "auto"))) == 2


def test_nothing_is_chosen_while_a_run_is_missing():
    _, grid, runs = sweep_of("rope")
    records = [outcome(run, 0.5) for run in runs if run.task == "copy"][1:]
    records += [outcome(run, 0.5) for run in runs if run.task == "reverse"]
    assert {c.task: c.tuning is not None for c in tune.choose(grid, runs, records)} == {
        "copy": False,
        "reverse": True,
    }


def here(configs, root, command, on_event):
    """The engine's work in this process: which process does it is not what is tested."""
    for index, config in enumerate(configs):
        on_event(index, {"record": execute(config, root, command, lambda event: None)})


def test_bench_tunes_resumes_and_records_what_it_chose(call, monkeypatch, tmp_path):
    monkeypatch.setattr("harness.engine.local.Engine.run_all", staticmethod(here))
    args = ["bench", "--pe", "nope,learned", "--task", "copy", "--seeds", "0", *TINY]
    args += ["--tune", "lr=1e-3,3e-3", "--set", "train.steps=2", "--runs", tmp_path]
    code, out, err = call(*args, "--format", "json")
    assert code == 0, err
    records = [Record.of(one) for one in json.loads(out)]
    assert [(r.encoding, r.seed) for r in records] == [("nope", 0), ("learned", 0)]
    assert len({r.shared_hash for r in records}) == 1
    for record in records:
        tuning, train = record.provenance.tuning, record.config.train.model_dump()
        assert [*refusals(record)] == []
        assert train["lr"] == tuning.chosen["lr"]
        assert len({run for cell in tuning.cells for run in cell.runs}) == 2
        assert tuning.cpu_seconds > 0
    assert "tuning: mean exact match" in err
    code, again, err = call(*args, "--format", "json")
    assert (code, json.loads(again)) == (0, json.loads(out))
    assert "4 runs are finished already" in err


def test_an_encoding_whose_every_cell_fails_is_left_out_and_the_others_go_on(
    call, monkeypatch, tmp_path
):
    def fails(configs, root, command, on_event):
        for index, config in enumerate(configs):
            status = "failed" if config.encoding == "nope" else "done"
            record = outcome(config, 0.5, status=status)
            if config.eval.examples == "tuning":
                on_event(index, {"record": record})
            else:
                compared.append(config.encoding)

    compared = []
    monkeypatch.setattr("harness.engine.local.Engine.run_all", lambda self, *args: fails(*args))
    args = ["bench", "--pe", "nope,rope", "--task", "copy", "--seeds", "0", *TINY]
    code, out, _ = call(*args, "--tune", "lr=1e-3,3e-3", "--runs", tmp_path)
    assert code == 1
    assert "nothing: every config failed" in " ".join(out.split())
    assert compared == ["rope"]


def test_tuning_seeds_need_a_grid_and_stay_apart(call, tmp_path):
    args = ["bench", "--pe", "nope", "--task", "copy", "--runs", tmp_path, "--tune-seeds"]
    for more, words in ((["7"], "needs --tune"), (["0", "--tune", "lr=1e-3"], "share 0")):
        code, _, err = call(*args, *more)
        assert code == 2
        assert words in err
