"""Pack samples into rows of a fixed number of tokens.

Rows of 8 tokens from samples of copy with 1, 2 and 4 digits, E ends a sample:

    inputs       4 = 4 E 7 1 = 7     1 E 3 0 2 8 = 3     0 2 ...
    supervised   . x x . . . x x     x . . . . . x x     x x
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from harness.data.sequences import Sequences, decoder_sequences
from harness.tasks.base import Task

Lengths = Callable[[int], list[int]]  # draws a number of lengths


def packed(
    task: Task, lengths: Lengths, rows: int, columns: int, draws: torch.Generator
) -> Sequences:
    """Return rows x columns tokens of independent samples, with labels.

    Samples are concatenated and cut wherever a row is full, also inside a sample. Answers and their
    EOS are supervised. Positions count up in a row, and tokens see the samples before their own.
    """
    wanted = rows * columns + 1
    tokens, answer = _stream(task, lengths, wanted, draws)
    ids, inner = tokens[:wanted], answer[1:wanted].view(rows, columns)
    return Sequences(
        inputs=ids[:-1].view(rows, columns),
        labels=ids[1:].clone().view(rows, columns),
        pos=torch.arange(columns)[None],
        answer=inner,
        prompt=1,
        counted=inner,
    )


def _stream(
    task: Task, lengths: Lengths, wanted: int, draws: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Return tokens (N,), and whether each belongs to an answer."""
    parts: list[tuple[Tensor, Tensor]] = []
    size = 0
    while size < wanted:
        each = size // len(parts) if parts else max(1, wanted // 4)
        made = _samples(task, lengths(1 + (wanted - size) // each), draws)
        parts += made
        size += sum(len(ids) for ids, _ in made)
    return torch.cat([ids for ids, _ in parts]), torch.cat([answer for _, answer in parts])


def _samples(
    task: Task, lengths: Sequence[int], draws: torch.Generator
) -> list[tuple[Tensor, Tensor]]:
    """Draw a sample of each length: its tokens with EOS, and which belong to the answer."""
    found: dict[int, list[tuple[Tensor, Tensor]]] = {}
    for length in sorted(set(lengths)):
        batch = decoder_sequences(task.sample(draws, lengths.count(length), length), task)
        ids, there = batch.ids, batch.ids != task.vocab.pad
        answer = torch.cat([torch.zeros_like(batch.answer[:, :1]), batch.answer], 1)
        sizes = there.sum(1).tolist()
        found[length] = list(zip(ids[there].split(sizes), answer[there].split(sizes), strict=True))
    return [found[length].pop() for length in lengths]
