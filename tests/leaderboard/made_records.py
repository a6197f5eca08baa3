"""Records for the tests, made the way the harness writes them."""

from __future__ import annotations

import copy
import re
import shlex
from hashlib import sha256
from typing import Any

from experiment.config import RunConfig
from harness.settings.catalog import read_catalog
from leaderboard.record.schema import Record
from leaderboard.record.tuning import cells, tuned_name
from leaderboard.render.markdown import files
from pezoo.spec import parse

KNOWN = read_catalog()
GRID = {"lr": [0.001, 0.003], "steps": [1000, 1500]}


def whole_config(changes: dict[str, Any]) -> dict[str, Any]:
    """Every setting of a run; a part of `changes`, as "train", changes what it names."""
    config: dict[str, Any] = {
        "protocol": "quick",
        "task": "copy",
        "task_version": 1,
        "label": "rope",
        "encoding": "rope",
        "encoding_version": 1,
        "seed": 0,
        "device": "cpu",
        "attention": "auto",
        "model": {"layers": 2, "heads": 4, "width": 64},
        "train": {"steps": 1500, "batch": 64, "lengths": [1, 10]},
        "eval": {"lengths": [10], "samples": 100, "every": 750},
    }
    for key, value in changes.items():
        config[key] = config[key] | value if key in ("model", "train", "eval") else value
    return RunConfig.model_validate(config).model_dump(mode="json")


def raw_record(
    encoding: str = "rope", seed: int = 0, right: dict[int, int | str] | None = None, **changes: Any
) -> dict[str, Any]:
    """A valid record as plain data; `right` is correct answers of 100, or a status, per length.

    Keyword changes replace whole top-level fields; `config` is merged, and so are its parts.
    """
    right = {10: 100, 15: 90, 20: 50} if right is None else right
    task, protocol = changes.get("task", "copy"), changes.get("protocol", "quick")
    own = {**changes.pop("config", {})}
    tested = {"lengths": list(right)} | own.pop("eval", {})
    named = {"protocol": protocol, "task": task, "label": encoding, "encoding": encoding}
    config = whole_config(named | {"seed": seed, "eval": tested} | own)
    scores = [_score(length, value) for length, value in right.items()]
    run = RunConfig.model_validate(config).hash
    record: dict[str, Any] = {
        "schema": 1,
        "run": run,
        "status": "done",
        "reason": None,
        "protocol": protocol,
        "task": task,
        "encoding": encoding,
        "seed": seed,
        "config": config,
        "backbone_hash": f"weights{seed}",
        "data_hash": sha256(f"{task} {seed} {config['train']}".encode()).hexdigest()[:16],
        "chance": 0.1,
        "best_step": config["train"]["steps"],
        "scores": {"last": scores, "best": scores},
        "learning": learning(config, run),
        "cost": {
            "parameters": 100_000,
            "encoding_parameters": 0,
            "train_seconds": 30.1,
            "eval_seconds": 5.0,
            "steps_per_second": 50.0 + seed,
            "cpu_seconds": 35.0,
            "peak_memory_mb": 400.0,
            "tokens": 1_000_000,
            "data_share": 0.02,
            "eval_cpu_seconds": 5.0,
            "save_seconds": 0.1,
            "sessions": 1,
        },
        "env": {
            "pezoo": "0.1.0",
            "commit": "abc1234",
            "dirty": False,
            "python": "3.12.1",
            "torch": "2.13.0",
            "device": "cpu",
            "threads": 1,
            "attention": "sdpa",
        },
        "provenance": {
            "command": (
                f"pezoo bench --protocol {protocol.partition('+')[0]} "
                f"--pe {shlex.quote(encoding)} --task {shlex.quote(task)}"
                f"{' --set train.steps=1500' * bool(re.search('[+][0-9a-f]{6}', protocol))}"
            ),
            "finished": "2026-11-22T00:00:00+00:00",
        },
    }
    return record | changes


def learning(config: dict[str, Any], run: str) -> list[dict[str, Any]]:
    """A point wherever the config asks for one; no two runs have the same losses."""
    steps, every = config["train"]["steps"], config["eval"]["every"]
    own = int(run, 16) / 2**68
    before = [{"step": step, "loss": 1.2, "exact": 0.4} for step in range(every, steps, every)]
    return [*before, {"step": steps, "loss": 0.1 + own, "exact": 0.9}]


