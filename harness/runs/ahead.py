"""Before training: whether the task can make all that the run will ask of it.

A task of one's own may fail at a length that only the tests have, as a Turing machine that does not
halt there: that must not be found out after hours of training.
"""

from __future__ import annotations

from experiment.config import RunConfig
from harness import tasks
from harness.data.seeds import generator
from harness.tasks.base import Task
from harness.training.evaluate import examples, validation_examples


def draw_all(config: RunConfig) -> None:
    """Draw every test and validation set once, and a batch of the longest training length.

    Errors: those of the task, TaskError as a rule.
    """
    task, train = tasks.make(config.task), config.train
    lengths = task.lengths(*train.lengths)
    task.sample(generator("ahead", config.seed), train.batch, lengths[-1])
    for length in lengths:
        validation_examples(task, config, length)
    _test_set(task, config)
    for one in config.eval.sets:
        _test_set(task, config.replace_eval(set=one.name, lengths=one.lengths))


def _test_set(task: Task, config: RunConfig) -> None:
    for length in config.eval.lengths:
        if task.lengths(length, length):
            examples(task, config, length)
