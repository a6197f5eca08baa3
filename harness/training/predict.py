"""Answers of a model: all at once, or token by token, also under a sliding window.

Under a window, a decoder sees only the last W tokens. The window is filled; then it drops its first
tokens, `stride` at a time, and is filled again. What the dropped tokens have left in the keys and
values of deeper layers is dropped too: the model sees what a new text of the kept tokens would show
it, at positions from 0 (Hou et al. 2024, Section 3.1). W = 4, stride 2, tokens 0 1 2 ...; each
token is predicted from:

    token        1    2    3     4        5       6         7         8
    sees         0    01   012   0123     2 3 4   2 3 4 5   4 5 6     4 5 6 7
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from experiment.config import Eval
from harness.data.sequences import Sequences
from harness.model.transformer import Transformer
from pezoo.adapters.layer import Cache

CHUNK_TOKENS = 6_000  # tokens in one forward pass: keeps long lengths in memory
PART_TOKENS = 256  # tokens of a pass of `read_in_parts`: few scores are in memory at once
STEPS = 16  # tokens that `decoding_gap` reads one by one


@dataclass(frozen=True)
class Window:
    """`size` W and `stride`.

    >>> Window(4, 2).start(5), Window(4, 2).start(4)
    (2, 0)
    """

    size: int
    stride: int

    @classmethod
    def of(cls, test: Eval) -> Self | None:
        """Return the window of an evaluation, if it has one."""
        return None if test.window is None else cls(test.window, test.stride)

    def start(self, token: int) -> int:
        """Return the first token that the prediction of `token` sees."""
        return max(0, -(-(token - self.size) // self.stride)) * self.stride

    def spans(self, tokens: int) -> Iterator[tuple[int, int, int]]:
        """Yield (start, stop, first): tokens start..stop-1 are read, first..stop predicted.

        Together they predict the tokens 1..`tokens`.
        """
        first = 1
        while first <= tokens:
            start = self.start(first)
            stop = min(start + self.size, tokens)
            yield start, stop, first
            first = stop + 1


def _likeliest(logits: Tensor, labels: Tensor | None = None) -> Tensor:
    """Return the token of the largest logit, -1 where the logits are not finite."""
    return logits.argmax(-1).where(logits.amax(-1).isfinite(), -1)


def bits_and_hits(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the bits of each label (B, T), -log2 of its probability, and 1 if it is the likeliest.

    logits (B, T, V) -> (B, T, 2) float32.
    """
    nats = cross_entropy(logits.float().mT, labels, reduction="none")
    return torch.stack([nats / math.log(2), (logits.argmax(-1) == labels).float()], -1)


