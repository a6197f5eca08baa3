"""Check that records agree with themselves and with each other, beyond a valid form, and add one.

`harness.cli.verify` recomputes what follows from a record's command, encoding and task.
"""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from pathlib import Path
from statistics import fmean

from experiment.files import slug, write
from leaderboard.catalog import Catalog
from leaderboard.escape import command_text, shown
from leaderboard.record.read import paths_of, read
from leaderboard.record.schema import Cost, Record, Score, Scores
from pezoo.spec import bare, parse

NUMBERS = attrgetter("length", "status", "correct", "count", "token", "tokens")
FIRST_YEAR = 2020  # no run is older
# Runs from before data_hash and five of the costs were recorded. A list, as dates can be invented.
EARLIEST = frozenset(Path(__file__).with_name("earliest.txt").read_text("utf-8").split())
SLACK = 2.0  # for threads that torch did not start
STEP = 1e-4  # seconds, of which no training step takes fewer
PER_THREAD, PER_DEVICE = 1e12, 1e15  # operations a second: ten times what a thread has reached
MOST_SECONDS, MOST_THREADS = 1e9, 1024
LEAST_MB, MOST_MB = 50.0, 1e7  # of a process with torch in it
TELLING = 8  # answers that are right, and as many that are wrong, say more than chance
# Of the losses: nearer curves are copies. The nearest of 50,000 pairs of seeds are at five times
# this, and those with equal scores at eight times.
NEAR = 2e-3

Verify = Callable[[Record], Iterable[str]]


@dataclass(frozen=True)
class CheckReport:
    """`refused` and `warnings` are lines `path: reason`; a path contains no ": "."""

    records: int
    refused: tuple[str, ...]
    warnings: tuple[str, ...]


def check(
    paths: Sequence[Path],
    catalog: Catalog,
    tree: bool = False,
    verify: Verify = lambda record: (),
) -> CheckReport:
    """Check every record in these files and folders, and that they do not contradict each other.

    `tree`: files must also lie where records are committed, in PROTOCOL/TASK/ENCODING/, and be
    named after the run. `verify` gives more reasons to refuse a record.
    """
    bad_paths: list[str] = []
    found = {path: read(path) for path in paths_of(paths, bad_paths, committed=tree)}
    records = {path: one for path, one in found.items() if isinstance(one, Record)}
    reasons = {path: [one] if isinstance(one, str) else [] for path, one in found.items()}
    for path, record in records.items():
        reasons[path] += _reasons(record, verify)
        reasons[path] += _misplaced(record, path) if tree else ()
    for path, reason in clashes(records, catalog):
        reasons[path].append(reason)
    refused = [f"{_name(path)}: {'; also '.join(own)}" for path, own in reasons.items() if own]
    warnings = [
        f"{_name(p)}: {text}" for p, one in records.items() for text in _doubts(one, catalog)
    ]
    return CheckReport(len(reasons), (*bad_paths, *refused), tuple(warnings))


def _reasons(record: Record, verify: Verify) -> list[str]:
    try:
        return [*refusals(record), *verify(record)]
    except Exception as error:  # one record must not hide the others
        return [f"it cannot be checked: {type(error).__name__}: {shown(str(error))[:300]}"]


def _misplaced(record: Record, path: Path) -> Iterator[str]:
    if path.stem != record.run:
        yield f"the file should be named {record.run}.json"
    home = [record.protocol, slug(record.task)]
    if [*path.parts[-4:-2]] != home:
        yield f"the file should be in {'/'.join(home)}/ENCODING/"


def _name(path: Path) -> str:
    return shown(str(path)).replace(": ", ":")


