"""Train one run: make the task and the model, take one step.

All state is the model, the optimiser and the step number: what is drawn at a step depends only on
the run's seed and the step.
"""

import math
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from experiment.config import RunConfig
from harness import tasks
from harness.data.batches import training_batch
from harness.data.drawn import DROPOUT, dropout_masks
from harness.data.seeds import generator, seed
from harness.data.sequences import Sequences
from harness.model.transformer import Transformer, shape_of
from harness.tasks.base import Task, TaskError
from harness.training.optimiser import optimiser_for, rate
from pezoo.base import Context, PositionError
from pezoo.functional import at_least_float32
from pezoo.registry import make

Weights = Mapping[str, Tensor]  # by name
IGNORED = -100  # a label that adds nothing to the loss


class Diverged(RuntimeError):
    """The loss is no longer a finite number."""


class Losses:
    """The losses since the last reading, which stay on the device until they are read.

    >>> losses = Losses()
    >>> losses.note(0, torch.tensor(2.0))
    >>> losses.read()
    2.0
    """

    def __init__(self) -> None:
        self._noted: list[tuple[int, Tensor]] = []

    def note(self, step: int, loss: Tensor) -> None:
        """Keep the loss () of a step. Does not synchronise with the device."""
        self._noted.append((step, loss.detach()))

    def read(self) -> float:
        """Return the last loss, NaN before the first step. Synchronises with the device.

        Errors: Diverged if a loss was not finite.
        """
        values = torch.stack([loss for _, loss in self._noted]).tolist() if self._noted else []
        for (step, _), loss in zip(self._noted, values, strict=True):
            if not math.isfinite(loss):
                raise Diverged(f"loss is {loss} at step {step}")
        del self._noted[:-1]
        return values[-1] if values else math.nan


@dataclass
class Trainer:
    """One run in memory; `step` counts the steps taken."""

    config: RunConfig
    task: Task
    model: Transformer
    optimiser: torch.optim.AdamW
    step: int = 0
    ending: int = 0  # the step from which the rate decays, as `Train.ending` returns it
    early: bool = False  # draw the next batch while a GPU is busy with this step
    ready: tuple[tuple[RunConfig, int], tuple[Sequences, int]] | None = None  # the early batch
    losses: Losses = field(default_factory=Losses)
    spread: dict[str, int] = field(default_factory=dict)  # of a step's sums, for the record
    tokens: int = 0  # of the batches used, without padding
    data_seconds: float = 0.0  # spent on drawing batches

    @property
    def last(self) -> int:
        """Return the step after which training ends."""
        return self.config.train.last_step(self.ending)

    def advance(self) -> Tensor:
        """Take one step. Returns its loss without synchronising."""
        loss = self.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.train.clip)
        factor = rate(self.config.train, self.step, self.ending)
        for group in self.optimiser.param_groups:
            group["lr"] = group["peak"] * factor
        self.optimiser.step()
        self.step += 1
        if self.early and self.step < self.last:
            with suppress(PositionError):  # the next step raises it
                self.ready = (self.config, self.step), self.load_batch()
        return loss

    def backward(self) -> Tensor:
        """Compute the gradients of this step's loss, and return the loss."""
        loss = self.loss(*self.draw())
        self.losses.note(self.step, loss)
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        return loss.detach()

    def draw(self) -> tuple[Sequences, int]:
        """Return the batch of this step on the run's device, and its length."""
        now, ready, self.ready = (self.config, self.step), self.ready, None
        batch, length = ready[1] if ready and ready[0] == now else self.load_batch()
        self.tokens += batch.tokens
        return batch, length

    def load_batch(self) -> tuple[Sequences, int]:
        """Draw the batch of this step, and move it to the device."""
        batch, length = self.make_batch()
        return batch.to(self.config.device), length

    def make_batch(self) -> tuple[Sequences, int]:
        """Draw the batch of this step on the CPU. Errors: PositionError."""
        began, config = time.perf_counter(), self.config
        batch, length = training_batch(self.task, config, self.step)
        pad, stable = self.task.vocab.pad, self.model.encoding.prefix_stable
        # Counted before the alignment: the same for all encodings.
        batch = replace(batch, tokens=int((batch.inputs != pad).sum()))
        if batch.causal and stable and config.train.context is None:
            batch = batch.left_aligned(pad)
        batch = self.with_drawn(batch)
        self.data_seconds += time.perf_counter() - began
        return batch, length

    def with_drawn(self, batch: Sequences) -> Sequences:
        """Add the random numbers of this step: those of the encoding and of dropout."""
        config, encoding = self.config, self.model.encoding
        self.model.train()
        ids = batch.inputs
        fields: dict[str, Any] = self.model.task_fields(ids)
        drawn = encoding.draw(
            Context(pos=batch.pos, ids=ids, **fields),
            generator=generator("positions", config.seed, self.step),
            progress=self.step / max(config.train.steps, 1),
        )
        if p := config.model.dropout:
            cuda = config.device.startswith("cuda")  # elsewhere the CPU draws
            drops = torch.Generator(config.device if cuda else "cpu")
            drawn[DROPOUT] = dropout_masks(
                (*ids.shape, config.model.width),
                config.model.layers,
                batch.last,
                p,
                drops.manual_seed(seed("dropout", config.seed, self.step)),
            )
        return replace(batch, drawn=drawn)

    def loss(self, batch: Sequences, length: int) -> Tensor:
        """Return the mean cross entropy of the answers' tokens, plus the encoding's penalty.

        The mean over no tokens is 0.
        """
        config, device = self.config, batch.inputs.device
        self.model.train()
        last = batch.last
        with torch.autocast(device.type, torch.bfloat16, config.train.precision == "bf16"):
            logits = self.model(
                batch.inputs,
                batch.pos,
                scale=torch.full((1,), length, device=device),
                last=last,
                drawn=batch.drawn,
            )
        # Labels are masked: selecting tokens would synchronise with the device.
        truth = batch.labels[:, -last:].masked_fill(~batch.answer[:, -last:], IGNORED)
        total = cross_entropy(
            at_least_float32(logits).flatten(0, 1),
            truth.flatten(),
            ignore_index=IGNORED,
            reduction="sum",
        )
        loss = total / (truth != IGNORED).sum().clamp(min=1)
        penalty = self.model.encoding.penalty()
        return loss if penalty is None else loss + penalty


