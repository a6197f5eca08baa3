"""Whether a record's scores can be those of its task: the lengths, the examples, their tokens."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import torch

from experiment.config import Eval
from harness.settings.counts import example_count
from harness.tasks.base import Task
from leaderboard.record.schema import Record
from leaderboard.record.scores import Score


class Size(NamedTuple):
    """How many examples a length has, and the most tokens of an answer, its end included."""

    count: int
    longest: int | None  # None: not known


def refusals(record: Record, task: Task) -> Iterator[str]:
    """What they cannot be; the task is at the record's version."""
    test = record.config.eval
    for where, both in record.by_mode.items():
        place = f"modes.{where}.scores" if where else "scores"
        for part, scores in (("last", both.last), ("best", both.best)):
            yield from _fits(f"{place}.{part}", scores, _sizes(task, test), task)
    for name, scores in record.sets.items():
        yield from _fits(f"sets.{name}", scores, _sizes(task, test, name), task)
        yield from _seen(record.train_length, name, scores, task)


def _fits(
    place: str, scores: list[Score], sizes: dict[int, Size | None], task: Task
) -> Iterator[str]:
    """Lengths have "no instance" where the task has none, and only there; else what is asked."""
    for score in scores:
        at, size = f"{place}, length {score.length}", sizes.get(score.length)
        if score.length in sizes and (size is None) != (score.status == "no instance"):
            has = "instances" if size else "no instance"
            yield f"{at}: {task.name} has {has} of this length, the status is {score.status}"
        elif size and score.status == "ok":
            if score.count != size.count:
                yield f"{at}: {score.count} examples, but the settings give {size.count}"
            elif task.exact and (fault := _tokens(score, size)):
                yield f"{at}: {fault}"


def _tokens(score: Score, size: Size) -> str:
    """Why the right tokens do not fit the right answers; a wrong one has a wrong token."""
    right, count = score.correct or 0, score.count or 0
    wrong, share, tokens = count - right, score.token, score.tokens
    if share is None:
        return ""
    if tokens is None:
        fits = (share > 0 or not right) and (share < 1 or not wrong)
        return "" if fits else f"token={share}, but {right} of {count} answers are right"
    if size.longest and tokens > count * size.longest:
        return f"{tokens} tokens in {count} answers: each has at most {size.longest}"
    least = max(right, tokens - wrong * size.longest) if size.longest else right
    if least - 0.01 <= share * tokens <= tokens - wrong + 0.01:
        return ""
    return (
        f"token={share} of {tokens} tokens, but {right} right ones of {count} answers give "
        f"{least} to {tokens - wrong} right tokens"
    )


def _seen(top: int, name: str, scores: list[Score], task: Task) -> Iterator[str]:
    """A length of a further test set is seen where no instance is longer than those in training."""
    for score in scores:
        longest = _longest(task, name, score.length) if score.seen else None
        if longest is not None and longest > top:
            yield (
                f"{name}, length {score.length}: seen, but instances of length {longest} are "
                f"longer than in training ({top})"
            )


@lru_cache(1000)
def _sizes(task: Task, test: Eval, name: str = "") -> dict[int, Size | None]:
    """By length, of the test or of a further test set; None for no instance."""
    lengths = {one.name: one.lengths for one in test.sets} | {"": test.lengths}
    return {
        length: _size(task, test, length, name) if task.lengths(length, length) else None
        for length in lengths.get(name, ())
    }


def _size(task: Task, test: Eval, length: int, name: str) -> Size:
    longest = None if name or test.set else task.max_tokens(length)[1] + 1
    return Size(example_count(task, test, length, name), longest)


@lru_cache(10_000)
def _longest(task: Task, name: str, length: int) -> int | None:
    """The longest of a few instances of a test set; None where there is none of that length."""
    if not task.lengths(length, length):
        return None
    return task.longest(task.test_set(name, torch.Generator().manual_seed(0), 8, length).prompt)
