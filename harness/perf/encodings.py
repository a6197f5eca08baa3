"""Encodings side by side: the protocol's model, optimiser and data, one process, in turns."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor

from experiment.config import RunConfig
from harness import tasks
from harness.data.seeds import generator
from harness.data.sequences import lay_out
from harness.model.transformer import Cache
from harness.perf.memory import peak_bytes, state_bytes
from harness.perf.report import Report, machine
from harness.perf.timing import clock, columns, interleave
from harness.runs import heap
from harness.tasks.base import TaskError
from harness.training.trainer import start
from pezoo.base import PositionError

PHASES = ("step", "forward", "backward", "decode")  # encoders do not decode
_WARMUP = 3


class Candidate:
    """One encoding's run at one length; a decoder's with a cache of all of a sequence but its last.

    The model is built for the protocol's training lengths, whatever the length that is measured.
    Errors: PositionError when the encoding cannot represent that length; those of `start`.
    """

    def __init__(self, config: RunConfig, length: int) -> None:
        self.device = config.device
        self.trainer = start(config)
        self.trainer.config = config.replace_train(lengths=(length, length), curriculum=())
        task = self.trainer.task
        draws = generator("perf", task.name, task.version, length)
        sample = task.sample(draws, config.train.batch, length)
        self.batch = lay_out(sample, task, config.track).to(config.device)
        self.length = length
        tokens = self.batch.inputs.shape[1]
        if not self.batch.causal:
            self._feed(None, 0, tokens)
            return
        self.cache = Cache(length=tokens)
        self._feed(self.cache, 0, tokens - 1)
        self.decoded = deepcopy(self.cache)
        self._feed(self.decoded, tokens - 1, tokens)

    def turn(self) -> dict[str, float]:
        """Seconds of each phase, once."""
        trainer, device = self.trainer, self.device
        step, _ = clock(trainer.advance, device)
        trainer.optimiser.zero_grad(set_to_none=True)
        forward, loss = clock(lambda: trainer.loss(*trainer.draw()), device)
        backward, _ = clock(loss.backward, device)
        trainer.optimiser.zero_grad(set_to_none=True)
        taken = {"step": step, "forward": forward, "backward": backward}
        if not self.batch.causal:
            return taken
        cache, tokens = deepcopy(self.cache), self.batch.inputs.shape[1]
        decode, _ = clock(lambda: self._feed(cache, tokens - 1, tokens), device)
        return taken | {"decode": decode}

    def memory(self) -> dict[str, int]:
        """Parameters of the encoding, bytes of a training step and of one sequence's cache."""
        self.trainer.optimiser.zero_grad(set_to_none=True)
        found = {
            "parameters": sum(p.numel() for p in self.trainer.model.encoding.parameters()),
            "peak_bytes": peak_bytes(self.trainer.advance, self.device),
        }
        if not self.batch.causal:
            return found
        kept = state_bytes((self.decoded.layers, self.decoded.memo))
        return found | {"state_bytes": kept // len(self.batch.inputs)}

    @torch.no_grad()
    def _feed(self, cache: Cache | None, first: int, last: int) -> Tensor:
        """Logits after the tokens first..last-1, which the cache takes up."""
        model, batch = self.trainer.model.eval(), self.batch
        return model(
            batch.inputs[:, first:last],
            batch.pos[:, first:last],
            scale=torch.tensor([self.length], device=self.device),
            generator=generator("positions", "perf", first),
            cache=cache,
        )


def measure(configs: Sequence[RunConfig], length: int, rounds: int, baseline: str) -> Report:
    """One row per run; ratios are to the run labelled `baseline`.

    Errors: TaskError when the task has no instance of that length.
    """
    heap.keep()  # as a worker does
    tasks.make(configs[0].task).check_length(length)
    candidates: dict[str, Candidate] = {}
    refused: dict[str, dict[str, str]] = {}
    for config in configs:
        try:
            candidates[config.label] = Candidate(config, length)
        except ValueError as error:
            cannot = "represent" if isinstance(error, PositionError | TaskError) else "train"
            refused[config.label] = {"status": f"cannot {cannot}", "note": str(error)}
    seconds = interleave({k: c.turn for k, c in candidates.items()}, rounds, _WARMUP)
    rows = []
    for config in configs:
        row: dict[str, Any] = {"encoding": config.label, "options": config.encoding}
        if config.label in refused:
            rows.append(row | refused[config.label])
            continue
        row |= {"status": "ok", "note": None}
        for phase, taken in seconds[config.label].items():
            row |= columns(phase, taken, seconds.get(baseline, {}).get(phase))
        rows.append(row | candidates[config.label].memory())
    first = configs[0]
    settings = {
        "protocol": first.protocol,
        "task": first.task,
        "length": length,
        "batch": first.train.batch,
        "rounds": rounds,
        "baseline": baseline,
    }
    phases = PHASES if first.track == "decoder" else PHASES[:-1]
    return Report("encoding", phases, settings | machine(first.device), rows)
