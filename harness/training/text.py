"""Bits per byte of text, and what a model gains from context beyond its training length."""

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from experiment.config import RunConfig
from harness.data.sequences import to_sequences
from harness.model.transformer import Transformer
from harness.tasks.base import Batch, Task
from harness.training.predict import (
    CHUNK_TOKENS,
    Window,
    bits_and_hits,
    read_in_parts,
    teacher_forced,
)
from harness.training.trainer import Diverged
from pezoo.base import PositionError


@torch.no_grad()
def score_text(
    model: Transformer,
    task: Task,
    config: RunConfig,
    length: int,
    sample: Batch,
    position_seed: int,
    mode: str | None = None,
) -> dict[str, Any]:
    """Return the fields of the `Score` of a sample, whose targets are the same at every length.

    `bits` is the mean over the targets' tokens. `gain` is how many fewer they are than what the
    model has for the same targets if it sees no more than the longest training length, of the run
    that it starts from if there is one, and `gain_error` its standard error over the targets.
    `by_place` has the bits of the tokens at places 1, 2-3, 4-7, ... of the sequence.
    """
    model.eval()
    most = min(length, config.first.train.lengths[1])
    own = Batch(sample.prompt[:, length - most :], sample.target)
    try:
        read = _read(model, task, config, length, sample, position_seed, mode)
        short = read
        if most < length:
            short = _read(model, task, config, most, own, position_seed, mode)
    except PositionError as error:
        return {"status": "cannot represent", "note": str(error)}
    count, size = sample.target.shape
    bits, hits = read[:, -size:].unbind(-1)
    gain = short[:, -size:, 0].mean(1) - bits.mean(1)
    return {
        "status": "ok",
        "exact": int(hits.all(1).sum()) / count,
        "correct": int(hits.all(1).sum()),
        "count": count,
        "token": int(hits.sum()) / (count * size),
        "tokens": count * size,
        "method": "teacher-forced",
        "bits": float(bits.mean()),
        "gain": float(gain.mean()),
        "gain_error": float(gain.std()) / math.sqrt(count) if count > 1 else None,
        "by_place": () if config.eval.window else _by_place(read[..., 0]),
    }


def _by_place(bits: Tensor) -> tuple[float, ...]:
    """Return the means of (B, T) from places 1, 2, 4, 8, ... on; the first column is place 1."""
    starts = [2**k - 1 for k in range(bits.shape[1].bit_length())]
    return tuple(float(bits[:, at : 2 * at + 1].mean()) for at in starts)


def _read(
    model: Transformer,
    task: Task,
    config: RunConfig,
    length: int,
    sample: Batch,
    position_seed: int,
    mode: str | None,
) -> Tensor:
    """Return `bits_and_hits` of the true tokens, (B, T, 2)."""
    batch, window = to_sequences(sample, task, model.track), Window.of(config.eval)
    if window is None:  # every place counts
        batch = replace(batch, counted=batch.answer)
    chunk = max(1, CHUNK_TOKENS // batch.inputs.shape[1])
    parts = []
    for start in range(0, len(sample.prompt), chunk):
        part = batch.rows(start, start + chunk).to(str(model.embedding.weight.device))
        positions = torch.Generator().manual_seed(position_seed)  # one draw for all rows
        if window is None:
            found = read_in_parts(model, part, length, positions, mode, bits_and_hits)
        else:
            found = teacher_forced(model, part, length, positions, mode, window, bits_and_hits)
        if not bool(found.isfinite().all()):
            raise Diverged(f"logits are not finite at length {length}")
        parts.append(found.cpu())
    return torch.cat(parts)
