"""Encodings side by side: the protocol's model, optimiser and data, one process, in turns."""

import statistics
import time
import tomllib
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from experiment.config import RunConfig
from harness import tasks
from harness.data.seeds import generator
from harness.data.sequences import to_sequences
from harness.model.transformer import Cache
from harness.perf.memory import peak_bytes, state_bytes
from harness.perf.report import Report, machine
from harness.perf.timing import clock, columns, interleave, ratio
from harness.runs.cost import keep_heap
from harness.tasks.base import TaskError
from harness.training.trainer import start
from pezoo.base import PositionError

PHASES = ("step", "forward", "backward", "decode")  # encoders do not decode
WARMUP = 3  # rounds
NEW_LENGTHS = 3


@dataclass(frozen=True)
class Reference:
    """Another implementation: CPU seconds of a training step by encoding, at one size."""

    source: str
    task: str
    length: int
    batch: int
    model: dict[str, int]
    cpu_seconds: dict[str, float]

    @property
    def settings(self) -> tuple[str, ...]:
        """Its sizes as `--set` takes them."""
        model = [f"model.{name}={value}" for name, value in self.model.items()]
        return (*model, f"train.batch={self.batch}", f"train.lengths=[1, {self.length}]")

    def of(self, config: RunConfig, length: int) -> float | None:
        """Return its CPU seconds for such a run; None if that was not measured."""
        same = (config.task, length, config.train.batch) == (self.task, self.length, self.batch)
        same = same and self.model.items() <= config.model.model_dump().items()
        return self.cpu_seconds.get(config.encoding) if same and config.device == "cpu" else None


def reference() -> Reference:
    """Read `reference.toml`."""
    path = Path(__file__).parent / "reference.toml"
    return Reference(**tomllib.loads(path.read_text(encoding="utf-8")))


class Candidate:
    """One encoding's run at one length, with a decoder's cache of all tokens but the last.

    The model is built for the protocol's training lengths, whatever the length that is measured.
    Errors: PositionError when the encoding cannot represent that length; those of `start`.
    """

    def __init__(self, config: RunConfig, length: int) -> None:
        self.config, self.length, self.trainer = config, length, start(config)
        self.turn_to(length)
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

    def turn_to(self, length: int) -> None:
        """Draw batches of one length from here on."""
        self.trainer.config = self.config.replace_train(lengths=(length, length), curriculum=())

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

    def step(self) -> dict[str, float]:
        """Return the seconds of one step, by the clock and of all CPU threads; of one batch."""
        before = time.process_time()
        wall, _ = clock(self.trainer.advance, self.config.device)
        cpu = time.process_time() - before
        return {"step": wall, "cpu": cpu, "data": clock(self.trainer.make_batch, "cpu")[0]}

    def first_steps(self) -> float:
        """Return the extra CPU seconds of the first step at a new length, as a median."""
        more = []
        for length in range(max(1, self.length - NEW_LENGTHS), max(2, self.length)):
            self.turn_to(length)
            first, second = self.step(), self.step()
            more.append(first["cpu"] - second["cpu"])
        return statistics.median(more)

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


def measure(
    configs: Sequence[RunConfig],
    length: int,
    rounds: int,
    baseline: str,
    known: Reference | None = None,
) -> Report:
    """Measure each run; ratios are to the run labelled `baseline`.

    With `known`, time whole steps alone and compare them with that implementation.
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
    turns = {k: c.step if known else c.turn for k, c in candidates.items()}
    seconds = interleave(turns, rounds, WARMUP)
    for label, one in candidates.items():
        taken, base = seconds[label], seconds.get(baseline, {})
        phases = ("step",) if known else taken
        for phase in phases:
            rows[label] |= columns(phase, taken[phase], base.get(phase))
        rows[label] |= _steps(one, taken, known) if known else one.memory()
    first = configs[0]
    sizes = {name: getattr(first.model, name) for name in ("layers", "heads", "width")}
    settings = {
        "protocol": first.protocol,
        "task": first.task,
        "length": length,
        "batch": first.train.batch,
        **(sizes if known else {}),
        "rounds": rounds,
        "baseline": baseline,
        **machine(first.device),
        **({"reference": known.source} if known else {}),
    }
    shown = ("step",) if known else PHASES if first.track == "decoder" else PHASES[:-1]
    return Report("encoding", shown, settings, [*rows.values()])


def _steps(one: Candidate, taken: dict[str, list[float]], known: Reference) -> dict[str, Any]:
    cpu, theirs = statistics.median(taken["cpu"]), known.of(one.config, one.length)
    return {
        "models_x_steps_per_s": 1 / statistics.median(taken["step"]),
        "cpu_s": cpu,
        "cpu_s_least": min(taken["cpu"]),
        "data_share": ratio(taken["data"], taken["step"]),
        "cpu_s_new_length": one.first_steps(),
        "reference_cpu_s": theirs,
        "times_cheaper": None if theirs is None else theirs / cpu,
    }
