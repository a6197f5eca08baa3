"""What a run matrix would cost, from a few measured steps of each kind of run."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

from harness.config import RunConfig
from harness.evaluate import sample_count, score
from harness.train import Trainer, start

_STEPS = 6


def estimate(configs: Sequence[RunConfig], jobs: int) -> list[list[str]]:
    """Rows of encoding, task, runs, seconds for one run; a last row holds the wall time."""
    kinds: dict[tuple[str, str], RunConfig] = {}
    counts: Counter[tuple[str, str]] = Counter()
    for config in configs:
        kinds.setdefault((config.label, config.task), config)
        counts[(config.label, config.task)] += 1
    rows, total = [], 0.0
    for key, config in kinds.items():
        seconds = run_seconds(config)
        total += seconds * counts[key]
        rows.append([*key, str(counts[key]), f"{seconds:.0f} s"])
    rows.append(["all", "", str(len(configs)), f"{total / jobs / 60:.1f} min with {jobs} jobs"])
    return rows


def run_seconds(config: RunConfig) -> float:
    """Steps at the middle of the run, and one scored length scaled by the tokens of all lengths."""
    trainer = start(config)
    trainer.step = config.train.steps // 2
    trainer.advance()
    began = time.perf_counter()
    for _ in range(_STEPS):
        trainer.advance()
    step = (time.perf_counter() - began) / _STEPS
    return step * config.train.steps + _eval_seconds(config, trainer)


def _eval_seconds(config: RunConfig, trainer: Trainer) -> float:
    task = trainer.task
    lengths = [n for n in config.eval.lengths if task.lengths(n, n)]
    if not lengths:
        return 0.0
    probe = min(lengths)
    began = time.perf_counter()
    score(trainer.model, task, config, probe)
    one = time.perf_counter() - began

    def work(length: int) -> float:
        tokens = sum(task.max_tokens(length)) + 1
        return sample_count(task, config, length) * float(tokens) ** 1.5

    return one * sum(map(work, lengths)) / work(probe)
