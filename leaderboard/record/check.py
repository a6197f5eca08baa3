"""Check that records agree with themselves and with each other, beyond a valid form, and add one.

`harness.cli.verify` recomputes what follows from a record's command, encoding and task.
"""

import math
import re
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from itertools import chain, combinations, islice
from operator import attrgetter, ne
from pathlib import Path
from statistics import fmean
from typing import Any

from experiment.files import slug, write
from leaderboard.catalog import Catalog
from leaderboard.escape import command_text, shown
from leaderboard.record.read import paths_of, read
from leaderboard.record.schema import Cost, Record, Score, Scores
from pezoo.spec import parse

ROOT = Path(__file__).resolve().parents[2]
NUMBERS = attrgetter("length", "status", "correct", "count", "token", "tokens")
FIRST = datetime(2026, 11, 21, 4, 54, 37, tzinfo=UTC)  # the first commit: no run is older
# Runs from before data_hash, five of the costs and wrong answers were recorded, and those kept of
# earlier versions of an encoding or task. A list, as dates can be invented.
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
MOST_REASONS = 10  # to refuse a record
APART = 0.5  # of exact match between two checkpoints; the committed ones are within half of it

Verify = Callable[[Record], Iterable[str]]
Alike = Callable[[Record, Record], bool]
Conflict = Callable[[Any, Any], bool]


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
    alike: Alike = lambda one, other: True,
) -> CheckReport:
    """Check every record in these files and folders, and that they do not contradict each other.

    `tree`: files must also lie where records are committed, in PROTOCOL/TASK/ENCODING/, and be
    named after the run. `verify` gives more reasons to refuse a record; `alike` says whether the
    encodings of two runs with equal results train alike.
    """
    bad_paths: list[str] = []
    found = {path: read(path) for path in paths_of(paths, bad_paths, committed=tree)}
    records = {path: one for path, one in found.items() if isinstance(one, Record)}
    reasons = {path: [one] if isinstance(one, str) else [] for path, one in found.items()}
    for path, record in records.items():
        reasons[path] += _reasons(record, verify)
        reasons[path] += _misplaced(record, path) if tree else ()
    sound = {path: one for path, one in records.items() if not reasons[path]}
    for path, reason in clashes(sound, alike):
        reasons[path].append(reason)
    refused = [f"{_name(path)}: {'; also '.join(own)}" for path, own in reasons.items() if own]
    known = history(ROOT)
    warnings = [
        f"{_name(p)}: {text}" for p, one in records.items() for text in _doubts(one, catalog, known)
    ]
    return CheckReport(len(reasons), (*bad_paths, *refused), tuple(warnings))


def _reasons(record: Record, verify: Verify) -> list[str]:
    try:
        return [*islice(chain(refusals(record), verify(record)), MOST_REASONS)]
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


def clashes(records: dict[Path, Record], alike: Alike) -> Iterator[tuple[Path, str]]:
    """Yield records that contradict each other, all of them, each with a reason.

    Nothing in a record tells which one is genuine: a date, for example, can be invented.
    """

    def copied(one: Record, other: Record) -> bool:
        if (one.seed, one.task) != (other.seed, other.task):
            return True
        return one.config.spec != other.config.spec and not alike(one, other)

    groups: dict[tuple[Any, ...], list[tuple[Path, Any]]] = defaultdict(list)
    for path, record in records.items():
        groups[f"run {record.run} is also in", ne].append((path, path))
        for words, conflict, what, value in _claims(record, copied):
            groups[words, conflict, what].append((path, value))
    found: dict[tuple[Path, str], Path] = {}
    for (words, conflict, *_), own in groups.items():
        for (path, one), (where, other) in combinations(own, 2):
            if conflict(one, other):
                found.setdefault((path, words), where)
                found.setdefault((where, words), path)
    for (path, words), where in found.items():
        yield path, f"{words} {_name(where)}"


def _claims(record: Record, copied: Conflict) -> Iterator[tuple[str, Conflict, object, object]]:
    """Yield (words, conflict, what, value): values of the same `what` must not conflict."""
    if record.status != "done":
        return
    config, table, seed, curve = record.config, record.shared_hash, record.seed, record.learning
    kind = table, config.spec, config.encoding_version
    yield f"seed {seed} has another result, and neither counts:", ne, (*kind, seed), record.run
    losses = [point.loss or 0.0 for point in curve]
    if max(losses, default=0) > NEAR:  # no loss at all is no fingerprint
        same = tuple((point.step, point.loss, point.exact) for point in curve)
        yield "the learning curve is that of", copied, same, record
    own = seed, losses, [*map(NUMBERS, record.scores.last)]
    yield "the learning curve is nearly that of", _near, table, own
    if telling := _telling(record.scores.last):
        yield "the scores are those of", copied, (table, telling), record
    if tuning := record.provenance.tuning:
        yield "the sweep differs from that of the same encoding in", ne, kind, tuning.cells
    machine = (record.env.platform or record.env.device).split()[-1]  # they round differently
    for name, where in (("data_hash", ""), ("backbone_hash", machine)):
        if value := getattr(record, name):
            words = f"{name} differs from that of the same settings and seed in"
            yield words, ne, (where, table, config.train, seed), value


