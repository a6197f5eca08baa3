"""Recompute what a record claims: its configuration from its command, its facts from the tasks.

`leaderboard.record.check` checks what needs neither torch nor the encodings and tasks.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import torch

from experiment.config import ConfigError, Eval, RunConfig
from experiment.protocol import PROTOCOLS, base
from harness import tasks
from harness.settings.protocol import (
    Request,
    example_count,
    parse_request,
    parts,
    resolve,
    token_count,
    version_of,
)
from harness.settings.sweep import Sweep, parse_sweep, possible_configs, sweep_configs
from harness.tasks.base import Task
from leaderboard.record.schema import Record, Score
from leaderboard.record.tuning import MARK, RUNS
from leaderboard.stats.tables import flat
from pezoo.base import Encoding, Shape
from pezoo.registry import entries, make
from pezoo.spec import parse

# The options of `pezoo bench` that a recorded command keeps.
VALUED = ("--pe", "--task", "--protocol", "--seeds", "--device", "--attention", "--jobs")
VALUED += ("--threads", "--stack", "--precision", "--set", "--tune", "--tune-seeds", "--format")
FLAGS = ("--compile", "--fresh", "--wide")
FAULTS = (ValueError, RuntimeError, MemoryError, OverflowError, TypeError, OSError)
VERSIONS = ("task_version", "encoding_version")


class Command(NamedTuple):
    """A parsed `pezoo bench`: a request, and its sweep, for each version of its protocol.

    Versions that cannot take its options are left out. `overrides` are the settings it changes;
    `from_file`: its protocol is a path.
    """

    requests: tuple[tuple[Request, Sweep | None], ...]
    overrides: tuple[str, ...]
    from_file: bool
    device: str
    attention: str


def refusals(record: Record) -> Iterator[str]:
    """Yield each claim of a record that differs from what is recomputed; nothing for a good one."""
    try:
        command = parse_command(record.provenance.command)
    except FAULTS as error:
        yield f"provenance.command: {error}"
        return
    try:
        yield from _request(record, command) or _config(record, command)
        if _task(record.task).version == record.config.task_version:
            yield from _facts(record, _task(record.task))
    except FAULTS as error:
        yield f"the run cannot be built: {error}"


@lru_cache(1000)
def parse_command(text: str) -> Command:
    """Parse a recorded command. Errors: ValueError."""
    options = _options(text)

    def last(name: str, default: str = "") -> str:
        return (options.get(name) or [default])[-1]

    overrides = (*options.get("--set", ()),)
    if (precision := last("--precision", "float32")) != "float32":
        overrides += (f"train.precision={precision}",)
    overrides += ("train.compile=true",) * ("--compile" in options)
    name = last("--protocol", "quick")
    asked = last("--pe"), last("--task")
    requests, errors = [], []
    for version in _versions(name):
        try:
            request = parse_request(*asked, version, last("--seeds") or None, overrides)
            requests.append(request)
        except ConfigError as error:
            errors.append(error)
    if not requests:
        raise errors[0]
    grid, seeds = options.get("--tune", ()), last("--tune-seeds", "100")
    return Command(
        tuple(
            (one, parse_sweep(grid, seeds, one.protocol, one.seeds) if grid else None)
            for one in requests
        ),
        overrides,
        name.endswith(".toml"),
        last("--device", "auto"),
        last("--attention", "auto"),
    )


def _options(text: str) -> dict[str, list[str]]:
    """Return the values of each option, "" for a flag. Errors: ValueError."""
    words = shlex.split(text)
    if words[:2] != ["pezoo", "bench"]:
        raise ValueError("expected a pezoo bench, which makes records")
    found: dict[str, list[str]] = {}
    rest = iter(words[2:])
    for word in rest:
        name, _, value = word.partition("=")
        if word not in FLAGS and name not in VALUED:
            raise ValueError(f"{name!r} is not an option that records keep")
        if word in VALUED and (value := next(rest, "")) == "":
            raise ValueError(f"{name} needs a value")
        found.setdefault(name, []).append(value)
    return found


def _versions(protocol: str) -> list[str]:
    """Return the names or files of a protocol's versions, the current one first."""
    file = Path(protocol)
    if file.suffix == ".toml":
        folder = file.parent.name
        if folder not in ("protocols", "earlier"):
            raise ConfigError(f"--protocol {protocol} is a file that other machines do not have")
        protocol = re.sub(r"-\d+$", "", file.stem) if folder == "earlier" else file.stem
    earlier = PROTOCOLS.glob("earlier/*.toml")
    same = [one for one in earlier if re.fullmatch(rf"{re.escape(protocol)}-\d+", one.stem)]
    return [protocol, *map(str, sorted(same))]