def teacher_forced(
    model: Transformer,
    batch: Sequences,
    length: int,
    positions: torch.Generator,
    mode: str | None = None,
    window: Window | None = None,
    read: Callable[[Tensor, Tensor], Tensor] = _likeliest,
) -> Tensor:
    """Return the likeliest label of every column, (B, T). A decoder is given the true tokens.

    `read` turns logits (B, T, V) and labels (B, T) into another result (B, T, ...). With a window,
    the batch must be left-aligned; columns where no row is counted are left at 0. A label is -1
    where the logits are not finite.
    """
    ids, scale = batch.inputs, torch.tensor([length], device=batch.inputs.device)
    if window is None:
        logits: Tensor = model(ids, batch.pos, scale=scale, generator=positions, mode=mode)
        return read(logits, batch.labels)
    out = None
    rows_at_once = max(1, CHUNK_TOKENS // min(window.size, ids.shape[1]))
    for start, stop, first in window.spans(ids.shape[1]):
        there = batch.counted[:, first - 1 : stop].any(1).nonzero()[:, 0]
        for rows in there.split(rows_at_once) if len(there) else ():
            logits = model(
                ids[rows, start:stop],
                batch.pos[:, : stop - start],
                scale=scale,
                generator=positions,
                last=stop - first + 1,
                mode=mode,
            )
            found = read(logits, batch.labels[rows, first - 1 : stop])
            if out is None:
                out = found.new_zeros(*batch.labels.shape, *found.shape[2:])
            out[rows, first - 1 : stop] = found
    return torch.zeros_like(batch.labels) if out is None else out


def read_in_parts(
    model: Transformer,
    batch: Sequences,
    length: int,
    positions: torch.Generator,
    mode: str | None,
    read: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    """Return what `teacher_forced` does without a window, with a cache and PART_TOKENS at a time.

    At 8,192 tokens this takes a fifth of alibi's time. The encoding must be `prefix_stable`,
    or be so once the length is planned.
    """
    cache, scale = Cache(length=batch.inputs.shape[1]), torch.tensor([length])
    columns = (x.split(PART_TOKENS, 1) for x in (batch.inputs, batch.pos, batch.labels))
    parts = []
    for ids, pos, labels in zip(*columns, strict=True):
        own = {"scale": scale.to(ids.device), "generator": positions, "cache": cache, "mode": mode}
        parts.append(read(model(ids, pos, **own), labels))
    return torch.cat(parts, 1)


def decode(
    model: Transformer,
    batch: Sequences,
    length: int,
    positions: torch.Generator,
    mode: str | None = None,
    window: Window | None = None,
) -> Tensor:
    """Return the labels (B, T) with the answers that greedy decoding writes after the prompts.

    Decodes one token at a time with a cache. Where the window moves, one pass over the kept tokens
    fills the cache again. Rows whose prompt goes on read it; rows write on after their EOS. The
    planned length is that of the batch, so that randomized encodings draw once and keep it. A label
    is -1 where the logits are not finite.
    """
    ids, written, writes = batch.inputs.clone(), batch.labels.clone(), batch.begun
    scale = torch.tensor([length], device=ids.device)
    columns = ids.shape[1]
    planned = columns if window is None else min(window.size, columns)
    cache, start, read = Cache(length=planned), 0, 0
    for token in range(batch.prompt, columns + 1):
        if window is not None and (now := window.start(token)) > start:
            cache, start, read = Cache(length=planned), now, now
        logits = model(
            ids[:, read:token],
            batch.pos[:, read - start : token - start],
            scale=scale,
            generator=positions,
            cache=cache,
            last=None if window is None else 1,
            mode=mode,
        )
        read = token
        own = torch.where(writes[:, token - 1], _likeliest(logits[:, -1]), written[:, token - 1])
        written[:, token - 1] = own
        if token < columns:
            ids[:, token] = own.clamp(min=0)
    return written


def decoding_gap(
    model: Transformer,
    batch: Sequences,
    length: int,
    window: int | None,
    mode: str | None = None,
) -> list[float]:
    """Return how much the logits of the true answers change when tokens are read one by one.

    For each row, the largest difference to those of a single pass, as a share of the logits'
    largest distance from their mean. The last STEPS tokens of the batch, which must be
    left-aligned, are read one by one; under a window, those of its first W tokens.
    """
    ids, pos, counted = (x[:, :window] for x in (batch.inputs, batch.pos, batch.counted))
    columns, scale = ids.shape[1], torch.tensor([length], device=ids.device)
    begin = min(columns, max(batch.prompt, columns - STEPS))

    def read(part: slice, cache: Cache | None) -> Tensor:
        draws = torch.Generator()  # leaves the other random numbers of a run as they are
        own = {"scale": scale, "generator": draws, "cache": cache, "mode": mode}
        logits: Tensor = model(ids[:, part], pos[:, part], **own)
        return logits

    cache, single = Cache(length=columns), range(begin, columns)
    whole = read(slice(columns), None)
    steps = [slice(begin), *(slice(token, token + 1) for token in single)]
    parts = torch.cat([read(step, cache) for step in steps], 1)
    spread = (whole - whole.mean(-1, keepdim=True)).abs().amax(-1)[counted]
    gaps = (whole - parts).abs().amax(-1).where(counted, 0.0).amax(1)  # (B,)
    return (gaps / spread.max()).nan_to_num(math.inf).tolist() if len(spread) else [0.0]
