"""Several runs that differ in seed and learning rate, trained as one model.

Weights, batches and moments of the members are stacked, torch.func.vmap runs the model over the
stack, and one optimiser takes the step of all. What is drawn at random is drawn for each member as
if it were alone, so each member trains as it would alone, up to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.nn.functional import cross_entropy

from harness.data.drawn import stacked
from harness.data.sequences import Sequences
from harness.training.losses import Diverged, Losses
from harness.training.optimiser import set_rate
from harness.training.trainer import Trainer
from pezoo.functional import at_least_float32


@dataclass(frozen=True)
class _Part:
    """The members first..stop of a stacked parameter, as AdamW sees them: one learning rate."""

    name: str
    first: int
    stop: int
    leaf: Tensor


class Stack:
    """Trainers of one family at the same step, in the order of their learning rates.

    Their weights and moments are copied; `write_back` hands them over.
    Errors: ValueError for trainers that cannot be stacked.
    """

    def __init__(self, trainers: Sequence[Trainer]) -> None:
        if len({(trainer.config.family, trainer.step) for trainer in trainers}) > 1:
            raise ValueError("members of a stack differ in more than seed and learning rate")
        if trainers[0].config.train.compile:
            raise ValueError("a stack is not compiled")
        if not trainers[0].model.encoding.prefix_stable:
            raise ValueError("an encoding that looks ahead cannot be padded to a common length")
        self.trainers = sorted(trainers, key=lambda trainer: trainer.config.train.lr)
        self.modules = [_Logits(trainer.model).train() for trainer in self.trainers]
        self.parameters, self.buffers = stack_module_state(self.modules)  # type: ignore[arg-type]
        self.noted = Losses()
        self.parts: list[_Part] = []
        self.optimiser = self._optimiser()

    @property
    def step(self) -> int:
        """How many steps the members have taken."""
        return self.trainers[0].step

    def advance(self) -> Tensor:
        """Take one step; the losses (M,) of `trainers`, which nobody has looked at: `read` does.

        A member whose loss is not finite is of no further use, and does nothing to the others.
        """
        losses = self.losses()
        self.noted.note(self.step, losses)
        for parameter in self.parameters.values():
            parameter.grad = None
        losses.sum().backward()
        train = self.trainers[0].config.train
        self._clip(train.clip)
        for part in self.parts:
            grad = self.parameters[part.name].grad
            part.leaf.grad = None if grad is None else grad[part.first : part.stop]
        set_rate(self.optimiser, train, self.step)
        self.optimiser.step()
        for trainer in self.trainers:
            trainer.step += 1
        return losses.detach()

    def read(self) -> tuple[list[float], list[Diverged | None]]:
        """`Losses.read` for each of `trainers`."""
        return self.noted.read()

    def losses(self) -> Tensor:
        """(M,) what `Trainer.loss` is for each member at this step."""
        config = self.trainers[0].config
        batch = _Batch.of(self.trainers)

        def run(
            parameters: dict[str, Tensor], buffers: dict[str, Tensor],
            ids: Tensor, pos: Tensor, scale: Tensor, drawn: dict[str, Tensor],
        ) -> tuple[Tensor, Tensor]:  # fmt: skip
            found: tuple[Tensor, Tensor] = functional_call(
                self.modules[0],
                (parameters, buffers),
                (ids, pos),
                {"scale": scale, "last": batch.last, "drawn": drawn},
            )
            return found

        dims = (0, 0, 0, 0 if batch.pos.dim() == 3 else None, 0, 0)
        half = config.train.precision == "bf16"
        with torch.autocast(batch.ids.device.type, torch.bfloat16, half):
            logits, penalties = vmap(run, dims, randomness="error")(
                self.parameters, self.buffers, batch.ids, batch.pos, batch.scale, batch.drawn
            )
        return batch.cross_entropy(logits) + penalties

    @torch.no_grad()
    def write_back(self) -> None:
        """Give every trainer its weights, the state of its optimiser, and what attention ran."""
        for trainer in self.trainers:
            trainer.model.ran["train"] |= self.trainers[0].model.ran["train"]
        for i, module in enumerate(self.modules):
            for name, own in (*module.named_parameters(), *module.named_buffers()):
                own.copy_({**self.parameters, **self.buffers}[name][i])
        for part in self.parts:
            state = self.optimiser.state.get(part.leaf, {})
            for i in range(part.first, part.stop):
                own = self.modules[i].get_parameter(part.name)
                self.trainers[i].optimiser.state[own] = {
                    key: value.clone() if key == "step" else value[i - part.first].clone()
                    for key, value in state.items()
                }

    def _optimiser(self) -> torch.optim.AdamW:
        """AdamW over the parts of every group that the trainers' optimisers have."""
        names = [{id(p): n for n, p in module.named_parameters()} for module in self.modules]
        groups = []
        for g, example in enumerate(self.trainers[0].optimiser.param_groups):
            peaks = [trainer.optimiser.param_groups[g]["peak"] for trainer in self.trainers]
            for peak, members in groupby(range(len(peaks)), peaks.__getitem__):
                span = list(members)
                parts = [self._part(names[0][id(p)], span) for p in example["params"]]
                self.parts += parts
                own = {key: example[key] for key in ("betas", "weight_decay")}
                leaves = [part.leaf for part in parts]
                groups.append({"params": leaves, "lr": peak, "peak": peak, **own})
        optimiser = torch.optim.AdamW(groups, fused=True)
        for part in self.parts:
            if state := self._state(part):
                optimiser.state[part.leaf] = state
        return optimiser

    def _part(self, name: str, span: list[int]) -> _Part:
        leaf = self.parameters[name].detach()[span[0] : span[-1] + 1]
        return _Part(name, span[0], span[-1] + 1, leaf)

    def _state(self, part: _Part) -> dict[str, Tensor]:
        """The moments that the members' optimisers hold, stacked; none before the first step."""
        states = [
            self.trainers[i].optimiser.state.get(self.modules[i].get_parameter(part.name), {})
            for i in range(part.first, part.stop)
        ]
        return {
            key: value.clone() if key == "step" else torch.stack([state[key] for state in states])
            for key, value in states[0].items()
        }

    def _clip(self, limit: float) -> None:
        """Each member's gradients to a norm of at most `limit`."""
        grads = [p.grad for p in self.parameters.values() if p.grad is not None]
        norms = torch.stack([torch.linalg.vector_norm(g.flatten(1), dim=1) for g in grads])
        factor = (limit / (torch.linalg.vector_norm(norms, dim=0) + 1e-6)).clamp(max=1)
        for g in grads:
            g.mul_(factor.view(-1, *[1] * (g.dim() - 1)))