def _request(record: Record, command: Command) -> list[str]:
    """Return how the record differs from what its command asks for."""
    asked, sweep = command.requests[0]
    swept = record.for_tuning
    seeds = {
        seed
        for request, sweep in command.requests
        for seed in (sweep.seeds if swept and sweep else request.seeds)
    }
    own = plain_name(record.protocol)
    device = record.config.device if command.device == "auto" else command.device
    found = [
        f"{name} is {value}, but the command runs {', '.join(map(str, valid))}"
        for name, value, valid in (
            ("encoding", record.encoding, [*map(str, asked.encodings)]),
            ("task", record.task, [*map(tasks.canonical, asked.tasks)]),
            ("seed", record.seed, sorted(seeds)),
            ("protocol", base(own), [base(asked.protocol.name)]),
            ("config.device", record.config.device, [device]),
        )
        if value not in valid
    ]
    if not command.from_file and ("+" in own) != bool(command.overrides):
        changes = ", ".join(command.overrides) or "no setting"
        found.append(f"protocol is {own}, but the command changes {changes}")
    if (sweep is None) != (record.provenance.tuning is None and not swept):
        found.append(f"protocol is {record.protocol}, which does not fit the command's --tune")
    return found


def plain_name(protocol: str) -> str:
    """Return a protocol's name without the part that names a sweep.

    >>> plain_name("quick+ab12cd+tune-27014962"), plain_name("quick+tuning")
    ('quick+ab12cd', 'quick')
    """
    return protocol.partition(MARK)[0].removesuffix(RUNS)


def _config(record: Record, command: Command) -> Iterator[str]:
    """Compare the configuration with those that the command makes, by the closest of them."""
    configs = _configs(record.provenance.command, record.task, record.encoding)
    own = record.config
    current = configs[0]
    for name in VERSIONS:
        given, newest = getattr(own, name), getattr(current, name)
        if not _not_newer(given, newest):
            yield f"{name} {given} is not known: the code is at {newest}"
    differing = min((_differing(own, config) for config in configs), key=len)
    for name, (given, made) in [*differing.items()][:3]:
        yield f"config.{name} is {given}, but the command makes {made}"


@lru_cache(5000)
def _configs(text: str, task: str, encoding: str) -> list[RunConfig]:
    """Return the configurations of a command's runs of one task and encoding, without seeds."""
    command = parse_command(text)
    device = "cpu" if command.device == "auto" else command.device
    configs, errors = [], []
    for request, sweep in command.requests:
        spec = next(one for one in request.encodings if str(one) == encoding)
        try:
            made = [resolve(request.protocol, task, spec, 0, device, command.attention)]
            configs += (
                made if not sweep else sweep_configs(sweep, made) + possible_configs(sweep, made)
            )
        except ConfigError as error:
            errors.append(error)
    if not configs:
        raise errors[0]
    return configs


def _differing(own: RunConfig, made: RunConfig) -> dict[str, tuple[str | None, str | None]]:
    """Return (value, value made) of each setting that differs; versions and seeds are apart."""
    made = made.replace(
        seed=own.seed,
        device=own.device,
        protocol=made.protocol.replace(plain_name(made.protocol), plain_name(own.protocol)),
        **{name: getattr(own, name) for name in VERSIONS},
    )
    if own == made:
        return {}
    one, two = dict(flat("", own.model_dump())), dict(flat("", made.model_dump()))
    return {k: (one.get(k), two.get(k)) for k in one | two if one.get(k) != two.get(k)}


def _not_newer(given: int, current: int) -> bool:
    """Return whether every part of a version, three digits each, is at most the current one."""
    while given or current:
        if given % 1000 > current % 1000 or not given % 1000:
            return False
        given, current = given // 1000, current // 1000
    return True


