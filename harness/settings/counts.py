"""How many examples a length is tested on."""

from __future__ import annotations

from harness.tasks.base import Task
from leaderboard.config import Eval


def sample_count(task: Task, test: Eval, length: int) -> int:
    """How many samples a length gets at most: fewer when they are long, never below the minimum."""
    tokens = sum(task.max_tokens(length)) + 1
    return max(test.min_samples, min(test.samples, test.max_tokens // tokens))


def example_count(task: Task, test: Eval, length: int, name: str = "") -> int:
    """How many examples a length, or one of the further test set of that name, has."""
    most = sample_count(task, test, length)
    if name or test.set or test.examples != "test":
        return most
    every = task.instances(length)
    return most if every is None else min(most, len(every.prompt))
