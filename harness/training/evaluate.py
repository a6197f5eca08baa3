"""Whole-answer exact match and token accuracy, per length, on a test set of its own.

An encoder writes an answer in one pass, and the task says which of its tokens count. A decoder's
answer is right when every token right of "=" is, EOS included. Feeding the true answer
(teacher forcing) finds exactly the answers that greedy decoding gets right, if earlier logits do
not depend on later tokens and nothing is drawn at random: until its first mistake, decoding feeds
itself the true tokens. Encodings that do not promise both are decoded token by token, and so are
tasks that count other answers than the true one as right. The same holds under a window
(`harness.training.windows`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, replace
from functools import partial
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from experiment.config import Eval, RunConfig
from harness.data.seeds import generator, seed
from harness.data.sequences import Sequences, to_sequences
from harness.model.transformer import Cache, Transformer
from harness.settings.protocol import sample_count, token_count
from harness.tasks.base import Batch, Task
from harness.training import windows, wrong
from harness.training.windows import CHUNK_TOKENS, Window
from leaderboard.record.schema import Answer, Score
from pezoo.base import PositionError

_WINDOWED_TOKENS = 32_000  # in the windows of rows that decode side by side

Predict = Callable[[Transformer, Sequences, int, torch.Generator, str | None], Tensor]


def score_all(
    model: Transformer,
    task: Task,
    config: RunConfig,
    mode: str | None = None,
    answers: bool = False,
) -> list[dict[str, Any]]:
    """Every test length of the protocol, as plain records; `mode` is one of the encoding's.

    `answers`: with a few wrong answers of each length.
    """
    lengths = config.eval.lengths
    return [_plain(score(model, task, config, length, mode, answers)) for length in lengths]


def score_curve(model: Transformer, task: Task, config: RunConfig) -> dict[str, float | None]:
    """The means over `eval.curve_lengths`, those without instances left out.

    None where a length cannot be represented.
    """
    every = (score(model, task, config, length) for length in config.eval.curve_lengths or ())
    scores = [one for one in every if one.status != "no instance"]
    return {
        "test_token": _mean(s.token for s in scores),
        "test_exact": _mean(s.exact for s in scores),
    }


def _mean(values: Iterable[float | None]) -> float | None:
    known = [*values]
    numbers = [value for value in known if value is not None]
    return fmean(numbers) if numbers and len(numbers) == len(known) else None


def score(
    model: Transformer,
    task: Task,
    config: RunConfig,
    length: int,
    mode: str | None = None,
    answers: bool = False,
) -> Score:
    """One test length, on samples that depend on nothing but the task and the length."""
    seen = length <= config.train.lengths[1]
    if not task.lengths(length, length):
        note = f"{task.name} has no instance of this length"
        return Score(length=length, seen=seen, status="no instance", note=note)
    positions = seed("test", config.seed, length)
    sample = examples(task, config, length)
    return _score(model, task, config.eval, length, seen, sample, positions, mode, answers)


def score_sets(
    model: Transformer, task: Task, config: RunConfig
) -> dict[str, list[dict[str, Any]]]:
    """The further test sets of the protocol, each at its own lengths.

    A length counts as seen where no instance is longer than those in training: 12 + 4 digits are
    not.
    """
    found = {}
    for one in config.eval.sets:
        own = config.replace_eval(set=one.name)
        scores = [score(model, task, own, length) for length in one.lengths]
        found[one.name] = [_plain(replace(s, seen=_seen(task, own, s))) for s in scores]
    return found


def _seen(task: Task, config: RunConfig, one: Score) -> bool:
    """Whether the instances of a score are no longer than those in training."""
    if not one.seen or one.status == "no instance":
        return one.seen
    return task.longest(examples(task, config, one.length).prompt) <= config.train.lengths[1]


def _plain(one: Score) -> dict[str, Any]:
    """A score as a record's JSON has it."""
    row = asdict(one)
    return row | {"wrong": list(row["wrong"])}


def examples(task: Task, config: RunConfig, length: int) -> Batch:
    """What a length is tested on, the same for all encodings and seeds: all instances if they fit.

    Else samples from a generator that no training step uses; at short lengths they may be instances
    that training has seen. Where a task can list its instances, those that settings are chosen on
    ("tuning") are samples of the same.
    """
    count, own = sample_count(task, config.eval, length), config.eval.set
    if own:
        draws = generator(config.eval.examples, config.task, task.version, own, length)
        return task.test_set(own, draws, count, length)
    every = task.instances(length)
    if every is not None and len(every.prompt) <= count and config.eval.examples == "test":
        return every
    draws = generator(config.eval.examples, config.task, task.version, length)
    return task.sample(draws, count, length)


def validate(model: Transformer, task: Task, config: RunConfig) -> float:
    """Mean exact match over the training lengths, on a set apart from training and test.

    Of encoders, too: their best checkpoint is that of the most whole answers.
    """
    low, high = config.train.lengths
    scores = []
    for length in task.lengths(low, high):
        sample = validation_examples(task, config, length)
        one = _score(model, task, config.eval, length, True, sample, seed("validation", length))
        scores.append(one.exact or 0.0)
    return sum(scores) / len(scores)


def validation_examples(task: Task, config: RunConfig, length: int) -> Batch:
    """What a training length is validated on, the same for all encodings and seeds."""
    draws = generator("validation", config.task, task.version, length)
    return task.sample(draws, config.eval.validation_samples, length)


