"""Recompute what a record claims: its configuration from its command, its facts from building it.

`leaderboard.record.check` checks what needs neither torch nor the encodings and tasks. Nothing of a
record is trained: `harness.cli.rerun` does that.
"""

import platform
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import torch

from experiment.config import ConfigError, Eval, Model, RunConfig
from experiment.protocol import PROTOCOLS, base
from harness import tasks
from harness.cli import bench
from harness.cli.train import recorded_command
from harness.data.batches import training_batch
from harness.data.sequences import to_sequences
from harness.model.transformer import Transformer, shape_of
from harness.runs.record import data_hash
from harness.settings.protocol import (
    Request,
    resolve,
    sample_count,
    token_count,
    version_of,
)
from harness.settings.sweep import Sweep, possible_configs, sweep_configs
from harness.tasks.base import Task
from harness.training.evaluate import WRONG, examples, method, text
from harness.training.trainer import start
from leaderboard.escape import shown
from leaderboard.record.check import EARLIEST
from leaderboard.record.schema import Record, Score
from leaderboard.record.tuning import MARK, best, cells
from leaderboard.stats.tables import flat
from pezoo.base import Context, Encoding, PositionError, Shape
from pezoo.registry import make, parse

FAULTS = (ValueError, RuntimeError, MemoryError, OverflowError, TypeError, OSError)
VERSIONS = ("task_version", "encoding_version")
MOST_TOKENS = 2**24  # in what a check draws at once
MOST_TESTED = 2**28  # in all test sets, which a run draws before its first step too
MOST_LOGITS = 2**26  # of a layer that is trained to compare two encodings
MOST_WEIGHTS = 2**28  # in a backbone that a check initialises
NOISE = 0.5  # of exact match on the validation and the test examples of one length
STEPS = 3  # in which encodings that differ train differently
ENCODING = ("encoding", "spec", "encoding_version", "protocol", "device", "attention")

Facts = dict[str, tuple[Any, Any]]  # (in the record, expected)
Requests = list[tuple[Request, Sweep | None]]


def refusals(record: Record, protocols: Sequence[Path] = ()) -> Iterator[str]:
    """Yield each claim of a record that differs from what is recomputed; nothing for a good one.

    `protocols` are the files that `--protocol` may name beside the packaged ones.
    """
    command = record.provenance.command, tuple(protocols)
    try:
        asked = parse_command(*command)[0][0][0]
    except FAULTS as error:
        yield f"provenance.command: {error}"
        return
    faults = [
        f"{name} is {value}, but the command runs {', '.join(valid)}"
        for name, value, valid in (
            ("encoding", record.encoding, [*map(str, asked.encodings)]),
            ("task", record.task, [*map(tasks.canonical, asked.tasks)]),
        )
        if value not in valid
    ]
    try:
        yield from (faults := faults or [*_config(record.config, *command)])
        task = _task(record.task)
        if not faults:
            cost, rest = record.cost, _size_of(record.config.model)
            size = cost.parameters, rest + (cost.encoding_parameters or 0)
            yield from _different({"cost.parameters": size} | _sweep(record, *command))
        if not faults and task.version == record.config.task_version:
            yield from _facts(record, task)
    except FAULTS as error:
        yield f"the run cannot be built: {error}"


@lru_cache(1000)
def parse_command(text: str, protocols: tuple[Path, ...] = ()) -> tuple[Requests, dict[str, Any]]:
    """Parse a recorded `pezoo bench`, and build every encoding and task in it.

    Returns a request, and its sweep, for each version of its protocol that takes its options, and
    the options. Errors: ValueError.
    """
    words = shlex.split(text)
    if words[:2] != ["pezoo", "bench"] or "--help" in words:
        raise ValueError("expected a pezoo bench, which makes records")
    try:
        typed = bench.command.make_context("bench", words[2:]).params
    except click.ClickException as error:
        raise ValueError(error.format_message()) from error
    if typed["dry_run"] or words != shlex.split(recorded_command(words[1:])):
        raise ValueError("it has options that records do not keep, such as --runs or --dry-run")
    requests: Requests = []
    errors = []
    for version in _versions(typed["protocol"], protocols):
        try:
            request, sweep = bench.requested(SimpleNamespace(**typed | {"protocol": version}))
        except ConfigError as error:
            errors.append(error)
            continue
        if requests and requests[0][0].protocol.name == base(request.protocol.name):
            named = request.protocol.model_copy(update={"name": base(request.protocol.name)})
            request = replace(request, protocol=named)  # as when its file was the current one
        requests.append((request, sweep))
    if not requests:
        raise errors[0]
    request, attention = requests[0][0], typed["attention"]
    first, *others = request.encodings
    for task in request.tasks:
        resolve(request.protocol, task, first, 0, "cpu", attention)
    for one in others:
        config = resolve(request.protocol, request.tasks[0], one, 0, "cpu", attention)
        _encoding(config.spec, shape_of(config.model, 8))
    return requests, typed


