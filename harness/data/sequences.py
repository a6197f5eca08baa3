"""From a task's prompts and targets to the decoder's sequences.

copy, prompts of 3 and 2 digits:        ids        4 7 1 = 4 7 1 E
                                        supervised . . . . x x x x
                                        position   0 1 2 3 4 5 6 7
the shorter one, padded on the left:    ids        _ 8 8 = 8 8 E _
                                        position  -1 0 1 2 3 4 5 6
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import pad as fill

from harness.data import drawn
from harness.data.drawn import Drawn
from harness.tasks.base import Batch, Vocab


@dataclass(frozen=True)
class Sequences:
    """ids (B, S); pos (1|B, S), -1 is padding on the left; answer (B, S) bool, with EOS.

    `padding` columns on the right are there for the sake of a common size (`harness.data.buckets`);
    None means that sizes do not matter. `drawn` is what is drawn for all but the last column
    (`harness.data.drawn`); None before that.
    """

    ids: Tensor
    pos: Tensor
    answer: Tensor
    prompt: int  # length of the (padded) prompt
    padding: int | None = None
    tokens: int = 0  # that a model reads, without padding; 0 until they are counted
    drawn: Drawn | None = None

    def rows(self, first: int, stop: int) -> Sequences:
        """Some of the B rows."""
        return replace(
            self,
            ids=self.ids[first:stop],
            pos=self.pos if self.pos.shape[0] == 1 else self.pos[first:stop],
            answer=self.answer[first:stop],
            drawn=None if self.drawn is None else drawn.rows(self.drawn, first, stop),
        )

    def to(self, device: str) -> Sequences:
        """The same on that device."""
        if device == "cpu":
            return self
        own = {"ids": self.ids, "pos": self.pos, "answer": self.answer}
        return replace(
            self,
            **drawn.moved(own, device),
            drawn=None if self.drawn is None else drawn.moved(self.drawn, device),
        )

    def padded(self, columns: int, pad: int) -> Sequences:
        """The same with that many columns, S or more: the new ones on the right are padding.

        They are not supervised, and repeat the last position that a model reads in their row: that
        of the last token but one, as the last token is only predicted.
        """
        more = columns - self.ids.shape[1]
        pos = torch.cat([self.pos[:, :-1], self.pos[:, -2:-1].expand(-1, more + 1)], 1)
        ids, answer = fill(self.ids, (0, more), value=pad), fill(self.answer, (0, more))
        return replace(
            self,
            ids=ids,
            pos=pos,
            answer=answer,
            padding=(self.padding or 0) + more,
            drawn=None if self.drawn is None else drawn.padded(self.drawn, more),
        )


def join(batch: Batch, vocab: Vocab) -> Sequences:
    """prompt, target, EOS in one row; padding right of EOS is never supervised."""
    b, p = batch.prompt.shape
    target = torch.cat([batch.target, batch.target.new_full((b, 1), vocab.pad)], 1)
    length = (batch.target != vocab.pad).sum(1, keepdim=True)
    target = target.scatter(1, length, vocab.eos)
    ids = torch.cat([batch.prompt, target], 1)
    return Sequences(
        ids, positions(batch.prompt, target.shape[1], vocab), _answer(target, p, vocab), p
    )


def positions(prompt: Tensor, after: int, vocab: Vocab) -> Tensor:
    """(1, S) when no prompt is padded, else (B, S); the first token is at 0, padding at -1."""
    padding = (prompt == vocab.pad).sum(1, keepdim=True)
    if not padding.any():
        padding = padding[:1]
    pos = torch.arange(prompt.shape[1] + after, device=prompt.device)[None] - padding
    return pos.clamp(min=-1)


def _answer(target: Tensor, prompt: int, vocab: Vocab) -> Tensor:
    mask = target != vocab.pad
    return torch.cat([mask.new_zeros(mask.shape[0], prompt), mask], 1)