def _score(length: int, value: int | str) -> dict[str, Any]:
    score: dict[str, Any] = dict.fromkeys(["exact", "correct", "count", "token", "method", "note"])
    score |= {"length": length, "seen": length <= 10, "status": "ok"}
    if isinstance(value, str):
        return score | {"status": value}
    share = value / 100
    numbers = {"exact": share, "correct": value, "count": 100, "token": (1 + share) / 2}
    return score | numbers | {"method": "teacher-forced"}


def text_record(encoding: str, seed: int, bits: dict[int, float | None]) -> dict[str, Any]:
    """A run of protocol text, trained to the first length; its bits are known to .01, and None
    where it cannot represent a length."""
    first, *_ = bits
    scores = [
        {
            "length": length, "seen": length == first, "status": "ok", "exact": 0.0, "correct": 0,
            "count": 32, "token": 0.5, "tokens": 2048, "method": "teacher-forced", "bits": own,
            **({} if length == first else {"gain": bits[first] - own, "gain_error": 0.01}),
        } if own is not None else _score(length, "cannot represent")
        for length, own in bits.items()
    ]  # fmt: skip
    config = {"track": "text", "train": {"lengths": [first, first]}, "eval": {"lengths": [*bits]}}
    right: dict[int, int | str] = dict.fromkeys(bits, 0)
    made = raw_record(encoding, seed, right, protocol="text", task="text", config=config)
    points = [point | {"exact": None} for point in made["learning"]]
    return made | {"scores": {"last": scores, "best": scores}, "learning": points}


def failed_record(encoding: str = "rope", seed: int = 0, reason: str = "loss is not finite") -> Any:
    scores: dict[str, Any] = {"last": [], "best": []}
    return raw_record(encoding, seed, status="failed", reason=reason, scores=scores)


def tuned_record(encoding="rope", seed=0, lr=0.003, steps=1500, right=None, grid=GRID, **changes):
    """A record as `pezoo bench --tune` leaves it, with the cell (lr, steps) as the best one."""
    wanted = {"lr": lr, "steps": steps}
    trials = [
        {
            "values": values,
            "exact": 0.9 if values == wanted else 0.4,
            "validation": 1.0,
            "loss": 0.1,
            "runs": [f"{at:016x}"],
        }
        for at, values in enumerate(cells(grid))
    ]
    tuning = {
        "grid": copy.deepcopy(grid),
        "seeds": [100],
        "chosen": wanted,
        "cells": trials,
        "cpu_seconds": 120.0,
        "seconds": 130.0,
    }
    train = {"lengths": [1, 10], "lr": lr, "steps": steps}
    name = changes.pop("protocol", tuned_name("quick", grid, [100]))
    made = raw_record(encoding, seed, right, protocol=name, config={"train": train}, **changes)
    cost = made["cost"] | {"train_seconds": steps / made["cost"]["steps_per_second"]}
    tried = "".join(f" --tune {key}={','.join(map(str, own))}" for key, own in grid.items())
    came = {"tuning": tuning, "command": made["provenance"]["command"] + tried}
    return made | {"provenance": made["provenance"] | came, "cost": cost}


def markdown(tables, catalog=None):
    """LEADERBOARD.md and the pages of its protocols as one text."""
    return "\n".join(text for name, text in files(tables, catalog).items() if name.endswith(".md"))


def paper_score(length, seen, value, measure="exact"):
    """A score of 64 samples; `value` is a share, or a status."""
    score = {"length": length, "seen": seen, "status": "ok"}
    if isinstance(value, str):
        return score | {"status": value}
    numbers = {"exact": 0.5, "token": 0.9, "count": 64, "method": "teacher-forced", measure: value}
    return score | numbers | {"correct": round(64 * numbers["exact"])}


def paper_run(protocol, task, encoding, last, *, seed=0, config=None, more=None, **changes):
    """A run with the settings of a protocol; `last` are its scores, `more` replaces fields."""
    model, train, test = (part.model_dump(mode="json") for part in protocol.settings(task))
    own = {"track": protocol.track, "model": model, "train": train, "eval": test}
    own |= {"encoding": str(protocol.fill(task, parse(encoding)))} | (config or {})
    made = raw_record(encoding, seed, protocol=protocol.name, task=task, config=own, **changes)
    made |= {"scores": {"last": last, "best": []}, "learning": []} | (more or {})
    return Record.of(made)