def clashes(records: dict[Path, Record], catalog: Catalog) -> Iterator[tuple[Path, str]]:
    """Yield records that contradict one that was finished earlier, each with a reason."""
    first: dict[tuple[object, ...], tuple[object, Path]] = {}
    curves: dict[str, list[tuple[Path, Record]]] = defaultdict(list)
    for path, record in sorted(records.items(), key=lambda item: item[1].finished):
        for key, value, words in (
            (("run", record.run), path, f"run {record.run} is also in"),
            *(_claims(record, catalog) if record.status == "done" else ()),
        ):
            known, where = first.setdefault(key, (value, path))
            if known != value:
                yield path, f"{words} {_name(where)}"
        others = curves[record.shared_hash] if record.status == "done" else []
        if copied := next((where for where, other in others if _near(record, other)), None):
            yield path, f"the learning curve is nearly that of {_name(copied)}"
        others.append((path, record))


def _near(one: Record, other: Record) -> bool:
    """Return whether the curves of two seeds are nearer than chance brings them."""
    equal = [*map(NUMBERS, one.scores.last)] == [*map(NUMBERS, other.scores.last)]
    losses = (
        (a.loss or 0, b.loss or 0) for a, b in zip(one.learning, other.learning, strict=False)
    )
    close = all(abs(a - b) <= NEAR * (1 + 2 * equal) * max(a, b) for a, b in losses)
    return close and one.seed != other.seed and len(one.learning) > 2


def _claims(record: Record, catalog: Catalog) -> Iterator[tuple[tuple[object, ...], object, str]]:
    """Yield (what, value, reason): records with the same `what` must have the same value."""
    config, table, seed = record.config, record.shared_hash, record.seed
    kind = table, config.spec, config.encoding_version
    yield ("seed", *kind, seed), record.run, f"seed {seed} has an earlier result, which counts:"
    name = bare(config.spec)  # some options change nothing at the training lengths,
    own = catalog.receives(config.spec) == "oracle" or name, seed  # and oracles may be alike
    curve = tuple((p.step, p.loss, p.exact) for p in record.learning)
    yield ("learning", table, curve), own, "the learning curve is that of"
    if telling := _telling(record.scores.last):
        yield ("scores", table, telling), own, "the scores are those of"
    if tuning := record.provenance.tuning:
        tried = [(trial.values, trial.exact, trial.runs) for trial in tuning.cells]
        yield ("sweep", *kind), tried, "the sweep differs from that of the same encoding in"
    machine = (record.env.platform or record.env.device).split()[-1]  # they round differently
    for what, where in (("data_hash", ""), ("backbone_hash", machine)):
        if value := getattr(record, what):
            words = f"{what} is {value}, unlike that of the same settings and seed in"
            yield (what, where, table, config.train, seed), value, words


def _telling(scores: Sequence[Score]) -> tuple[object, ...]:
    """Return scores that no two runs share by chance: longer answers, partly right, twice."""
    found = tuple(
        NUMBERS(one)
        for one in scores
        if (one.tokens or 0) > 2 * (one.count or 0)
        and TELLING <= (one.correct or 0) <= (one.count or 0) - TELLING
    )
    return found if len(found) > 1 else ()


def _doubts(record: Record, catalog: Catalog) -> Iterator[str]:
    """Yield what is allowed but weakens the record."""
    if record.env.dirty is None:
        yield "it is not known whether the code had uncommitted changes"
    elif record.env.dirty:
        yield "the code had uncommitted changes"
    version, current = record.config.encoding_version, catalog.version(bare(record.config.spec))
    if current not in (None, version):
        yield f"encoding version {version}; the code is at {current}"


def refusals(record: Record) -> Iterator[str]:
    """Yield each way in which a record contradicts itself; nothing for a good one."""
    yield from _identity(record)
    yield from _provenance(record)
    if record.status == "failed":
        if not record.reason:
            yield "status is failed, but there is no reason"
        if any(scores for _, _, scores in record.tested()):
            yield "status is failed, but there are scores"
        return
    known = {name: getattr(record, name) for name in ("data_hash", "backbone_hash", "chance")}
    known |= {f"cost.{one.name}": getattr(record.cost, one.name) for one in fields(Cost)}
    missing = [name for name, value in known.items() if value is None]
    yield from (f"{name} is missing" for name in missing if record.run not in EARLIEST)
    yield from _learning(record)
    yield from _lengths(record)
    for mode, scores in record.by_mode.items():
        yield from _checkpoints(record, f"modes.{mode}.scores" if mode else "scores", scores)
    for name, low, high in _ranges(record):
        value = getattr(record.cost, name)
        if value is not None and not low <= value <= high:
            yield f"cost.{name} is {value:g}, expected {low:.4g} to {high:.4g}"


