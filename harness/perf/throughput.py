"""How fast the harness trains: whole steps of its own trainer, encodings in turns, one process."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

from experiment.config import RunConfig
from harness.perf.reference import Reference
from harness.perf.report import Report, machine
from harness.perf.timing import clock, columns, interleave, ratio
from harness.runs import heap
from harness.training.trainer import start

_WARMUP = 2
_NEW_LENGTHS = 3


class Candidate:
    """A run whose batches all have one length at a time."""

    def __init__(self, config: RunConfig, length: int) -> None:
        self.config, self.trainer = config, start(config)
        self.turn_to(length)

    def turn_to(self, length: int) -> None:
        """From here on batches have that length."""
        self.trainer.config = self.config.replace_train(lengths=(length, length), curriculum=())

    def turn(self) -> dict[str, float]:
        """Seconds of one step, on the clock and of all threads of the processor; of one batch."""
        before = time.process_time()
        wall, _ = clock(self.trainer.advance, self.config.device)
        cpu = time.process_time() - before
        return {"step": wall, "cpu": cpu, "data": clock(self.trainer.make_batch, "cpu")[0]}

    def first_steps(self, lengths: Sequence[int]) -> float:
        """CPU seconds that the first step at a new length takes more than the next; the median."""
        more = []
        for length in lengths:
            self.turn_to(length)
            first, second = self.turn(), self.turn()
            more.append(first["cpu"] - second["cpu"])
        return statistics.median(more)


def measure(
    configs: Sequence[RunConfig], length: int, rounds: int, baseline: str, known: Reference
) -> Report:
    """One row per run; ratios are to the run labelled `baseline`, and to what is `known`.

    Errors: PositionError for an encoding that cannot represent that length, TaskError when the
    task has no instance of it.
    """
    heap.keep()  # as a worker does
    candidates = {config.label: Candidate(config, length) for config in configs}
    seconds = interleave({k: c.turn for k, c in candidates.items()}, rounds, _WARMUP)
    rows = []
    shorter = [n for n in range(length - _NEW_LENGTHS, length) if n > 0] or [length]
    for label, candidate in candidates.items():
        taken, theirs = seconds[label], known.of(candidate.config, length)
        cpu = statistics.median(taken["cpu"])
        row: dict[str, Any] = {"encoding": label, "options": candidate.config.encoding}
        row |= {"status": "ok", "note": None}
        row |= columns("step", taken["step"], seconds[baseline]["step"])
        row["models_x_steps_per_s"] = 1 / statistics.median(taken["step"])
        row |= {"cpu_s": cpu, "cpu_s_least": min(taken["cpu"])}
        row["data_share"] = ratio(taken["data"], taken["step"])
        row["cpu_s_new_length"] = candidate.first_steps(shorter)
        row["reference_cpu_s"] = theirs
        row["times_cheaper"] = None if theirs is None else theirs / cpu
        rows.append(row)
    return Report("encoding", ("step",), _settings(configs[0], length, rounds, baseline), rows)


def _settings(config: RunConfig, length: int, rounds: int, baseline: str) -> dict[str, Any]:
    model, sizes = config.model, ("layers", "heads", "width")
    return {
        "protocol": config.protocol,
        "task": config.task,
        "length": length,
        "batch": config.train.batch,
        **{name: getattr(model, name) for name in sizes},
        "rounds": rounds,
        "baseline": baseline,
        **machine(config.device),
    }
