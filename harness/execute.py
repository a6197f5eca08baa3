"""One run from start, or from where it stopped, to its record."""

from __future__ import annotations

import math
import resource
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from harness.config import RunConfig
from harness.environment import environment
from harness.evaluate import score_all, validate
from harness.files import write_json
from harness.runs import RunFolder
from harness.train import Diverged, Trainer, start

Progress = Callable[[dict[str, Any]], None]


def execute(config: RunConfig, root: Path, command: str, report: Progress) -> dict[str, Any]:
    """Train and evaluate one run in its folder, resuming if it can; the record.

    A run that diverges or runs out of memory is a record too, with status "failed" and the reason.
    Errors: filelock.Timeout when another process is at it.
    """
    folder = RunFolder(root, config)
    with folder.lock():
        done = folder.result()
        if done is not None:
            return done
        write_json(folder.path / "config.json", config.model_dump(mode="json"))
        record = _frame(config, command)
        try:
            record |= _train_and_score(config, folder, report, record["env"])
        except (Diverged, torch.OutOfMemoryError, MemoryError) as error:
            record |= {"status": "failed", "reason": f"{type(error).__name__}: {error}"}
        record["provenance"]["finished"] = datetime.now(UTC).isoformat(timespec="seconds")
        folder.finish(record)
        return record


def _frame(config: RunConfig, command: str) -> dict[str, Any]:
    return {
        "schema": 1,
        "run": config.hash,
        "status": "done",
        "reason": None,
        "protocol": config.protocol,
        "task": config.task,
        "encoding": config.label,
        "seed": config.seed,
        "config": config.model_dump(mode="json"),
        "env": environment(config),
        "provenance": {"command": command, "finished": ""},
    }


def _train_and_score(
    config: RunConfig, folder: RunFolder, report: Progress, env: dict[str, Any]
) -> dict[str, Any]:
    trainer = start(config)
    env["attention"] = trainer.model.attention
    env["kernels"] = trainer.model.encoding.kernels()
    backbone_hash = trainer.model.backbone_hash()
    curve = folder.restore(trainer) or _new_curve()
    _train(trainer, folder, curve, report)
    report({"step": trainer.step, "phase": "evaluating"})
    began = time.perf_counter()
    scores = {"last": score_all(trainer.model, trainer.task, config)}
    modes = {"last": _modes(trainer)}
    top = sorted(curve["full"], key=_mean_exact)[-config.eval.top :] if config.eval.top else []
    if top:
        scores[f"top{config.eval.top}"] = _average(top)
    if curve["best_step"] == trainer.step:
        scores["best"], modes["best"] = scores["last"], modes["last"]
    elif folder.load_model("best.safetensors", curve["best_sha256"], trainer):
        scores["best"] = score_all(trainer.model, trainer.task, config)
        modes["best"] = _modes(trainer)
    return {
        "backbone_hash": backbone_hash,
        "chance": trainer.task.chance,
        "best_step": curve["best_step"],
        "scores": scores,
        "modes": {
            mode: {checkpoint: rows[mode] for checkpoint, rows in modes.items()}
            for mode in trainer.model.encoding.modes
        },
        "learning": curve["points"],
        "cost": _cost(trainer, curve["seconds"], curve["cpu"], time.perf_counter() - began),
    }


def _modes(trainer: Trainer) -> dict[str, list[dict[str, Any]]]:
    """The scores of the same weights in every other mode of the encoding: results of their own."""
    model, task, config = trainer.model, trainer.task, trainer.config
    return {mode: score_all(model, task, config, mode) for mode in model.encoding.modes}


def _new_curve() -> dict[str, Any]:
    return {
        "points": [],
        "full": [],
        "best_step": None,
        "best_exact": -1.0,
        "best_sha256": "",
        "seconds": 0.0,
        "cpu": 0.0,
    }


def _train(trainer: Trainer, folder: RunFolder, curve: dict[str, Any], report: Progress) -> None:
    settings = trainer.config
    loss, told = math.nan, 0.0
    wall, cpu = time.perf_counter(), time.process_time()
    while trainer.step < settings.train.steps:
        loss = trainer.advance()
        last = trainer.step == settings.train.steps
        if time.perf_counter() - told > 1:
            told = time.perf_counter()
            points = curve["points"]
            exact = points[-1]["exact"] if points else None
            rate = trainer.step / (curve["seconds"] + told - wall)
            report({"step": trainer.step, "loss": loss, "exact": exact, "rate": rate})
        measure = trainer.step % settings.eval.every == 0 or last
        save = trainer.step % settings.train.checkpoint_every == 0 or last
        if measure or save:
            curve["seconds"] += time.perf_counter() - wall
            curve["cpu"] += time.process_time() - cpu
            if measure:
                _measure(trainer, folder, curve, loss)
            if save:
                folder.save(trainer, curve)
            wall, cpu = time.perf_counter(), time.process_time()


def _measure(trainer: Trainer, folder: RunFolder, curve: dict[str, Any], loss: float) -> None:
    """A point of the learning curve; the best model is chosen on training lengths alone."""
    exact = validate(trainer.model, trainer.task, trainer.config)
    curve["points"].append({"step": trainer.step, "loss": loss, "exact": exact})
    if exact >= curve["best_exact"]:
        curve["best_step"], curve["best_exact"] = trainer.step, exact
        curve["best_sha256"] = folder.save_model("best.safetensors", trainer)
    if trainer.config.eval.top:
        curve["full"].append(score_all(trainer.model, trainer.task, trainer.config))


def _mean_exact(scores: list[dict[str, Any]]) -> float:
    values = [row["exact"] for row in scores if row["exact"] is not None]
    return sum(values) / len(values) if values else 0.0


def _average(evaluations: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Per length, counts summed over several evaluations of one run."""
    rows = []
    for same in zip(*evaluations, strict=True):
        row = dict(same[0])
        if row["status"] == "ok":
            row["correct"] = sum(r["correct"] for r in same)
            row["count"] = sum(r["count"] for r in same)
            row["exact"] = row["correct"] / row["count"]
            row["token"] = sum(r["token"] for r in same) / len(same)
        rows.append(row)
    return rows


def _cost(trainer: Trainer, seconds: float, cpu: float, eval_seconds: float) -> dict[str, Any]:
    model = trainer.model
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "encoding_parameters": sum(p.numel() for p in model.encoding.parameters()),
        "train_seconds": round(seconds, 2),
        "eval_seconds": round(eval_seconds, 2),
        "steps_per_second": round(trainer.step / max(seconds, 1e-9), 2),
        "cpu_seconds": round(cpu, 2),
        "peak_memory_mb": round(peak / (2**20 if sys.platform == "darwin" else 2**10), 1),
    }
