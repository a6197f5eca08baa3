"""Count the tokens of instances, and the examples of tests."""

from __future__ import annotations

from experiment.config import Eval
from harness.tasks.base import Task


def token_count(task: Task, length: int) -> int:
    """Return the most tokens of an instance: prompt, answer and end."""
    return sum(task.max_tokens(length)) + 1


def sample_count(task: Task, test: Eval, length: int) -> int:
    """Return the most samples of a length: fewer if they are long, never below the minimum."""
    fitting = test.max_tokens // token_count(task, length)
    return max(test.min_samples, min(test.samples, fitting))


def example_count(task: Task, test: Eval, length: int, name: str = "") -> int:
    """Return the number of examples of a length in the test or in a further test set."""
    most = sample_count(task, test, length)
    if name or test.set or test.examples != "test":
        return most
    every = task.instances(length)
    return most if every is None else min(most, len(every.prompt))
