"""Whether a record's encoding and task can be built, and what is built fits the record."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from experiment.config import ConfigError, Protocol
from experiment.protocol import PROTOCOLS, base
from harness.settings import tested
from harness.settings.counts import token_count
from harness.settings.protocol import load_protocol, version_of
from harness.tasks.base import Task, TaskError
from leaderboard.catalog import ProtocolDoc
from leaderboard.record.commanded import options_of, overrides_of, plain_name
from leaderboard.record.schema import Record
from pezoo.base import Encoding, Shape

FAULTS = (ValueError, RuntimeError, MemoryError, OverflowError, TypeError)


def refusals(record: Record) -> Iterator[str]:
    """Why one of them cannot be, or what it has; nothing for a good record."""
    yield from _settings(record)
    task, tokens = _task(record.task), None
    if isinstance(task, str):
        yield task
    elif task.version == record.config.task_version:
        tokens = _train_tokens(record, task)
        if record.chance is not None and abs(record.chance - task.chance) > 1e-9:
            yield f"chance is {record.chance}, but {record.task} has {task.chance}"
        try:
            yield from tested.refusals(record, task)
        except TaskError as error:
            yield str(error)
    yield from _encoded(record, tokens)


def _train_tokens(record: Record, task: Task) -> int | None:
    """Those of the longest sequence in training, as in `harness.training.trainer.build`."""
    train = record.config.train
    lengths = task.lengths(*train.lengths)
    return train.context or (token_count(task, lengths[-1]) if lengths else None)


def _encoded(record: Record, tokens: int | None) -> Iterator[str]:
    """The encoding can be built; of this version, it has as many parameters, and a limit."""
    config, given = record.config, record.cost.encoding_parameters
    sizes = config.model.width, config.model.heads, config.model.layers
    made = _encoding(config.encoding, *sizes, tokens or record.train_length)
    if isinstance(made, str):
        yield made
        return
    encoding, version = made
    if version != config.encoding_version:
        return
    own = sum(weights.numel() for weights in encoding.parameters())
    if tokens and given not in (None, own):
        yield f"cost.encoding_parameters is {given}, but {record.encoding} has {own}"
    every = [score for both in record.by_mode.values() for score in (*both.last, *both.best)]
    every += [score for scores in record.sets.values() for score in scores]
    if encoding.max_len is None and any(score.status == "cannot represent" for score in every):
        yield f'scores have "cannot represent", but {record.encoding} represents every length'


def _settings(record: Record) -> Iterator[str]:
    """Those of a changed protocol are what the command makes of a version of it."""
    name = plain_name(record.protocol)
    if "+" not in name or record.for_tuning:
        return
    try:
        versions = _versions(base(name), overrides_of(options_of(record.provenance.command)))
    except (ConfigError, ValueError, RecursionError) as error:
        yield f"the command cannot run: {error}"
        return
    if ProtocolDoc(name, "", 0, {}, versions).version_of(record) is None:
        yield f"the settings of protocol {name} are not those that the command makes"


@lru_cache(1000)
def _versions(name: str, overrides: tuple[str, ...]) -> tuple[Protocol, ...]:
    """Those that take the overrides. Errors: ConfigError, of the newest, where none does."""
    earlier = [p for p in PROTOCOLS.glob("earlier/*.toml") if re.fullmatch(rf"{name}-\d+", p.stem)]
    made, errors = [], []
    for file in (name, *map(str, earlier)):
        try:
            made.append(load_protocol(file, overrides))
        except ConfigError as error:
            errors.append(error)
    if not made:
        raise errors[0]
    return tuple(made)


@lru_cache(1000)
def _encoding(
    spec: str, width: int, heads: int, layers: int, length: int
) -> tuple[Encoding, int] | str:
    """It and its version, or why it cannot be built."""
    from pezoo.registry import check, make
    from pezoo.spec import parse

    try:
        encoding = make(spec, Shape(width, heads, width // heads, layers, length))
        return encoding, version_of(check(parse(spec)))
    except FAULTS as error:
        return f"it cannot be built: {error}"


@lru_cache(1000)
def _task(text: str) -> Task | str:
    """The task, or why it cannot be built."""
    from harness import tasks

    try:
        return tasks.make(text)
    except FAULTS as error:
        return f"it cannot be built: {error}"
