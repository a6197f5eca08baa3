"""Data, initial weights, sizes and the learning curve of a record, recomputed."""

import platform
from collections.abc import Iterator
from functools import lru_cache
from math import isclose

import torch

from experiment.config import Model, RunConfig
from harness.cli.verify.build import (
    MOST_TOKENS,
    MOST_WEIGHTS,
    Facts,
    different,
    encoding_of,
    lengths_of,
    limit,
    shared,
    size_of,
    task_of,
    weights_of,
)
from harness.cli.verify.scores import score_faults
from harness.data.batches import training_batch
from harness.model.transformer import Transformer, shape_of
from harness.runs.record import data_hash
from harness.settings.protocol import token_count, version_of
from harness.tasks.base import Task
from harness.training.trainer import lacking, start
from leaderboard.record.schema import Record
from pezoo.base import Encoding
from pezoo.registry import parse

MOST_LOGITS = 2**26  # of all layers that are trained to compare two encodings
NOISE = 0.5  # of exact match on the validation and the test examples of one length
STEPS = 3  # in which encodings that differ train differently
ROUNDING = 4e-7  # of their losses, relative; rope(base=9900.0) is 7e-6 from rope on copy


def alike(one: RunConfig, other: RunConfig) -> bool:
    """Return whether two encodings train alike but for rounding, as rope and self_extend do."""
    try:
        pairs = zip(_first_losses(one), _first_losses(other), strict=True)
        return all(isclose(a, b, rel_tol=ROUNDING) for a, b in pairs)
    except Exception:  # of a record that is refused for other reasons, or of a plug-in
        return False


@lru_cache(100)
def _first_losses(config: RunConfig) -> list[float]:
    """Train a few steps at the longest length, at the full rate, and return their losses."""
    tokens, rows = _batch_size(config), config.train.batch
    logits = tokens * (tokens // rows) * config.model.heads * config.model.layers
    limit(logits, MOST_LOGITS, "logits")
    limit(size_of(config.model), MOST_WEIGHTS // STEPS, "weights")
    task = task_of(config.task)
    top = lengths_of(task, config)[-1]
    easy = {"lengths": (top, top), "curriculum": (), "warmup": 0, "steps": config.train.steps or 1}
    here = {"device": "cpu", "attention": "eager", "task_version": task.version}
    trainer = start(config.replace(**here).replace_train(**easy))
    return [float(trainer.advance()) for _ in range(STEPS)]


def facts(record: Record, task: Task) -> Iterator[str]:
    """Recompute data, initial weights, sizes, the trials of a sweep, limits and modes."""
    config, cost, spec = record.config, record.cost, parse(record.config.spec)
    expected: Facts = {
        "chance": (record.chance, task.chance),
        "data_hash": (record.data_hash, _data_hash(shared(config))),
    }
    if (record.env.platform or record.env.device).endswith(platform.machine()):
        # Other kinds of processors round the normal distribution in other ways.
        expected["backbone_hash"] = record.backbone_hash, _backbone(config.model, config.seed)
    encoding = None
    if version_of(spec) == config.encoding_version:
        encoding = _encoding(config, task)
        expected["cost.encoding_parameters"] = cost.encoding_parameters, weights_of(encoding)
        if record.start and config.start:
            own, start = encoding.state_dict(), _encoding(config.start, task).state_dict()
            for name, names in ("missing", lacking(own, start)), ("left", lacking(start, own)):
                names = [f"encoding.{one}" for one in names]
                expected[f"start.{name}"] = getattr(record.start, name), names
        if record.status == "done":
            expected["modes"] = sorted(record.modes), sorted(encoding.modes)
    yield from different(expected)
    low, high = _tokens_of(shared(config.replace(seed=0)), record.last_step)
    low *= record.status == "done"  # others may have ended at any step
    if not low <= (cost.tokens or low) <= high:
        yield f"cost.tokens is {cost.tokens}, expected {low:.0f} to {high:.0f}"
    yield from score_faults(record, task, encoding)
    yield from _curve(record, task)


def _encoding(config: RunConfig, task: Task) -> Encoding:
    first = config.first
    tokens = first.train.context or token_count(task, lengths_of(task, first)[-1])
    return encoding_of(config.spec, shape_of(config.model, tokens))


@lru_cache(10_000)
def _data_hash(config: RunConfig) -> str:
    limit(_batch_size(config), MOST_TOKENS, "tokens")
    return data_hash(config)


def _batch_size(config: RunConfig) -> int:
    """Return the most tokens that are drawn for a batch."""
    train, lengths = config.train, lengths_of(task := task_of(config.task), config)
    rows = max(train.batch, train.samples // len(lengths))
    return rows * (train.context or token_count(task, lengths[-1]))


@lru_cache(1000)
def _tokens_of(config: RunConfig, steps: int) -> tuple[float, float]:
    """Return the least and the most tokens of so many steps, from batches all along them.

    They are six standard deviations from the mean; 1 % is for sizes too rare to be among them.
    """
    task = task_of(config.task)
    if not steps or config.train.context is not None:  # rows without padding
        return (steps * config.train.batch * (config.train.context or 0),) * 2
    count = max(8, min(32, MOST_TOKENS // _batch_size(config)))
    drawn = torch.zeros(count)
    for at in range(count):
        batch, _ = training_batch(task, config.replace(seed=at), at * steps // count)
        drawn[at] = (batch.inputs != task.vocab.pad).sum()
    mean, slack = float(drawn.mean()), 6 * float(drawn.std()) * (1 / count + 1 / steps) ** 0.5
    return steps * (0.99 * mean - slack), steps * (1.01 * mean + slack)


@lru_cache(10_000)
def _backbone(model: Model, seed: int) -> str:
    limit(size_of(model), MOST_WEIGHTS, "weights")
    return Transformer(model, Encoding(shape_of(model, 1)), seed, "eager").backbone_hash()


def _curve(record: Record, task: Task) -> Iterator[str]:
    """Compare the curve, over all training lengths, with the scores at some of them."""
    lengths, curve = lengths_of(task, record.config), {p.step: p.exact for p in record.learning}
    answers = record.config.eval.validation_samples * len(lengths)
    right = [(share or 0) * answers for share in curve.values()]
    if any(abs(number - round(number)) > 1e-6 for number in right):
        yield f"learning has an exact match that is not a multiple of 1/{answers}"
    for name, scores, step in (
        ("last", record.scores.last, record.last_step),
        ("best", record.scores.best, record.best_step),
    ):
        own = [s.exact for s in scores if s.exact is not None and s.length in lengths]
        whole = curve.get(step or 0)
        if whole is None or record.config.eval.set:
            continue
        least, most = sum(own) / len(lengths), 1 - sum(1 - x for x in own) / len(lengths)
        slack = NOISE * len(own) ** 0.5 / len(lengths)
        if not least - slack <= whole <= most + slack:
            yield f"learning has exact {whole} at step {step}, unlike scores.{name}"