def _identity(record: Record) -> Iterator[str]:
    config = record.config
    if config.hash != record.run:
        yield f"run is {record.run}, but the hash of its config is {config.hash}"
    for field in ("protocol", "task", "encoding", "seed"):
        if (inside := getattr(config, field)) != (outside := getattr(record, field)):
            key = "label" if field == "encoding" else field  # its name in the JSON
            yield f"{field} is {outside!r}, but config.{key} is {inside!r}"
    if (config.device == "cpu") != record.env.device.startswith("cpu"):
        yield f"env.device is {record.env.device!r}, but config.device is {config.device}"


def _provenance(record: Record) -> Iterator[str]:
    command, finished = record.provenance.command, record.finished
    if not command.startswith("pezoo ") or command_text(command) != command:
        yield "provenance.command is not a plain pezoo command"
    if not re.fullmatch(r"[0-9a-f]{7,40}", record.env.commit or ""):
        yield f"env.commit is {record.env.commit!r}, expected the hash of a commit"
    if finished > datetime.now(UTC) + timedelta(days=1) or finished.year < FIRST_YEAR:
        yield f"provenance.finished is {finished}, expected {FIRST_YEAR} to today"


def _learning(record: Record) -> Iterator[str]:
    """Check the learning curve; it ends with the scores after the last step."""
    test, steps, points = record.config.eval, record.config.train.steps, record.learning
    early = range(test.every, steps, test.every)  # perhaps more than memory holds
    expected = [*early[: len(points)], steps]
    if len(points) != len(early) + 1 or [point.step for point in points] != expected:
        yield f"learning needs {len(early) + 1} points, every {test.every} steps up to {steps}"
        return
    if points[-1].loss is None or any((point.loss or 0) < 0 for point in points):
        yield "learning needs a last loss, and no loss below 0"
    exact = [point.exact for point in points]
    if None in exact or record.best_step != max(zip(exact, expected, strict=True))[1]:
        yield f"best_step {record.best_step} is not the last step of the highest exact in learning"
    lengths = test.curve_lengths or ()
    seconds = [point.seconds or 0.0 for point in points if lengths]
    if seconds != sorted(seconds):
        yield "the seconds of learning do not rise"
    last = {score.length: score for score in record.scores.last if score.status != "no instance"}
    for name in ("token", "exact"):
        own = [getattr(last[length], name) for length in lengths if length in last]
        found = getattr(points[-1], f"test_{name}")
        mean = fmean(own) if own and None not in own else None
        if found != mean and (found is None or mean is None or abs(found - mean) > 1e-3):
            yield f"learning ends at test_{name} {found}, but scores.last has {mean}"


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
    if scores.best and not same and record.best_step == record.config.train.steps:
        yield f"{place}.best is not {place}.last, but the last step is the best"
    lengths = {score.length for score in scores.last}
    for part, least in (("top1", 1), ("top3", 3), ("top3_each", 3)):
        own = {score.length for score in getattr(scores, part)}
        if own and record.config.eval.top < least:
            yield f"{place}.{part} has scores, but eval.top is {record.config.eval.top}"
        elif own - lengths:
            yield f"{place}.{part} has lengths {sorted(own - lengths)}, unlike {place}.last"


