"""The ways in which a record contradicts itself, beyond a valid form."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from statistics import fmean

from leaderboard.escape import command_text
from leaderboard.record.schema import Cost, Lesson, Record, Scores

FIRST = datetime(2026, 11, 21, 4, 54, 37, tzinfo=UTC)  # the first commit: no run is older
SLACK = 2.0  # for threads that torch did not start
STEP = 1e-4  # seconds, of which no training step takes fewer
PER_THREAD, PER_DEVICE = 1e12, 1e15  # operations a second: ten times what a thread has reached
MOST_THREADS = 1024
LEAST_MB, MOST_MB = 50.0, 1e7  # of a process with torch in it
OLDEST = {"python": (3, 11), "torch": (2, 10), "numpy": (1, 26)}  # that pezoo runs on
MOST_CORES = 2**16
# Nats: right tokens cost at most the logarithm of the vocabulary, the rest is an encoding's own.
RIGHT_LOSS, WRONG_LOSS = 100.0, 1e6
NUMBERS = attrgetter("length", "status", "correct", "count", "token", "tokens")


def refusals(record: Record) -> Iterator[str]:
    """Yield each way in which a record contradicts itself; nothing for a good one."""
    yield from _identity(record)
    yield from _provenance(record)
    if record.status == "failed":
        if not record.reason:
            yield "status is failed, but reason is empty"
        if any(scores for _, _, scores in record.tested()):
            yield "status is failed, but there are scores"
        yield from _until_failed(record)
        return
    known = {name: getattr(record, name) for name in ("data_hash", "backbone_hash", "chance")}
    known |= {f"cost.{one.name}": getattr(record.cost, one.name) for one in fields(Cost)}
    missing = [name for name, value in known.items() if value is None]
    yield from (f"{name} is missing" for name in missing)
    yield from _learning(record)
    yield from _lengths(record)
    for mode, scores in record.by_mode.items():
        yield from _checkpoints(record, f"modes.{mode}.scores" if mode else "scores", scores)
    yield from _costs(record)


def _identity(record: Record) -> Iterator[str]:
    config = record.config
    if config.hash != record.run:
        yield f"run is {record.run}, but the hash of its config is {config.hash}"
    for field in ("protocol", "task", "encoding", "seed"):
        if (inside := getattr(config, field)) != (outside := getattr(record, field)):
            key = "label" if field == "encoding" else field  # its name in the JSON
            yield f"{field} is {outside!r}, but config.{key} is {inside!r}"
    started = record.start and record.start.run
    if started != (config.start and config.start.hash) and (started or record.status == "done"):
        yield f"start.run is {started}, unlike the hash of config.start"
    if (config.device == "cpu") != record.env.device.startswith("cpu"):
        yield f"env.device is {record.env.device!r}, but config.device is {config.device}"
    kind, system = record.env.device.split()[-1], record.env.platform
    if config.device == "cpu" and system and system.split()[-1] != kind:
        yield f"env.device is {record.env.device!r}, but env.platform is {system!r}"


def _provenance(record: Record) -> Iterator[str]:
    command, finished = record.provenance.command, record.finished
    if not command.startswith("pezoo ") or command_text(command) != command:
        yield "provenance.command is not a plain pezoo command"
    if not re.fullmatch(r"[0-9a-f]{7,40}|unknown", record.env.commit or ""):  # pip has no commit
        yield f"env.commit is {record.env.commit!r}, expected the hash of a commit, or 'unknown'"
    for name, oldest in OLDEST.items():
        given = getattr(record.env, name) or ""
        found = re.match(r"(\d{1,3})\.(\d{1,4})", given)
        if given and (found is None or (int(found[1]), int(found[2])) < oldest):
            yield f"env.{name} is {given}, expected {'.'.join(map(str, oldest))} or later"
    for name in ("cores", "threads", "processes", "accumulate"):
        if (number := getattr(record.env, name) or 1) > MOST_CORES:
            yield f"env.{name} is {number}, expected at most {MOST_CORES}"
    if not FIRST <= finished <= datetime.now(UTC) + timedelta(days=1):
        yield f"provenance.finished is {finished}, expected {FIRST} to today"


def _until_failed(record: Record) -> Iterator[str]:
    """Check what a run has that failed at any step."""
    steps = [point.step for point in record.learning]
    if steps != sorted({*steps}) or max(*steps, record.best_step or 0, 0) > record.last_step:
        yield f"learning has steps that do not rise to at most {record.last_step}"
    if any((point.loss or 0.0) < 0 for point in record.learning):
        yield "learning has a loss below 0"
    yield from _costs(record)


def _learning(record: Record) -> Iterator[str]:
    """Check the learning curve; it ends with the scores after the last step."""
    test, steps, points = record.config.eval, record.last_step, record.learning
    if not steps:
        if points or record.best_step is not None:
            yield "learning has points, but no step was taken"
        return
    early = range(test.every, steps, test.every)  # perhaps more than memory holds
    expected = [*early[: len(points)], steps]
    if len(points) != len(early) + 1 or [point.step for point in points] != expected:
        yield f"learning needs {len(early) + 1} points, every {test.every} steps up to {steps}"
        return
    exact = [point.exact for point in points]
    yield from _losses(points)
    ends = record.config.train.learned is not None
    if any((point.least is not None) != ends for point in points):
        yield "learning needs least exactly where config has train.learned"
    elif ends and any((point.least or 0.0) > (point.exact or 0.0) for point in points):
        yield "learning has a least exact match above the mean"
    measured = record.config.track == "text" or None not in exact  # text has bits in its place
    best = max(zip((share or 0.0 for share in exact), expected, strict=True))[1]
    if not measured or record.best_step != best:
        yield f"best_step {record.best_step} is not the last step of the highest exact in learning"
    lengths = test.curve_lengths or ()
    seconds = [point.seconds or 0.0 for point in points if lengths]
    if seconds != sorted(seconds):
        yield "the seconds of learning do not rise"
    if not lengths and {(p.seconds, p.test_token, p.test_exact) for p in points} != {(None,) * 3}:
        yield "learning has tests and seconds, but config has no eval.curve_lengths"
    at = {point.step: point for point in points}
    for part, step in (("last", steps), ("best", record.best_step or steps)):
        own = {s.length: s for s in getattr(record.scores, part) if s.status != "no instance"}
        for name in ("token", "exact"):
            shares = [getattr(own[length], name) for length in lengths if length in own]
            found = getattr(at.get(step), f"test_{name}", None)
            mean = fmean(shares) if shares and None not in shares else None
            if found != mean and (found is None or mean is None or abs(found - mean) > 1e-3):
                yield f"learning has test_{name} {found} at {step}, but scores.{part} has {mean}"


def _losses(points: Sequence[Lesson]) -> Iterator[str]:
    losses, exact = [point.loss for point in points], {point.exact for point in points}
    if any(loss is None or loss < 0 for loss in losses):
        yield "learning needs every loss, and no loss below 0"
    if len(points) > 2 and len({*losses}) == 1 and (any(losses) or exact != {1.0}):
        yield f"learning has the loss {losses[0]} everywhere"
    for point in points:
        most = RIGHT_LOSS + WRONG_LOSS * (1 - (point.exact or 0.0))
        if (point.loss or 0.0) > most:
            yield f"learning has the loss {point.loss:g} at {point.step}, expected at most {most:g}"
            return


def _lengths(record: Record) -> Iterator[str]:
    """Check that every set of scores has the lengths that the config asks for."""
    test = record.config.eval
    asked = {"": test.lengths} | {one.name: one.lengths for one in test.sets}
    if (sets := {"", *record.sets}) != asked.keys():
        yield f"sets has {sorted(sets)[1:]}, but config asks for {sorted(asked)[1:]}"
    for place, name, scores in record.tested():
        lengths = [*asked.get(name, ())]
        if (found := [score.length for score in scores]) != lengths:
            yield f"{place} has lengths {found}, but config asks for {lengths}"


def _checkpoints(record: Record, place: str, scores: Scores) -> Iterator[str]:
    """Check the best checkpoint against the last one, and which best evaluations have scores."""
    same = [*map(NUMBERS, scores.last)] == [*map(NUMBERS, scores.best)]
    if scores.best and not same and record.best_step == record.last_step:
        yield f"{place}.best is not {place}.last, but the last step is the best"
    lengths = {score.length for score in scores.last}
    for part, least in (("top1", 1), ("top3", 3), ("top3_each", 3)):
        own = {score.length for score in getattr(scores, part)}
        if own and (record.config.eval.top < least or place != "scores"):
            yield f"{place}.{part} has scores, but eval.top is {record.config.eval.top}"
        elif own - lengths:
            yield f"{place}.{part} has lengths {sorted(own - lengths)}, unlike {place}.last"


def _costs(record: Record) -> Iterator[str]:
    for name, low, high in _ranges(record):
        value = getattr(record.cost, name)
        if value is not None and not low <= value <= high:
            yield f"cost.{name} is {value:g}, expected {low:.4g} to {high:.4g}"


def _ranges(record: Record) -> Iterator[tuple[str, float, float]]:
    """Yield (name, lowest, highest) of costs; seconds and shares are rounded.

    A forward pass takes 2 operations for each weight and token, a training step 6. A run that
    failed may have taken no step, and none has begun before the first commit.
    """
    cost, env, steps, done = record.cost, record.env, record.last_step, record.status == "done"
    on_cpu, threads = record.config.device == "cpu", min(env.threads or 1, MOST_THREADS)
    weights = (cost.parameters or 0) - (cost.encoding_parameters or 0)
    trained = 6 * weights * (cost.tokens or 0) / (env.processes or 1)
    tested = 2 * weights * sum(one.tokens or 0 for *_, own in record.tested() for one in own)
    rate = PER_THREAD * threads if on_cpu else PER_DEVICE
    busy = PER_THREAD if on_cpu else math.inf  # operations in a second of the processor
    took, evaluated = cost.train_seconds or 0.0, cost.eval_seconds or 0.0
    quickest, age = steps * STEP * done, (record.finished - FIRST).total_seconds()
    least, cores = max(trained / rate, quickest), SLACK * max(env.cores or 1, threads)
    yield "train_seconds", least - 0.01, age
    yield "eval_seconds", tested / rate - 0.01, age
    yield "cpu_seconds", max(trained / busy, quickest) - 0.01, cores * took + 1
    yield "eval_cpu_seconds", tested / busy - 0.01, cores * evaluated + 1
    yield "data_share", 0, 1.001 - on_cpu * least / max(took, least, 1e-9)
    yield "save_seconds", 0, 10 * (took + evaluated) + 60
    yield "sessions", 1, max(steps, 1) + 1
    rates = 0.9 * steps / (took + 0.01), 1.1 * steps / max(took - 0.01, 0.01)  # of two digits
    yield "steps_per_second", (rates[0] - 0.005) * done, rates[1] + 0.005
    held = (cost.parameters or 0) * 4 / 2**20  # a GPU's memory counts tensors alone
    yield "peak_memory_mb", (LEAST_MB if on_cpu else held) * done, MOST_MB
