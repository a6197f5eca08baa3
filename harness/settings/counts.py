"""How many tokens an instance of a length has, and how many examples it is tested on."""

from __future__ import annotations

from experiment.config import Eval
from harness.tasks.base import Task


def token_count(task: Task, length: int) -> int:
    """The most tokens of an instance: its prompt, its answer and the end."""
    return sum(task.max_tokens(length)) + 1


def sample_count(task: Task, test: Eval, length: int) -> int:
    """How many samples a length gets at most: fewer when they are long, never below the minimum."""
    fitting = test.max_tokens // token_count(task, length)
    return max(test.min_samples, min(test.samples, fitting))


def example_count(task: Task, test: Eval, length: int, name: str = "") -> int:
    """How many examples a length, or one of the further test set of that name, has."""
    most = sample_count(task, test, length)
    if name or test.set or test.examples != "test":
        return most
    every = task.instances(length)
    return most if every is None else min(most, len(every.prompt))