def _ranges(record: Record) -> Iterator[tuple[str, float, float]]:
    """Yield (name, lowest, highest) of costs; seconds and shares are rounded.

    A forward pass takes 2 operations for each weight and token, a training step 6.
    """
    cost, env, steps = record.cost, record.env, record.config.train.steps
    on_cpu, threads = record.config.device == "cpu", min(env.threads or 1, MOST_THREADS)
    weights = (cost.parameters or 0) - (cost.encoding_parameters or 0)
    trained = 6 * weights * (cost.tokens or 0) / (env.processes or 1)
    tested = 2 * weights * sum(one.tokens or 0 for *_, own in record.tested() for one in own)
    rate = PER_THREAD * threads if on_cpu else PER_DEVICE
    busy = PER_THREAD if on_cpu else math.inf  # operations in a second of the processor
    took, evaluated = cost.train_seconds or 0.0, cost.eval_seconds or 0.0
    least, cores = max(trained / rate, steps * STEP), SLACK * max(env.cores or 1, threads)
    yield "train_seconds", least - 0.01, MOST_SECONDS
    yield "eval_seconds", tested / rate - 0.01, MOST_SECONDS
    yield "cpu_seconds", max(trained / busy, steps * STEP) - 0.01, cores * took + 1
    yield "eval_cpu_seconds", tested / busy - 0.01, cores * evaluated + 1
    yield "data_share", 0, 1.001 - on_cpu * least / max(took, least)
    yield "save_seconds", 0, 10 * (took + evaluated) + 60
    yield "sessions", 1, steps + 1
    if took > 1:  # the rate has two digits
        yield "steps_per_second", 0.9 * steps / took - 0.005, 1.1 * steps / took + 0.005
    held = (cost.parameters or 0) * 4 / 2**20  # a GPU's memory counts tensors alone
    yield "peak_memory_mb", LEAST_MB if on_cpu else held, MOST_MB


def add(
    run: str, runs: Path, records: Path, catalog: Catalog, verify: Verify = lambda record: ()
) -> Path:
    """Copy the record of a run into `records`, byte by byte, and return where it is.

    `run` is a run's folder, or the beginning of its id in the folder `runs`. Errors: ValueError
    for no such run, one that is not finished, a damaged result, or a record that `check` refuses,
    here or where a file that the task reads is not. `verify` is as in `check`.
    """
    folder = find(run, runs)
    result = folder / "result.json"
    if not (folder / "DONE").is_file() or not result.is_file():
        raise ValueError(f"{folder} is not a finished run: it needs result.json and DONE")
    record = read(result)
    if isinstance(record, str):
        raise ValueError(f"{result}: {record}")
    if reasons := [*refusals(record), *verify(record)]:
        raise ValueError(f"{result}: {'; '.join(reasons)}")
    task = parse(record.task)
    if files := [name for name in catalog.tasks[task.name].versioned_by if name in task.options]:
        raise ValueError(
            f"{result}: {record.task} reads {task.options[files[0]]}, which other machines do not "
            "have, and check would refuse the record there. Compare its runs where they are, with "
            "pezoo leaderboard build --runs; or make a task of it (docs/add-a-task.md)"
        )
    name = f"{record.run}.json"
    home, data = records / record.protocol / slug(record.task), result.read_bytes()
    path = home / slug(record.encoding) / name
    others = [other for other in records.rglob(name) if other != path]
    if others or (path.is_file() and path.read_bytes() != data):
        raise ValueError(f"run {record.run} is there with another content: {(*others, path)[0]}")
    there = {other: read(other) for other in paths_of([home], [])} | {path: record}
    known = {other: one for other, one in there.items() if isinstance(one, Record)}
    if reasons := [f"{_name(where)}: {reason}" for where, reason in clashes(known, catalog)]:
        raise ValueError(f"{result} cannot be added: {'; '.join(reasons)}")
    return write(path, data)


def find(run: str, runs: Path) -> Path:
    """Return the run's folder. Errors: ValueError for none or several."""
    if Path(run).is_dir():
        return Path(run)
    found = [path for path in sorted(runs.glob("*")) if path.is_dir() and path.name.startswith(run)]
    if len(found) != 1 or not run:
        few = ", ".join(path.name for path in found[:5]) or "none"
        raise ValueError(f"expected a run's folder or its id in {runs}, was {run!r}; found: {few}")
    return found[0]