def _facts(record: Record, task: Task) -> Iterator[str]:
    """Recompute chance, the encoding's size, limits and modes, and the tests' sizes."""
    config, cost = record.config, record.cost
    if record.chance is not None and abs(record.chance - task.chance) > 1e-9:
        yield f"chance is {record.chance}, but {record.task} has {task.chance}"
    tested = _tested(record)
    spec = parse(config.spec)
    if version_of(spec) == config.encoding_version:
        model, train = config.model, config.train
        tokens = train.context or token_count(task, task.lengths(*train.lengths)[-1])
        encoding = _encoding(config.spec, model.width, model.heads, model.layers, tokens)
        size = sum(weights.numel() for weights in encoding.parameters())
        if cost.encoding_parameters not in (None, size):
            yield f"cost.encoding_parameters is {cost.encoding_parameters}, expected {size}"
        limited = any(one.status == "cannot represent" for _, _, own in tested for one in own)
        if limited and encoding.max_len is None:
            yield f'status "cannot represent", but {record.encoding} represents every length'
        modes = {mode for name in parts(spec) for mode in entries()[name].load().modes}
        if unknown := sorted({*record.modes} - modes):
            yield f"modes has {unknown}, but {record.encoding} has {sorted(modes) or 'none'}"
    for place, name, scores in tested:
        sizes = _sizes(task, config.eval, name)
        for score in scores:
            for fault in _score(score, sizes[score.length], task) if score.length in sizes else ():
                yield f"{place}, length {score.length}: {fault}"
            if name and score.seen and (_longest(task, name, score.length) > record.train_length):
                yield f"{place}, length {score.length}: seen, but it is longer than in training"


def _tested(record: Record) -> list[tuple[str, str, Sequence[Score]]]:
    """Return (place in the record, test set, scores) of all scores of single checkpoints."""
    found: list[tuple[str, str, Sequence[Score]]] = []
    for mode, both in record.by_mode.items():
        place = f"modes.{mode}.scores" if mode else "scores"
        found += [(f"{place}.last", "", both.last), (f"{place}.best", "", both.best)]
    return found + [(f"sets.{name}", name, scores) for name, scores in record.sets.items()]


class Size(NamedTuple):
    """The examples of a length, and the most tokens of an answer with its end, if known."""

    count: int
    longest: int | None


def _score(score: Score, size: Size | None, task: Task) -> Iterator[str]:
    """Compare a score with the size of its test; None: the task has no instance."""
    if (size is None) != (score.status == "no instance"):
        has = "instances" if size else "no instance"
        yield f"{task.name} has {has} of this length, the status is {score.status}"
    elif size and score.status == "ok":
        if score.count != size.count:
            yield f"{score.count} examples, expected {size.count}"
        elif task.exact:
            yield from _tokens(score, size)


def _tokens(score: Score, size: Size) -> Iterator[str]:
    """Compare the right tokens with the right answers: a wrong answer has a wrong token."""
    right, count = score.correct or 0, score.count or 0
    wrong, share, tokens = count - right, score.token, score.tokens
    if share is None:
        return
    if tokens is None:
        if (right and not share) or (share > 1 - 1e-6) == (wrong > 0):
            yield f"token={share}, but {right} of {count} answers are right"
        return
    most = size.longest or tokens
    low, high = max(right, tokens - wrong * most), tokens - wrong
    if not count <= tokens <= count * most:
        yield f"{tokens} tokens in {count} answers, expected {count} to {count * most}"
    elif abs(share * tokens - round(share * tokens)) > 1e-3:
        yield f"token={share} is not a share of {tokens} tokens"
    elif not low - 0.01 <= share * tokens <= high + 0.01:
        yield f"token={share} of {tokens} tokens, expected {low} to {high} right ones"


@lru_cache(1000)
def _sizes(task: Task, test: Eval, name: str) -> dict[int, Size | None]:
    """Return the sizes of a test set by length, None for a length without instances."""
    lengths = {one.name: one.lengths for one in test.sets} | {"": test.lengths}
    return {
        length: Size(
            example_count(task, test, length, name),
            None if name or test.set else task.max_tokens(length)[1] + 1,
        )
        if task.lengths(length, length)
        else None
        for length in lengths.get(name, ())
    }


@lru_cache(10_000)
def _longest(task: Task, name: str, length: int) -> int:
    """Return the longest of a few instances of a test set, 0 where it has none of this length."""
    if not task.lengths(length, length):
        return 0
    return task.longest(task.test_set(name, torch.Generator().manual_seed(0), 8, length).prompt)


@lru_cache(1000)
def _encoding(spec: str, width: int, heads: int, layers: int, length: int) -> Encoding:
    return make(spec, Shape(width, heads, width // heads, layers, length))


_task = lru_cache(1000)(tasks.make)