class _Logits(nn.Module):
    """A model's logits and penalty from one call: functional_call has to see both."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *args: Tensor, **kwargs: object) -> tuple[Tensor, Tensor]:
        logits = self.model(*args, **kwargs)
        penalty = self.model.encoding.penalty()
        return logits, logits.new_zeros((), dtype=torch.float32) if penalty is None else penalty


@dataclass(frozen=True)
class _Batch:
    """The members' batches, padded on the right to one length: ids (M, B, T), scale (M, 1).

    pos is (1, T) where the rows of all members have the same positions, else (M, B, T).
    """

    ids: Tensor
    pos: Tensor
    scale: Tensor
    truth: Tensor  # (M, B, last)
    answer: Tensor  # (M, B, last) bool
    drawn: dict[str, Tensor]
    last: int

    @classmethod
    def of(cls, trainers: Sequence[Trainer]) -> _Batch:
        """Of their next step."""
        loaded = [trainer.draw() for trainer in trainers]
        batches = [batch for batch, _ in loaded]
        # An encoder would look at what is added on the right, if its positions did not say.
        causal, widths = batches[0].causal, {batch.inputs.shape[1] for batch in batches}
        # A single row of positions may hold padding or several documents where it is the only row.
        by_row = any(len(batch.pos) > 1 or len(batch.inputs) == 1 for batch in batches)
        ragged = by_row or (not causal and len(widths) > 1)
        if ragged:
            both = zip(trainers, batches, strict=True)
            batches = [_with_own_positions(trainer, batch) for trainer, batch in both]
        width, pad = max(batch.inputs.shape[1] for batch in batches), trainers[0].task.vocab.pad
        # Otherwise positions count up in every member: one row for all.
        longest = max((batch.pos for batch in batches), key=lambda pos: pos.shape[1])
        batches = [batch.padded(width, pad) for batch in batches]
        last = max(batch.last for batch in batches)
        ids = torch.stack([batch.inputs for batch in batches])
        pos = torch.stack([batch.pos for batch in batches]) if ragged else longest
        return cls(
            ids=ids,
            pos=pos,
            scale=torch.stack([ids.new_full((1,), length) for _, length in loaded]),
            truth=torch.stack([batch.labels[:, -last:] for batch in batches]),
            answer=torch.stack([batch.answer[:, -last:] for batch in batches]),
            drawn=stacked([batch.drawn or {} for batch in batches]),
            last=last,
        )

    def cross_entropy(self, logits: Tensor) -> Tensor:
        """(M,) the mean over each member's answers; logits (M, B, last, vocab)."""
        flat = at_least_float32(logits).flatten(0, 2)
        each = cross_entropy(flat, self.truth.flatten(), reduction="none").view_as(self.truth)
        counted = torch.where(self.answer, each, 0.0).flatten(1).sum(1)
        return counted / self.answer.flatten(1).sum(1).clamp(min=1)


def _with_own_positions(trainer: Trainer, batch: Sequences) -> Sequences:
    """A row of positions for each sequence, and what is then drawn: the same, in that form."""
    if batch.pos.shape[0] > 1:
        return batch
    return trainer.with_drawn(replace(batch, pos=batch.pos.expand_as(batch.inputs)))
