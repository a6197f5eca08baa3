"""Everything that a trained model answers to its test sets."""

from collections.abc import Iterator
from typing import Any

import torch

from experiment.config import RunConfig
from harness.data.seeds import seed
from harness.data.sequences import to_sequences
from harness.model.transformer import Transformer
from harness.tasks.base import Task
from harness.training.evaluate import chunk_size, examples, judge, spelled, written
from pezoo.base import PositionError


@torch.no_grad()
def predictions(model: Transformer, task: Task, config: RunConfig) -> Iterator[dict[str, Any]]:
    """Yield {"set", "length", "prompt", "target", "output", "right"} of every test example.

    Decoders write greedily, token by token, until they end the answer (⟨end⟩) or have written as
    many tokens as the longest target of their batch. Lengths that the encoding cannot represent
    are left out.
    """
    model.eval()
    sets = [config.replace_eval(set=one.name, lengths=one.lengths) for one in config.eval.sets]
    for own in (config, *sets):
        for length in own.eval.lengths:
            if task.lengths(length, length):
                yield from _of_length(model, task, own, length)


def _of_length(
    model: Transformer, task: Task, config: RunConfig, length: int
) -> Iterator[dict[str, Any]]:
    test, sample = config.eval, examples(task, config, length)
    batch = to_sequences(sample, task, model.track)
    if test.window is not None:
        batch = batch.left_aligned(task.vocab.pad)
    chunk = chunk_size(task, test, length)
    for start in range(0, len(sample.prompt), chunk):
        part = batch.rows(start, start + chunk).to(str(model.embedding.weight.device))
        positions = torch.Generator().manual_seed(seed("test", config.seed, length))
        try:
            out = written(model, part, length, positions, None, test)
        except PositionError:
            return
        _, right = judge(task, out, part)
        mask = part.begun if part.causal else part.answer
        labels, answer, mask = (x[:, -out.shape[1] :] for x in (part.labels, part.answer, mask))
        for row, prompt in enumerate(sample.prompt[start : start + chunk]):
            own = out[row][mask[row]]
            ends = (own == task.vocab.eos).nonzero().flatten().tolist()
            yield {
                "set": test.set,
                "length": length,
                "prompt": spelled(task, prompt),
                "target": spelled(task, labels[row][answer[row]]),
                "output": spelled(task, own[: ends[0] + 1] if ends else own),
                "right": bool(right[row]),
            }
