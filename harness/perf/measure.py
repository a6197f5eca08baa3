"""Encodings side by side: the protocol's model, optimiser and data, one process, in turns."""

from collections.abc import Sequence
from copy import deepcopy

import torch
from torch import Tensor

from experiment.config import RunConfig
from harness import tasks
from harness.data.seeds import generator
from harness.data.sequences import to_sequences
from harness.perf.memory import peak_bytes, state_bytes
from harness.perf.report import Report, machine
from harness.perf.timing import clock, columns, interleave
from harness.runs.cost import keep_heap
from harness.tasks.base import TaskError
from harness.training.trainer import start
from pezoo.adapters.layer import Cache
from pezoo.base import PositionError

PHASES = ("step", "forward", "backward", "decode")  # encoders do not decode
WARMUP = 3  # rounds


class Candidate:
    """One encoding's run at one length, with a decoder's cache of all tokens but the last.

    The model is built for the protocol's training lengths, whatever the length that is measured.
    Errors: PositionError when the encoding cannot represent that length; those of `start`.
    """

    def __init__(self, config: RunConfig, length: int) -> None:
        self.config, self.length, self.trainer = config, length, start(config)
        self.trainer.config = config.replace_train(lengths=(length, length), curriculum=())
        task = self.trainer.task
        draws = generator("perf", task.name, task.version, length)
        sample = task.sample(draws, config.train.batch, length)
        self.batch = to_sequences(sample, task, config.track).to(config.device)
        self.last = self.batch.inputs.shape[1] - 1
        if not self.batch.causal:
            self.feed(None, 0)
            return
        self.cache = Cache(length=self.last + 1)
        self.feed(self.cache, 0, self.last)
        self.decoded = deepcopy(self.cache)
        self.feed(self.decoded, self.last)

    def turn(self) -> dict[str, float]:
        """Return the seconds of each phase, once."""
        trainer, device = self.trainer, self.config.device
        step, _ = clock(trainer.advance, device)
        trainer.optimiser.zero_grad(set_to_none=True)
        forward, loss = clock(lambda: trainer.loss(*trainer.draw()), device)
        backward, _ = clock(loss.backward, device)
        trainer.optimiser.zero_grad(set_to_none=True)
        taken = {"step": step, "forward": forward, "backward": backward}
        if self.batch.causal:
            cache = deepcopy(self.cache)
            taken["decode"], _ = clock(lambda: self.feed(cache, self.last), device)
        return taken

    def memory(self) -> dict[str, int]:
        """Return the encoding's parameters, the bytes of a step and of one sequence's cache."""
        self.trainer.optimiser.zero_grad(set_to_none=True)
        found = {
            "parameters": sum(p.numel() for p in self.trainer.model.encoding.parameters()),
            "peak_bytes": peak_bytes(self.trainer.advance, self.config.device),
        }
        if self.batch.causal:
            kept = state_bytes((self.decoded.layers, self.decoded.memo))
            found["state_bytes"] = kept // len(self.batch.inputs)
        return found

    @torch.no_grad()
    def feed(self, cache: Cache | None, first: int, last: int | None = None) -> Tensor:
        """Return the logits after the tokens first..last-1, which are added to the cache."""
        model, batch = self.trainer.model.eval(), self.batch
        return model(
            batch.inputs[:, first:last],
            batch.pos[:, first:last],
            scale=torch.tensor([self.length], device=self.config.device),
            generator=generator("positions", "perf", first),
            cache=cache,
        )


def measure(configs: Sequence[RunConfig], length: int, rounds: int, baseline: str) -> Report:
    """Measure each run; ratios are to the run labelled `baseline`.

    Errors: TaskError when the task has no instance of that length.
    """
    keep_heap()  # as a worker does
    tasks.make(configs[0].task).check_length(length)
    candidates: dict[str, Candidate] = {}
    rows = {}
    for config in configs:
        rows[config.encoding] = row = {"encoding": config.encoding, "spec": config.spec}
        try:
            candidates[config.encoding] = Candidate(config, length)
            row |= {"status": "ok", "note": None}
        except ValueError as error:
            cannot = "represent" if isinstance(error, PositionError | TaskError) else "train"
            row |= {"status": f"cannot {cannot}", "note": str(error)}
    seconds = interleave({k: c.turn for k, c in candidates.items()}, rounds, WARMUP)
    for label, one in candidates.items():
        base = seconds.get(baseline, {})
        for phase, taken in seconds[label].items():
            rows[label] |= columns(phase, taken, base.get(phase))
        rows[label] |= one.memory()
    first = configs[0]
    settings = {
        "protocol": first.protocol,
        "task": first.task,
        "length": length,
        "batch": first.train.batch,
        "rounds": rounds,
        "baseline": baseline,
        **machine(first.device),
    }
    shown = PHASES if first.track != "encoder" else PHASES[:-1]
    return Report("encoding", shown, settings, [*rows.values()])
