"""The scores of a trained run: of its last and best model, in every mode of the encoding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.runs.folder import Curve, RunFolder
from harness.training.evaluate import score_all
from harness.training.trainer import Trainer


def scores_of(
    trainer: Trainer, folder: RunFolder, curve: Curve
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Scores by checkpoint, and by further mode of the encoding and checkpoint."""
    model, task, config = trainer.model, trainer.task, trainer.config

    def everything(answers: bool = False) -> dict[str | None, list[dict[str, Any]]]:
        modes = (None, *model.encoding.modes)
        return {mode: score_all(model, task, config, mode, answers) for mode in modes}

    found = {"last": everything(answers=True)}
    if curve["best_step"] == trainer.step:
        found["best"] = {
            mode: [row | {"wrong": []} for row in rows] for mode, rows in found["last"].items()
        }
    else:
        folder.load_best(trainer, curve)
        found["best"] = everything()
    scores = {checkpoint: rows[None] for checkpoint, rows in found.items()}
    if config.eval.top and curve["full"]:
        scores |= _top(curve["full"], config.eval.top)
    return scores, {
        mode: {checkpoint: rows[mode] for checkpoint, rows in found.items()}
        for mode in model.encoding.modes
    }


def _top(evaluations: list[list[dict[str, Any]]], n: int) -> dict[str, list[dict[str, Any]]]:
    """Both readings of "the average of the top n": n evaluations over all lengths, or n of each.

    The best are those of the highest exact match, in both tracks.
    """
    best = sorted(evaluations, key=_mean_exact)[-n:]
    rows = [
        sorted(same, key=lambda row: row["exact"] or 0.0)[-n:]
        for same in zip(*evaluations, strict=True)
    ]
    return {f"top{n}": _average(best), f"top{n}_each": _average([*zip(*rows, strict=True)])}


def _mean_exact(scores: list[dict[str, Any]]) -> float:
    values = [row["exact"] for row in scores if row["exact"] is not None]
    return sum(values) / len(values) if values else 0.0


def _average(evaluations: Sequence[Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """For each length, the counts summed over several evaluations of one run."""
    rows = []
    for same in zip(*evaluations, strict=True):
        row = dict(same[0])
        if row["status"] == "ok":
            row["correct"] = sum(r["correct"] for r in same)
            row["count"] = sum(r["count"] for r in same)
            row["exact"] = row["correct"] / row["count"]
            row["token"] = sum(r["token"] for r in same) / len(same)
            row["tokens"] = sum(r.get("tokens") or 0 for r in same) or None
        rows.append(row)
    return rows
