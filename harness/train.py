"""Training one run: the model, its optimiser, the schedule, one step.

All state is the model, the optimiser and the step number: what is drawn at a step depends on the
run's seed and the step alone, and on nothing that happened before.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from harness import tasks
from harness.backbone import Decoder, shape_of
from harness.config import RunConfig, Train
from harness.seeds import generator, seed
from harness.sequences import join
from harness.tasks.base import Task
from pezoo.registry import make


class Diverged(RuntimeError):
    """The loss is no longer a finite number."""


@dataclass
class Trainer:
    """One run in memory; `step` counts the steps taken."""

    config: RunConfig
    task: Task
    model: Decoder
    optimiser: torch.optim.AdamW
    step: int = 0

    def advance(self) -> float:
        """Take one step; the loss. Errors: Diverged."""
        loss = self._loss()
        if not math.isfinite(loss.item()):
            raise Diverged(f"loss is {loss.item()} at step {self.step}")
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.train.clip)
        factor = rate(self.config.train, self.step)
        for group in self.optimiser.param_groups:
            group["lr"] = group["peak"] * factor
        self.optimiser.step()
        self.step += 1
        return loss.item()

    def _loss(self) -> Tensor:
        config, device = self.config, self.config.device
        self.model.train()
        torch.manual_seed(seed("dropout", config.seed, self.step))
        draws = generator("train", config.task, config.task_version, config.seed, self.step)
        length = draw_length(self.task, config.train, self.step, draws)
        batch = join(self.task.sample(draws, config.train.batch, length), self.task.vocab).to(
            device
        )
        logits = self.model(
            batch.ids[:, :-1],
            batch.pos[:, :-1],
            scale=torch.tensor([length], device=device),
            generator=generator("positions", config.seed, self.step),
            progress=self.step / config.train.steps,
        )
        answer = batch.answer[:, 1:]
        loss = cross_entropy(logits[answer], batch.ids[:, 1:][answer])
        penalty = self.model.encoding.penalty()
        return loss if penalty is None else loss + penalty


def start(config: RunConfig) -> Trainer:
    """A new run at step 0. Errors: those of the encoding, the task and the backbone's sizes."""
    task = tasks.make(config.task)
    if len(task.vocab) > config.model.vocab:
        raise ValueError(
            f"task {task.name} has {len(task.vocab)} tokens, model.vocab is {config.model.vocab}"
        )
    top = task.lengths(*config.train.lengths)[-1]
    train_len = sum(task.max_tokens(top)) + 1
    torch.manual_seed(seed("encoding", config.seed))
    encoding = make(config.encoding, shape_of(config.model, train_len))
    model = Decoder(config.model, encoding, config.seed, config.attention).to(config.device)
    return Trainer(config, task, model, optimiser_for(model, config.train))


def optimiser_for(model: Decoder, train: Train) -> torch.optim.AdamW:
    """AdamW over the trainer's group and the groups that the encoding declares."""
    groups, taken = [], set()
    for group in model.encoding.param_groups():
        taken.update(map(id, group.params))
        own = {"lr": group.lr, "betas": group.betas, "weight_decay": group.weight_decay}
        groups.append({"params": group.params} | {k: v for k, v in own.items() if v is not None})
    rest = [p for p in model.parameters() if id(p) not in taken]
    optimiser = torch.optim.AdamW(
        [{"params": rest}, *groups],
        lr=train.lr,
        betas=train.betas,
        weight_decay=train.weight_decay,
    )
    for group in optimiser.param_groups:
        group["peak"] = group["lr"]
    return optimiser


def rate(train: Train, step: int) -> float:
    """The share of the peak learning rate at a step: linear warm-up, then the schedule."""
    warm = min(1.0, (step + 1) / train.warmup) if train.warmup else 1.0
    if train.schedule == "constant":
        return warm
    progress = (step + 1) / train.steps
    return warm * (train.floor + (1 - train.floor) * 0.5 * (1 + math.cos(math.pi * progress)))


def draw_length(task: Task, train: Train, step: int, draws: torch.Generator) -> int:
    """One length for the batch, uniform over those that the task has and the curriculum allows."""
    low, high = train.lengths
    progress = step / train.steps
    stage = next((s for s in train.curriculum if progress < s.until), None)
    lengths = task.lengths(low, min(high, stage.max) if stage else high)
    lengths = lengths or task.lengths(low, high)[:1]
    return lengths[int(torch.randint(len(lengths), (1,), generator=draws))]