def _near(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Return whether the curves of two seeds are nearer than chance brings them.

    Curves that hardly change are near by chance, as on a task that no run learns.
    """
    (seed, losses, scores), (another, own, numbers) = one, other
    if seed == another or not 2 < len(losses) == len(own):
        return False
    spread = max(losses) - min(losses)
    slack = NEAR * (1 + 2 * (scores == numbers))
    pairs = zip(losses, own, strict=True)
    return spread > 0 and all(abs(a - b) <= slack * min(max(a, b), spread) for a, b in pairs)


def _telling(scores: Sequence[Score]) -> tuple[object, ...]:
    """Return scores that no two runs share by chance: longer answers, partly right, twice."""
    found = tuple(
        NUMBERS(one)
        for one in scores
        if (one.tokens or 0) > 2 * (one.count or 0)
        and TELLING <= (one.correct or 0) <= (one.count or 0) - TELLING
    )
    return found if len(found) > 1 else ()


def history(root: Path) -> str:
    """Return the hashes of the commits of a checkout, each after a line's end.

    "" where git does not know all of them, or the checkout is of something else.
    """

    def git(*words: str) -> str:
        words = ("git", "-C", str(root), *words)
        return subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout

    try:
        top, cut = git("rev-parse", "--show-toplevel", "--is-shallow-repository").splitlines()
        whole = cut == "false" and Path(top).resolve() == root.resolve()
        return "\n" + git("rev-list", "HEAD") if whole else ""
    except (OSError, ValueError, subprocess.SubprocessError):
        return ""


def _doubts(record: Record, catalog: Catalog, commits: str) -> Iterator[str]:
    """Yield what is allowed but weakens the record."""
    if commits and f"\n{record.env.commit}" not in commits:
        yield "the commit is not in the history of this repository"
    for scores in record.by_mode.values():
        ends = zip(scores.last, scores.best, strict=False)
        if any(abs((a.exact or 0) - (b.exact or 0)) > APART for a, b in ends if not a.seen):
            yield f"last and best are more than {APART} apart at an unseen length"
    if record.env.dirty is None:
        yield "it is not known whether the code had uncommitted changes"
    elif record.env.dirty:
        yield "the code had uncommitted changes"
    version, current = record.config.encoding_version, catalog.version(record.config.spec)
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
    if not re.fullmatch(r"[0-9a-f]{7,40}|unknown", record.env.commit or ""):  # pip has no commit
        yield f"env.commit is {record.env.commit!r}, expected the hash of a commit, or 'unknown'"
    if not FIRST <= finished <= datetime.now(UTC) + timedelta(days=1):
        yield f"provenance.finished is {finished}, expected {FIRST} to today"


def _learning(record: Record) -> Iterator[str]:
    """Check the learning curve; it ends with the scores after the last step."""
    test, steps, points = record.config.eval, record.config.train.steps, record.learning
    early = range(test.every, steps, test.every)  # perhaps more than memory holds
    expected = [*early[: len(points)], steps]
    if len(points) != len(early) + 1 or [point.step for point in points] != expected:
        yield f"learning needs {len(early) + 1} points, every {test.every} steps up to {steps}"
        return
    losses, exact = [point.loss for point in points], [point.exact for point in points]
    if any(loss is None or loss < 0 for loss in losses):
        yield "learning needs every loss, and no loss below 0"
    if len(points) > 2 and len({*losses}) == 1 and (any(losses) or {*exact} != {1.0}):
        yield f"learning has the loss {losses[0]} everywhere"
    measured = record.config.track == "text" or None not in exact  # text has bits in its place
    best = max(zip((share or 0.0 for share in exact), expected, strict=True))[1]
    if not measured or record.best_step != best:
        yield f"best_step {record.best_step} is not the last step of the highest exact in learning"
    lengths = test.curve_lengths or ()
    seconds = [point.seconds or 0.0 for point in points if lengths]
    if seconds != sorted(seconds):
        yield "the seconds of learning do not rise"
    at = {point.step: point for point in points}
    for part, step in (("last", steps), ("best", record.best_step or steps)):
        own = {s.length: s for s in getattr(record.scores, part) if s.status != "no instance"}
        for name in ("token", "exact"):
            shares = [getattr(own[length], name) for length in lengths if length in own]
            found = getattr(at.get(step), f"test_{name}", None)
            mean = fmean(shares) if shares and None not in shares else None
            if found != mean and (found is None or mean is None or abs(found - mean) > 1e-3):
                yield f"learning has test_{name} {found} at {step}, but scores.{part} has {mean}"


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
        if own and (record.config.eval.top < least or place != "scores"):
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
    rates = 0.9 * steps / (took + 0.01), 1.1 * steps / max(took - 0.01, 0.01)  # of two digits
    yield "steps_per_second", rates[0] - 0.005, rates[1] + 0.005
    held = (cost.parameters or 0) * 4 / 2**20  # a GPU's memory counts tensors alone
    yield "peak_memory_mb", LEAST_MB if on_cpu else held, MOST_MB


def add(
    run: str,
    runs: Path,
    records: Path,
    catalog: Catalog,
    verify: Verify = lambda record: (),
    alike: Alike = lambda one, other: True,
) -> Path:
    """Copy the record of a run into `records`, byte by byte, and return where it is.

    `run` is a run's folder, or the beginning of its id in the folder `runs`. Errors: ValueError
    for no such run, one that is not finished, a damaged result, or a record that `check` refuses,
    here or where a file that the task reads is not. `verify` and `alike` are as in `check`.
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
    if reasons := [reason for where, reason in clashes(known, alike) if where == path]:
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