def start(config: RunConfig) -> Trainer:
    """Return a new run at step 0, with weights of its own. Errors: those of `build`."""
    task, model = build(config)
    optimiser = optimiser_for(model, config.train)
    early, ending = config.device.startswith("cuda"), config.train.ending()
    return Trainer(config, task, model, optimiser, early=early, ending=ending)


def build(config: RunConfig) -> tuple[Task, Transformer]:
    """Return the task and a new model. Errors: those of the encoding, the task and the sizes."""
    task = tasks.make(config.task)
    if task.version != config.task_version:
        raise ValueError(
            f"{config.task} has changed since this run: the task is at version {task.version}, the "
            f"run was made with version {config.task_version}"
        )
    if len(task.vocab) > config.model.vocab:
        raise ValueError(
            f"task {task.name} has {len(task.vocab)} tokens, model.vocab is {config.model.vocab}: "
            f"add --set model.vocab={len(task.vocab)}, or choose a protocol for this task"
        )
    first, context = config.first.train, config.train.context  # the encoding serves that model
    asks, answers = task.max_tokens(task.lengths(*first.lengths)[-1])
    if context and config.train.batch * context < asks:
        raise ValueError(
            f"train.context {context} times train.batch {config.train.batch} is too small: a batch "
            f"must hold a prompt of {config.task}, which has up to {asks} tokens, and what it asks"
        )
    train_len = first.context or asks + answers + 1
    torch.manual_seed(seed("encoding", config.seed))
    encoding = make(config.spec, shape_of(config.model, train_len))
    if context and encoding.needs_scale:
        raise ValueError(f"{config.spec} reads the length of a sample; packed rows hold many")
    if config.track == "text" and not (encoding.prefix_stable or encoding.reads_length):
        raise ValueError(
            f"{config.spec} lets later tokens change earlier values, so that a text that is given "
            "cannot be scored: take an encoding with prefix_stable = True"
        )
    prf, told = task.prf, task.fields
    if config.track == "encoder":
        prf, told = _of_decoders, lambda ids: {"coords": task.coords(ids)}
    if encoding.needs_slots and told(torch.zeros(1, 1, dtype=torch.int64)).get("slots") is None:
        raise TaskError(
            f"{config.spec} needs slots, which {config.task} lacks under track {config.track}: "
            "take a task that defines Task.slots, such as addition_coupled"
        )
    model = Transformer(
        config.model, encoding, config.seed, config.attention, config.device, config.track,
        prf, told,
    )  # fmt: skip
    return task, model


def lacking(own: Weights, other: Weights) -> list[str]:
    """Return the names, sorted, of tensors that `other` lacks or has in another shape."""
    return sorted(n for n, x in own.items() if n not in other or other[n].shape != x.shape)


def _of_decoders(i: Tensor, j: Tensor, n: Tensor | None) -> Tensor:
    raise TaskError(
        "a task's positional relation function is that of a decoder's tokens, and this protocol "
        "trains encoders"
    )
