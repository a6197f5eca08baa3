"""Every score of a record, compared with its test set and what the encoding represents."""

from collections.abc import Iterator
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import torch

from experiment.config import Eval, RunConfig
from harness.cli.verify.bits import bits_faults
from harness.cli.verify.build import MOST_TOKENS, different, limit, shared, task_of
from harness.data.sequences import to_sequences
from harness.settings.protocol import sample_count, token_count
from harness.tasks.base import Task
from harness.training.evaluate import WRONG, examples, method, text
from leaderboard.escape import shown
from leaderboard.record.schema import Record, Score
from pezoo.base import Context, Encoding, PositionError

MOST_TESTED = 2**28  # in all test sets, which a run draws before its first step too


def score_faults(record: Record, task: Task, encoding: Encoding | None) -> Iterator[str]:
    """Compare every score with its test set, and with what the encoding represents."""
    own = shared(record.config.replace(seed=0))
    tests = {t.name: own.replace_eval(set=t.name, lengths=t.lengths) for t in own.eval.sets}
    tests[""] = own
    sizes = [_size(task, t.eval, n) for t in tests.values() for n in t.eval.lengths]
    limit(max(sizes), MOST_TOKENS, "tokens")
    limit(sum(sizes), MOST_TESTED, "tokens")
    losses, below = [p.loss or 0.0 for p in record.learning], own.eval.top_below
    begun = next((at for at, x in enumerate(losses) if below is None or x < below), len(losses))
    tested = [(place, name, scores, 1) for place, name, scores in record.tested()]
    for part, most in (("top1", 1), ("top3", 3), ("top3_each", 3)):  # sums of so many evaluations
        found = getattr(record.scores, part)
        tested.append((f"scores.{part}", "", found, min(most, len(losses) - begun)))
    for place, name, scores, times in tested:
        test = tests.get(name, own)
        answers = own.track != "text" and place.endswith(".last")
        kept = WRONG * answers
        asked = [one for one in scores if one.length in test.eval.lengths]
        for score in asked:
            alone = asked
            if name:  # in "repeat" the last tokens of a longer text are those of the main test set
                far = score.length >= 2 * own.first.train.lengths[1]
                alone = record.scores.last if far else []
            bits = bits_faults(score, test, alone)
            for fault in (*_score(score, test, encoding, times, kept), *bits):
                yield f"{place}, length {score.length}: {fault}"


def _size(task: Task, test: Eval, length: int) -> int:
    """Return the most tokens of a test set."""
    there = task.lengths(length, length)
    return sample_count(task, test, length) * token_count(task, length) if there else 0


def _score(
    score: Score, config: RunConfig, encoding: Encoding | None, times: int, kept: int
) -> Iterator[str]:
    """Compare a score with its test; without an encoding of its version, with the test set."""
    task = task_of(config.task)
    test = _test(config, score.length)
    status = "ok" if test else "no instance"
    refused = score.status == "cannot represent"
    if test and encoding and (refused or encoding.max_len is not None or encoding.needs_slots):
        status = "ok" if _represents(encoding, config, score.length) else "cannot represent"
    if score.status != status and (encoding or not refused):
        yield f"status is {score.status!r}, expected {status!r}"
    elif test and score.status == "ok":
        count, tokens, *rest = test
        yield from _answers(score, count * times, tokens * times, *rest, task.exact)
        yield from _wrong(score, config, kept)
        bits = {x is not None for x in (score.bits, score.gain, score.gain_error)}
        if bits | ({True} if score.by_place else set()) != {config.track == "text"}:
            yield f"bits is {score.bits} and gain {score.gain}, and the track is {config.track}"
        if encoding and score.method != (how := _method(encoding, config)):
            yield f"method is {score.method!r}, expected {how!r}"


@lru_cache(100_000)
def _test(config: RunConfig, length: int) -> tuple[int, int, int, bool] | None:
    """Draw a test set: its examples, the tokens of all answers and the longest, and if it is seen.

    None for a length without instances.
    """
    task, high = task_of(config.task), config.train.lengths[1]
    if not task.lengths(length, length):
        return None
    sample = examples(task, config, length)
    sizes = to_sequences(sample, task, config.track).counted.sum(1)
    seen = length <= high and (not config.eval.set or task.longest(sample.prompt) <= high)
    return len(sizes), int(sizes.sum()), int(sizes.max()), seen


def _wrong(score: Score, config: RunConfig, most: int) -> Iterator[str]:
    """Compare the wrong answers with the test set: they are its first ones, in its order."""
    own, wrong = score.wrong, (score.count or 0) - (score.correct or 0)
    if len(own) != min(most, wrong):
        yield f"{len(own)} wrong answers, expected {min(most, wrong)}"
    rows, at = _texts(config, score.length) if own else (), 0
    for answer in own:
        try:
            at = rows.index(hash((answer.prompt, answer.expected)), at) + 1
        except ValueError:
            yield f"{answer.prompt!r} with the answer {answer.expected!r} is not in the test set"
            return
        same = answer.given == answer.expected and not answer.expected.endswith("…")
        if same and task_of(config.task).exact:
            yield f"{answer.given!r} is said to be wrong and expected"
    if at - len(own) > (score.correct or 0):
        yield f"correct is {score.correct}, but {at - len(own)} are before the last wrong answer"


@lru_cache(10_000)
def _texts(config: RunConfig, length: int) -> tuple[int, ...]:
    """Return a hash of each prompt and answer of a test set, as a record shows them."""
    task = task_of(config.task)
    sample = examples(task, config, length)
    batch = to_sequences(sample, task, config.track)
    rows = zip(sample.prompt, batch.labels, batch.answer, strict=True)
    return tuple(hash((shown(text(task, p)), shown(text(task, own[m])))) for p, own, m in rows)


@lru_cache(100_000)
def _represents(encoding: Encoding, config: RunConfig, length: int) -> bool:
    """Return whether the encoding takes the positions of the test, as in evaluation."""
    task = task_of(config.task)
    batch = to_sequences(examples(task, config, length), task, config.track)
    how = _method(encoding, config)
    if how == "teacher-forced" or config.eval.window is not None:
        batch = batch.left_aligned(task.vocab.pad)
    ids = batch.inputs[:, : config.eval.window]
    ctx = Context(pos=batch.pos[:, : config.eval.window], ids=ids, **task.fields(ids))
    limit(encoding.max_len or 0, MOST_TOKENS, "positions")  # an encoding may draw them all
    try:
        plan = {"length": ctx.pos.shape[1]} if how == "decoded" else {}
        encoding.draw(ctx, generator=torch.Generator(), **plan)
    except PositionError:
        return False
    return True


def _method(encoding: Encoding, config: RunConfig) -> str:
    """Return how evaluation scores a model with this encoding."""
    model: Any = SimpleNamespace(encoding=encoding, track=config.track)
    return method(model, task_of(config.task))


def _answers(
    score: Score, count: int, tokens: int, longest: int, seen: bool, exact: bool
) -> Iterator[str]:
    """Compare a score with its test set: a wrong answer has a wrong token."""
    own = {"tokens": (score.tokens, tokens), "seen": (score.seen, seen)}
    yield from different({"count": (score.count, count)} | own)
    right, wrong = score.correct or 0, count - (score.correct or 0)
    hits, low, high = (
        (score.token or 0) * tokens,
        max(right, tokens - wrong * longest),
        tokens - wrong,
    )
    whole = abs(hits - round(hits)) <= 1e-3 and low - 0.01 <= hits <= high + 0.01
    if score.token is None or (exact and not whole):
        yield f"token={score.token} of {tokens} tokens, expected {low} to {high} right ones"
