"""A few wrong answers of a length, as a record keeps them."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from harness.data.sequences import Sequences
from harness.tasks.base import Batch, Task
from leaderboard.record.schema import Answer

KEPT = 3  # of each length
LONGEST = 400  # letters of a text


def wrong(task: Task, sample: Batch, batch: Sequences, out: Tensor, right: Tensor) -> list[Answer]:
    """The first KEPT rows that are not `right` (B,); out (B, T) is what was predicted.

    What is given ends at the first wrong symbol: until there, teacher forcing and decoding agree.
    """
    return [
        _answer(task, sample.prompt[row], batch.labels[row][mask], out[row][mask], counted)
        for row, mask, counted in _masks(batch, right)
    ]


def _masks(batch: Sequences, right: Tensor) -> Iterator[tuple[int, Tensor, Tensor]]:
    """(row, its answer's columns, which of these count) for the rows to keep."""
    for row in (~right).nonzero().flatten().tolist()[:KEPT]:
        mask = batch.answer[row]
        yield row, mask, batch.counted[row][mask]


def _answer(task: Task, prompt: Tensor, expected: Tensor, given: Tensor, counted: Tensor) -> Answer:
    bad = ((expected != given) & counted).nonzero().flatten().tolist()
    end = bad[0] + 1 if bad else len(given)  # a task may take another answer for right
    rest = "…" if end < len(given) else ""
    return Answer(
        prompt=_cut(_text(task, prompt)),
        expected=_cut(_text(task, expected)),
        given=_cut(_text(task, given[:end]), keep_end=True) + rest,
    )


def _text(task: Task, ids: Tensor) -> str:
    vocab = task.vocab
    names = [*vocab.symbols, "", "⟨end⟩"]  # by id: pad and eos come last
    shown = [names[i] if i < len(names) else "?" for i in map(int, ids)]
    return vocab.separator.join(name for name in shown if name)


def _cut(text: str, keep_end: bool = False) -> str:
    if len(text) <= LONGEST:
        return text
    return f"…{text[-LONGEST:]}" if keep_end else f"{text[:LONGEST]}…"
