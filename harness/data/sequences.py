"""Turn prompts and targets into the input sequences of a decoder or an encoder.

copy, prompts of 3 and 2 digits:        ids        4 7 1 = 4 7 1 E
                                        supervised . . . . x x x x
                                        position   0 1 2 3 4 5 6 7
the shorter one, padded on the left:    ids        _ 8 8 = 8 8 E _
                                        position  -1 0 1 2 3 4 5 6
and on the right, as in training:       ids        8 8 = 8 8 E _ _
                                        position   0 1 2 3 4 5 6 7
in an encoder, which has no "=":        input      4 7 1 E E E
                                        label      . . . 4 7 1
in text, without EOS:                   ids        a b c d e f
                                        supervised . x x x x x
                                        counted    . . . x x x
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from harness.data import drawn
from harness.data.drawn import Drawn
from harness.tasks.base import Batch, Task, Vocab


@dataclass(frozen=True)
class Sequences:
    """A batch for a model: inputs (B, T), labels (B, T) and positions (1|B, T), -1 for padding.

    answer (B, T) bool marks the supervised labels, counted (B, T) those that count in the accuracy.
    Decoders predict the next token, encoders the token at the same place. Labels share no memory
    with inputs, which the hooks of an encoding may write to. `drawn` holds the random
    numbers of the inputs (`harness.data.drawn`), or None before they are drawn.
    """

    inputs: Tensor
    labels: Tensor
    pos: Tensor
    answer: Tensor
    prompt: int  # length of the (padded) prompt
    counted: Tensor
    causal: bool = True
    tokens: int = 0  # that a model reads, without padding; 0 before they are counted
    drawn: Drawn | None = None

    @property
    def ids(self) -> Tensor:
        """Return the tokens (B, T + 1) of a decoder: prompt, answer and EOS."""
        return torch.cat([self.inputs, self.labels[:, -1:]], 1)

    @property
    def begun(self) -> Tensor:
        """Return the columns from the first of the answer on, without given tokens, (B, T) bool."""
        begun = self.answer.long().cumsum(1)
        return (begun > 0) & (self.answer | (begun == begun[:, -1:]))  # all are written after EOS

    @property
    def last(self) -> int:
        """Count the columns from the one that predicts the first token of the answer."""
        return self.inputs.shape[1] + 1 - self.prompt

    def rows(self, first: int, stop: int) -> Self:
        """Return some of the B rows."""
        return self._changed(lambda tensors: drawn.rows(tensors, first, stop))

    def to(self, device: str) -> Self:
        """Move to a device."""
        return self if device == "cpu" else self._changed(lambda x: drawn.moved(x, device))

    def _changed(self, change: Callable[[Drawn], Drawn]) -> Self:
        """Change the tensors, and the random numbers that belong to them."""
        names = ("inputs", "labels", "pos", "answer", "counted")
        own = change({name: getattr(self, name) for name in names})
        return replace(self, **own, drawn=None if self.drawn is None else change(self.drawn))

    def left_aligned(self, pad: int) -> Self:
        """Move the first token of every row of a decoder to column 0, and padding to the right.

        Positions are then the same in all rows, so that their embeddings are computed once; no
        token attends to the padding after it. Columns after all answers are removed. `prompt` is
        the length of the shortest prompt.
        """
        if not (self.pos < 0).any():
            return self
        gap = (self.pos < 0).sum(1, keepdim=True).expand(len(self.inputs), 1)
        width = int(self.pos.where(self.answer, 0).max()) + 1
        index = torch.arange(width, device=self.inputs.device) + gap
        there = index < self.inputs.shape[1]
        index = index.clamp(max=self.inputs.shape[1] - 1)

        def moved(x: Tensor, filling: int) -> Tensor:
            return torch.where(there, x.gather(1, index), filling)

        answer, counted = (moved(x.long(), 0).bool() for x in (self.answer, self.counted))
        return replace(
            self,
            inputs=moved(self.inputs, pad),
            labels=moved(self.labels, pad),
            pos=torch.arange(width, device=self.inputs.device)[None],
            answer=answer,
            counted=counted,
            prompt=self.prompt - int(gap.max()),
        )


def to_sequences(batch: Batch, task: Task, track: str) -> Sequences:
    """Return the sequences of a track."""
    make = {"decoder": decoder_sequences, "encoder": encoder_sequences, "text": text_sequences}
    return make[track](batch, task)


def decoder_sequences(batch: Batch, task: Task) -> Sequences:
    """Join prompt, target and EOS; given tokens and padding right of EOS are not supervised."""
    (b, p), vocab = batch.prompt.shape, task.vocab
    target = torch.cat([batch.target, batch.target.new_full((b, 1), vocab.pad)], 1)
    length = (batch.target != vocab.pad).sum(1, keepdim=True)
    target = target.scatter(1, length, vocab.eos)
    ids = torch.cat([batch.prompt, target], 1)
    own = (target != vocab.pad) & ~task.given(target)
    answer = torch.cat([target.new_zeros(b, p - 1).bool(), own], 1)
    pos = positions(batch.prompt, target.shape[1], vocab)
    return Sequences(ids[:, :-1], ids[:, 1:].clone(), pos[:, :-1], answer, p, answer)


def text_sequences(batch: Batch, task: Task) -> Sequences:
    """Join prompt and target, which go on to no EOS; all tokens are supervised, targets counted."""
    ids = torch.cat([batch.prompt, batch.target], 1)
    answer = (ids != task.vocab.pad)[:, 1:]
    counted = answer.clone()
    counted[:, : batch.prompt.shape[1] - 1] = False
    pos = positions(batch.prompt, batch.target.shape[1], task.vocab)
    return Sequences(ids[:, :-1], ids[:, 1:].clone(), pos[:, :-1], answer, 1, counted)


def encoder_sequences(batch: Batch, task: Task) -> Sequences:
    """Join the prompt, without its last symbol, and an empty token for each one to be written.

    The id of EOS, which encoders do not write, serves as the empty token.
    """
    b, p = batch.prompt.shape
    prompt, vocab = batch.prompt[:, :-1], task.vocab
    answer = batch.target != vocab.pad
    given = task.given(batch.target)
    empty = torch.where(answer, vocab.eos, vocab.pad).where(~given, batch.target)
    answer &= ~given
    inputs = torch.cat([prompt, empty], 1)
    labels = torch.cat([torch.full_like(prompt, vocab.pad), batch.target], 1)
    before = prompt.new_zeros(b, p - 1, dtype=torch.bool)
    is_token = inputs != vocab.pad
    pos = torch.where(is_token, is_token.cumsum(1) - 1, -1)
    return Sequences(
        inputs,
        labels,
        pos[:1] if bool(is_token.all()) else pos,
        torch.cat([before, answer], 1),
        p,
        torch.cat([before, answer & task.counted(batch.target)], 1),
        causal=False,
    )


def positions(prompt: Tensor, after: int, vocab: Vocab) -> Tensor:
    """Return positions (B, S), or (1, S) if no prompt is padded, from 0; padding has -1."""
    padding = (prompt == vocab.pad).sum(1, keepdim=True)
    if not padding.any():
        padding = padding[:1]
    pos = torch.arange(prompt.shape[1] + after, device=prompt.device)[None] - padding
    return pos.clamp(min=-1)