def chunk_size(task: Task, test: Eval, length: int) -> int:
    """How many samples of a length are scored side by side."""
    tokens = token_count(task, length)
    if test.window is None:
        return max(1, CHUNK_TOKENS // tokens)
    return max(1, _WINDOWED_TOKENS // min(tokens, test.window))


def method(model: Transformer, task: Task) -> str:
    """How this model is scored: "one pass" (an encoder), "teacher-forced" or "decoded"."""
    encoding = model.encoding
    if model.track == "encoder":
        return "one pass"
    exact = encoding.prefix_stable and not encoding.stochastic and task.exact
    return "teacher-forced" if exact else "decoded"


def _predict(how: str, test: Eval) -> Predict:
    """What writes the answers."""
    if test.window is None:
        return decode if how == "decoded" else teacher_forced
    window = Window(test.window, test.stride)
    if how == "decoded":
        return partial(windows.decode, window=window)
    return partial(windows.teacher_forced, window=window)


@torch.no_grad()
def _score(  # noqa: PLR0913  what is scored, on what, and how
    model: Transformer,
    task: Task,
    test: Eval,
    length: int,
    seen: bool,
    sample: Batch,
    position_seed: int,
    mode: str | None = None,
    answers: bool = False,
) -> Score:
    correct, right, total, count = 0, 0, 0, len(sample.prompt)
    kept: list[Answer] = []
    try:
        for start, part, out in _answers(model, task, test, length, sample, position_seed, mode):
            hit, exact = judge(task, out, part)
            correct += int(exact.sum())
            if answers and len(kept) < wrong.KEPT:
                prompts = Batch(sample.prompt[start:], sample.target[start:])
                kept += wrong.wrong(task, prompts, part, out, exact)
            right, total = right + int(hit.sum()), total + int(part.counted.sum())
    except PositionError as error:
        return Score(length=length, seen=seen, status="cannot represent", note=str(error))
    return Score(
        length=length,
        seen=seen,
        status="ok",
        exact=correct / count,
        correct=correct,
        count=count,
        token=right / total,
        tokens=total,
        method=method(model, task),
        wrong=tuple(kept[: wrong.KEPT]),
    )


def _answers(
    model: Transformer,
    task: Task,
    test: Eval,
    length: int,
    sample: Batch,
    position_seed: int,
    mode: str | None,
) -> Iterator[tuple[int, Sequences, Tensor]]:
    """First row, rows, and what the model writes, of each chunk of a sample.

    Errors: PositionError.
    """
    model.eval()
    how = method(model, task)
    predict = _predict(how, test)
    batch, chunk = to_sequences(sample, task, model.track), chunk_size(task, test, length)
    if how == "teacher-forced" or test.window is not None:
        batch = batch.left_aligned(task.vocab.pad)
    for start in range(0, len(sample.prompt), chunk):
        part = batch.rows(start, start + chunk).to(str(model.embedding.weight.device))
        positions = torch.Generator().manual_seed(position_seed)  # one draw for all rows
        yield start, part, predict(model, part, length, positions, mode)


def judge(task: Task, out: Tensor, batch: Sequences) -> tuple[Tensor, Tensor]:
    """What is right of `out` (B, C), written into the last C columns: tokens that count (B, C), and
    whole answers (B,), both bool."""
    parts = (batch.labels, batch.counted, batch.answer, batch.begun)
    labels, counted, answer, begun = (part[:, -out.shape[1] :] for part in parts)
    hit = (out == labels) & counted
    if task.exact:
        return hit, hit.sum(1) == counted.sum(1)
    pad = task.vocab.pad
    written, truth = torch.where(begun, out, pad), torch.where(answer, labels, pad)
    return hit, task.right(written, truth)


def written(
    model: Transformer,
    batch: Sequences,
    length: int,
    positions: torch.Generator,
    mode: str | None,
    test: Eval,
) -> Tensor:
    """(B, last) what the model answers: token by token, or all at once; under the test's window.

    Without padding on the left.
    """
    predict = _predict("one pass" if model.track == "encoder" else "decoded", test)
    return predict(model, batch, length, positions, mode)[:, -batch.last :]


def teacher_forced(
    model: Transformer,
    batch: Sequences,
    length: int,
    positions: torch.Generator,
    mode: str | None = None,
) -> Tensor:
    """(B, T) the likeliest label of every column: a decoder's, given the true tokens before it."""
    scale = torch.tensor([length], device=batch.inputs.device)
    logits: Tensor = model(batch.inputs, batch.pos, scale=scale, generator=positions, mode=mode)
    return logits.argmax(-1)


def decode(
    model: Transformer,
    batch: Sequences,
    length: int,
    positions: torch.Generator,
    mode: str | None = None,
) -> Tensor:
    """(B, T) the prompt after its first token, and what greedy decoding writes, token by token.

    The planned length is that of the batch, so that randomized encodings draw once and keep it.
    """
    scale = torch.tensor([length], device=batch.inputs.device)
    columns = batch.inputs.shape[1]
    cache = Cache(length=columns)
    ids, pos = batch.inputs[:, : batch.prompt], batch.pos[:, : batch.prompt]
    out = [ids[:, 1:]]
    for step in range(batch.prompt, columns + 1):
        logits = model(ids, pos, scale=scale, generator=positions, cache=cache, mode=mode)
        ids, pos = logits[:, -1:].argmax(-1), batch.pos[:, step : step + 1]
        out.append(ids)
    return torch.cat(out, 1)