def _versions(protocol: str, own: Sequence[Path]) -> list[str]:
    """Return the names or files of a protocol's versions, the current one first."""
    file = Path(protocol)
    if file.suffix == ".toml":
        if same := [str(path) for path in own if path.name == file.name]:
            return same[:1]
        folder = file.parent.name
        if folder not in ("protocols", "earlier"):
            raise ConfigError(
                f"--protocol {protocol} is a file that other machines do not have: "
                f"repeat it here, as --protocol {protocol}"
            )
        protocol = re.sub(r"-\d+$", "", file.stem) if folder == "earlier" else file.stem
    earlier = PROTOCOLS.glob("earlier/*.toml")
    same = [str(one) for one in earlier if re.fullmatch(rf"{re.escape(protocol)}-\d+", one.stem)]
    return [protocol, *sorted(same)]


def alike(one: Record, other: Record) -> bool:
    """Return whether two encodings train alike, as rope and window:rope on short texts."""
    try:
        return _first_losses(one.config) == _first_losses(other.config)
    except Exception:  # of a record that is refused for other reasons, or of a plug-in
        return False


@lru_cache(100)
def _first_losses(config: RunConfig) -> list[float]:
    """Train a few steps at the longest length, at the full rate, and return their losses."""
    tokens, rows = _batch_size(config), config.train.batch
    _limit(tokens * (tokens // rows) * config.model.heads, MOST_LOGITS, "logits")
    _limit(_size_of(config.model), MOST_WEIGHTS, "weights")
    top = _lengths(_task(config.task), config)[-1]
    easy = {"lengths": (top, top), "curriculum": (), "warmup": 0}
    trainer = start(config.replace(device="cpu", attention="eager").replace_train(**easy))
    return [float(trainer.advance()) for _ in range(STEPS)]


def _config(own: RunConfig, text: str, protocols: tuple[Path, ...]) -> Iterator[str]:
    """Compare the configuration with those that the command makes, by the closest of them."""
    typed = parse_command(text, protocols)[1]
    configs = _configs(text, protocols, own.task, own.encoding)
    for name in VERSIONS:
        given, newest = getattr(own, name), getattr(configs[0][0], name)
        if given != newest and own.hash not in EARLIEST:  # nothing of it could be recomputed
            yield f"{name} is {given}: the code is at {newest}"
    device = own.device if typed["device"] == "auto" else typed["device"]
    differing = min((_differing(own, *made, device) for made in configs), key=len)
    for name, (given, made) in [*differing.items()][:3]:
        yield f"config.{name} is {given}, but the command makes {made}"


@lru_cache(5000)
def _configs(
    text: str, protocols: tuple[Path, ...], task: str, encoding: str
) -> list[tuple[RunConfig, list[int]]]:
    """Return a command's runs of one task and encoding: those of a seed, and all their seeds."""
    requests, typed = parse_command(text, protocols)
    configs: list[tuple[RunConfig, list[int]]] = []
    errors = []
    for request, sweep in requests:
        spec = next(one for one in request.encodings if str(one) == encoding)
        try:
            made = [resolve(request.protocol, task, spec, 0, "cpu", typed["attention"])]
        except ConfigError as error:
            errors.append(error)
            continue
        if sweep is not None:
            tried = sweep_configs(Sweep(sweep.grid, sweep.seeds[:1]), made)
            configs += [(config, sweep.seeds) for config in tried]
            made = possible_configs(sweep, made)
        configs += [(config, request.seeds) for config in made]
    if not configs:
        raise errors[0]
    return configs


def _differing(
    own: RunConfig, made: RunConfig, seeds: list[int], device: str
) -> dict[str, tuple[str | None, str | None]]:
    """Return (value, value made) of each setting that differs, but for the versions."""
    made = made.replace(
        seed=own.seed if own.seed in seeds else seeds[0],
        device=device,
        **{name: getattr(own, name) for name in VERSIONS},
    )
    if own == made:
        return {}
    one, two = dict(flat("", own.model_dump())), dict(flat("", made.model_dump()))
    return {k: (one.get(k), two.get(k)) for k in one | two if one.get(k) != two.get(k)}


def _facts(record: Record, task: Task) -> Iterator[str]:
    """Recompute data, initial weights, sizes, the trials of a sweep, limits and modes."""
    config, cost, spec = record.config, record.cost, parse(record.config.spec)
    expected: Facts = {
        "chance": (record.chance, task.chance),
        "data_hash": (record.data_hash, _data_hash(_shared(config))),
    }
    if (record.env.platform or record.env.device).endswith(platform.machine()):
        # Other kinds of processors round the normal distribution in other ways.
        expected["backbone_hash"] = record.backbone_hash, _backbone(config.model, config.seed)
    encoding = None
    if version_of(spec) == config.encoding_version:
        tokens = config.train.context or token_count(task, _lengths(task, config)[-1])
        encoding = _encoding(config.spec, shape_of(config.model, tokens))
        expected["cost.encoding_parameters"] = cost.encoding_parameters, _weights(encoding)
        if record.status == "done":
            expected["modes"] = sorted(record.modes), sorted(encoding.modes)
    yield from _different(expected)
    low, high = _tokens_of(_shared(config.replace(seed=0)))
    low *= record.status == "done"  # others may have ended at any step
    if not low <= (cost.tokens or low) <= high:
        yield f"cost.tokens is {cost.tokens}, expected {low:.0f} to {high:.0f}"
    yield from _scores(record, task, encoding)
    yield from _curve(record, task)


def _different(expected: Facts) -> Iterator[str]:
    for name, (found, value) in expected.items():
        close = isinstance(value, float) and found is not None and abs(found - value) <= 1e-9
        if found not in (None, value) and not close:
            yield f"{name} is {str(found)[:200]}, expected {str(value)[:200]}"


def _sweep(record: Record, text: str, protocols: tuple[Path, ...]) -> Facts:
    """Return what the record says of its sweep, and what the command gives."""
    config, tuning = record.config, record.provenance.tuning
    sweep = parse_command(text, protocols)[0][0][1] if MARK in config.protocol else None
    if sweep is None or tuning is None:
        return {"a sweep in provenance": (tuning is not None, sweep is not None)}
    plain = config.replace(protocol=config.protocol.partition(MARK)[0])
    runs, values = [run.hash for run in sweep_configs(sweep, [plain])], cells(sweep.grid)
    tokens = {cell.token is not None for cell in tuning.cells if cell.exact is not None}
    chosen = {name: getattr(config.train, name) for name in sweep.grid}
    tried = [(each, runs[at :: len(values)]) for at, each in enumerate(values)]
    return {
        "sweep": ((tuning.grid, tuning.seeds), (sweep.grid, sweep.seeds)),
        "cells": ([(cell.values, cell.runs) for cell in tuning.cells], tried),
        "cells with a token accuracy": (tokens, {config.track == "encoder"}),
        "chosen": (tuning.chosen, chosen),
        "the best cell": (chosen, getattr(best(tuning.cells), "values", None)),
    }


def _lengths(task: Task, config: RunConfig) -> list[int]:
    return task.lengths(*config.train.lengths)


def _shared(config: RunConfig) -> RunConfig:
    """Return a run with the same batches and tests, whatever its encoding."""
    return config.replace(**dict.fromkeys(ENCODING, ""))


@lru_cache(10_000)
def _data_hash(config: RunConfig) -> str:
    _limit(_batch_size(config), MOST_TOKENS, "tokens")
    return data_hash(config)


def _batch_size(config: RunConfig) -> int:
    """Return the most tokens that are drawn for a batch."""
    train, lengths = config.train, _lengths(task := _task(config.task), config)
    rows = max(train.batch, train.samples // len(lengths))
    return rows * (train.context or token_count(task, lengths[-1]))


@lru_cache(1000)
def _tokens_of(config: RunConfig) -> tuple[float, float]:
    """Return the least and the most tokens of a training, from batches all along it.

    They are six standard deviations from the mean; 1 % is for sizes too rare to be among them.
    """
    task, steps = _task(config.task), config.train.steps
    if config.train.context is not None:  # rows without padding
        return (steps * config.train.batch * config.train.context,) * 2
    count = max(8, min(32, MOST_TOKENS // _batch_size(config)))
    drawn = torch.zeros(count)
    for at in range(count):
        batch, _ = training_batch(task, config.replace(seed=at), at * steps // count)
        drawn[at] = (batch.inputs != task.vocab.pad).sum()
    mean, slack = float(drawn.mean()), 6 * float(drawn.std()) * (1 / count + 1 / steps) ** 0.5
    return steps * (0.99 * mean - slack), steps * (1.01 * mean + slack)


@lru_cache(10_000)
def _backbone(model: Model, seed: int) -> str:
    _limit(_size_of(model), MOST_WEIGHTS, "weights")
    return Transformer(model, Encoding(shape_of(model, 1)), seed, "eager").backbone_hash()


@lru_cache(1000)
def _size_of(model: Model) -> int:
    """Return the number of weights outside of the encoding."""
    with torch.device("meta"):
        return _weights(Transformer(model, Encoding(shape_of(model, 1)), 0, "eager", "meta"))


@lru_cache(10_000)
def _encoding(spec: str, shape: Shape) -> Encoding:
    """Build an encoding without memory for its weights: a record's table may be of any size."""
    try:
        with torch.device("meta"):
            return make(spec, shape)
    except (RuntimeError, NotImplementedError):  # a plug-in that reads values while it is built
        return make(spec, shape)


def _weights(module: torch.nn.Module) -> int:
    return sum(part.numel() for part in module.parameters())


def _limit(size: int, most: int, what: str) -> None:
    if size > most:
        raise ValueError(f"{size:,} {what} are too many to check; the most are {most:,}")


def _curve(record: Record, task: Task) -> Iterator[str]:
    """Compare the curve, over all training lengths, with the scores at some of them."""
    lengths, curve = _lengths(task, record.config), {p.step: p.exact for p in record.learning}
    answers = record.config.eval.validation_samples * len(lengths)
    right = [(share or 0) * answers for share in curve.values()]
    if any(abs(number - round(number)) > 1e-6 for number in right):
        yield f"learning has an exact that is no share of {answers} answers"
    for name, scores, step in (
        ("last", record.scores.last, record.config.train.steps),
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


def _scores(record: Record, task: Task, encoding: Encoding | None) -> Iterator[str]:
    """Compare every score with its test set, and with what the encoding represents."""
    own = _shared(record.config.replace(seed=0))
    tests = {t.name: own.replace_eval(set=t.name, lengths=t.lengths) for t in own.eval.sets}
    tests[""] = own
    sizes = [_size(task, t.eval, n) for t in tests.values() for n in t.eval.lengths]
    _limit(max(sizes), MOST_TOKENS, "tokens")
    _limit(sum(sizes), MOST_TESTED, "tokens")
    losses, below = [p.loss or 0.0 for p in record.learning], own.eval.top_below
    begun = next((at for at, x in enumerate(losses) if below is None or x < below), len(losses))
    tested = [(place, name, scores, 1) for place, name, scores in record.tested()]
    for part, most in (("top1", 1), ("top3", 3), ("top3_each", 3)):  # sums of so many evaluations
        found = getattr(record.scores, part)
        tested.append((f"scores.{part}", "", found, min(most, len(losses) - begun)))
    for place, name, scores, times in tested:
        test = tests.get(name, own)
        answers = own.track != "text" and place.endswith(".last")
        kept = None if record.run in EARLIEST else WRONG * answers
        for score in (one for one in scores if one.length in test.eval.lengths):
            for fault in _score(score, test, encoding, times, kept):
                yield f"{place}, length {score.length}: {fault}"


def _size(task: Task, test: Eval, length: int) -> int:
    """Return the most tokens of a test set."""
    there = task.lengths(length, length)
    return sample_count(task, test, length) * token_count(task, length) if there else 0


def _score(
    score: Score, config: RunConfig, encoding: Encoding | None, times: int, kept: int | None
) -> Iterator[str]:
    """Compare a score with its test; without an encoding of its version, with the test set."""
    task = _task(config.task)
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
        if (score.bits is None) == (config.track == "text"):
            yield f"bits is {score.bits}, and the track is {config.track}"
        if encoding and score.method != (how := _method(encoding, config)):
            yield f"method is {score.method!r}, expected {how!r}"


@lru_cache(100_000)
def _test(config: RunConfig, length: int) -> tuple[int, int, int, bool] | None:
    """Draw a test set: its examples, the tokens of all answers and the longest, and if it is seen.

    None for a length without instances.
    """
    task, high = _task(config.task), config.train.lengths[1]
    if not task.lengths(length, length):
        return None
    sample = examples(task, config, length)
    sizes = to_sequences(sample, task, config.track).counted.sum(1)
    seen = length <= high and (not config.eval.set or task.longest(sample.prompt) <= high)
    return len(sizes), int(sizes.sum()), int(sizes.max()), seen


def _wrong(score: Score, config: RunConfig, most: int | None) -> Iterator[str]:
    """Compare the wrong answers with the test set: they are its first ones, in its order."""
    own, wrong = score.wrong, (score.count or 0) - (score.correct or 0)
    if most is not None and len(own) != min(most, wrong):
        yield f"{len(own)} wrong answers, expected {min(most, wrong)}"
    rows, at = _texts(config, score.length) if own else (), 0
    for answer in own:
        try:
            at = rows.index(hash((answer.prompt, answer.expected)), at) + 1
        except ValueError:
            yield f"{answer.prompt!r} with the answer {answer.expected!r} is not in the test set"
            return
        same = answer.given == answer.expected and not answer.expected.endswith("…")
        if same and _task(config.task).exact:
            yield f"{answer.given!r} is said to be wrong and expected"
    if at - len(own) > (score.correct or 0):
        yield f"correct is {score.correct}, but {at - len(own)} are before the last wrong answer"


@lru_cache(10_000)
def _texts(config: RunConfig, length: int) -> tuple[int, ...]:
    """Return a hash of each prompt and answer of a test set, as a record shows them."""
    task = _task(config.task)
    sample = examples(task, config, length)
    batch = to_sequences(sample, task, config.track)
    rows = zip(sample.prompt, batch.labels, batch.answer, strict=True)
    return tuple(hash((shown(text(task, p)), shown(text(task, own[m])))) for p, own, m in rows)


@lru_cache(100_000)
def _represents(encoding: Encoding, config: RunConfig, length: int) -> bool:
    """Return whether the encoding takes the positions of the test, as in evaluation."""
    task = _task(config.task)
    batch = to_sequences(examples(task, config, length), task, config.track)
    how = _method(encoding, config)
    if how == "teacher-forced" or config.eval.window is not None:
        batch = batch.left_aligned(task.vocab.pad)
    ids = batch.inputs[:, : config.eval.window]
    ctx = Context(pos=batch.pos[:, : config.eval.window], ids=ids, slots=task.slots(ids))
    _limit(encoding.max_len or 0, MOST_TOKENS, "positions")  # an encoding may draw them all
    try:
        plan = {"length": ctx.pos.shape[1]} if how == "decoded" else {}
        encoding.draw(ctx, generator=torch.Generator(), **plan)
    except PositionError:
        return False
    return True


def _method(encoding: Encoding, config: RunConfig) -> str:
    """Return how evaluation scores a model with this encoding."""
    model: Any = SimpleNamespace(encoding=encoding, track=config.track)
    return method(model, _task(config.task))


def _answers(
    score: Score, count: int, tokens: int, longest: int, seen: bool, exact: bool
) -> Iterator[str]:
    """Compare a score with its test set: a wrong answer has a wrong token."""
    own = {"tokens": (score.tokens, tokens), "seen": (score.seen, seen)}
    yield from _different({"count": (score.count, count)} | own)
    right, wrong = score.correct or 0, count - (score.correct or 0)
    hits, low, high = (
        (score.token or 0) * tokens,
        max(right, tokens - wrong * longest),
        tokens - wrong,
    )
    whole = abs(hits - round(hits)) <= 1e-3 and low - 0.01 <= hits <= high + 0.01
    if exact and score.token is not None and not whole:
        yield f"token={score.token} of {tokens} tokens, expected {low} to {high} right ones"


_task = lru_cache(1000)(tasks.make)
