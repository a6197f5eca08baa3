"""What a record must fulfil to be committed: beyond a valid form, content that agrees."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from pathlib import Path
from statistics import fmean

from experiment.config import ATTENTION, DEVICES
from experiment.files import slug
from experiment.protocol import base
from leaderboard.catalog import Catalog
from leaderboard.escape import command_text, shown
from leaderboard.record import commanded, costs
from leaderboard.record.read import paths_of, read
from leaderboard.record.schema import Record
from leaderboard.record.scores import Score, Scores
from leaderboard.record.tuning import MARK
from pezoo.spec import Spec, SpecError, bare, parse, unknown

PROTOCOL = re.compile(r"[^+]+(\+[0-9a-f]{6})?(\+tune-[0-9a-f]{8}|\+tuning)?")
NUMBERS = attrgetter("length", "status", "correct", "count", "token", "tokens")
DEVICE = re.compile(rf"({'|'.join(DEVICES)})(:[0-9]{{1,4}})?")


@dataclass(frozen=True)
class CheckReport:
    """`refused` and `warnings` are lines `path: reason`; a path holds no ": "."""

    records: int
    refused: tuple[str, ...]
    warnings: tuple[str, ...]


Doubt = Callable[[Record], Iterable[str]]


def check(
    paths: Sequence[Path],
    catalog: Catalog,
    tree: bool = False,
    further: Doubt = lambda record: (),
) -> CheckReport:
    """Check every record in these files and folders.

    With `tree` the files must also lie where records are committed, in PROTOCOL/TASK/ENCODING/
    and named after the run. `further` gives more reasons to refuse a record.
    """
    refused: list[str] = []
    warnings: list[str] = []
    runs: dict[str, Path] = {}
    drawn: dict[tuple[str, ...], tuple[int, Path]] = {}  # what a seed draws -> seed
    shared: dict[tuple[str, ...], list[tuple[str, Path]]] = {}  # what records share -> its values
    reasons: dict[Path, list[str]] = {}
    found = paths_of(paths, refused, committed=tree)
    for path in found:
        record = read(path)
        if isinstance(record, str):
            reasons[path] = [record]
            continue
        own = reasons[path] = _reasons(record, catalog, further)
        own += _misplaced(record, path) if tree else ()
        if (first := runs.setdefault(record.run, path)) != path:
            own.append(f"run {record.run} is also in {_name(first)}")
        for what, key in _draws(record):
            seed, other = drawn.setdefault((what, *key), (record.seed, path))
            if seed != record.seed:
                own.append(f"seed {record.seed} has the {what} of seed {seed}, {_name(other)}")
        for what, of_same, key, value in _shares(record):
            shared.setdefault((what, of_same, *key), []).append((value, path))
        warnings += [f"{_name(path)}: {text}" for text in _doubts(record, catalog)]
    for (what, of_same, *_), values in shared.items():
        for path, words in _unlike(values):
            reasons[path].append(f"{what} is {words} of the same {of_same}")
    refused += [f"{_name(path)}: {'; also '.join(own)}" for path, own in reasons.items() if own]
    return CheckReport(len(found), tuple(refused), tuple(warnings))


def _reasons(record: Record, catalog: Catalog, further: Doubt) -> list[str]:
    try:
        return [*refusals(record, catalog), *further(record)]
    except Exception as error:  # one record must not hide the others
        return [f"it cannot be checked: {type(error).__name__}: {shown(str(error))[:300]}"]


def _unlike(values: Sequence[tuple[str, Path]]) -> Iterator[tuple[Path, str]]:
    """Those that differ from the most frequent value, and where that is."""
    usual, times = Counter(value for value, _ in values).most_common(1)[0]
    if times < len(values):
        where = next(path for value, path in values if value == usual)
        for value, path in values:
            if value != usual:
                yield path, f"{value}, but {usual} in {_name(where)}"


def _draws(record: Record) -> Iterator[tuple[str, tuple[str, ...]]]:
    """What no two seeds have in common, and what tells it apart."""
    if record.data_hash:
        yield "data", (record.shared_hash, record.data_hash)
    if record.backbone_hash:
        yield "initial weights", (record.backbone_hash,)


def _shares(record: Record) -> Iterator[tuple[str, str, tuple[str, ...], str]]:
    """What records have in common, and of the same what; what tells these apart, and the value."""
    config, cost = record.config, record.cost
    key = record.shared_hash, config.train.model_dump_json(), str(record.seed)
    for what in ("data_hash", "backbone_hash"):
        if value := getattr(record, what):
            yield what, "settings and seed: they share all but the encoding", key, value
    if record.chance is not None:
        yield "chance", "task", (record.task, str(config.task_version)), str(record.chance)
    if cost.parameters is not None and cost.encoding_parameters is not None:
        what = "cost.parameters without those of the encoding"
        rest = str(cost.parameters - cost.encoding_parameters)
        yield what, "model settings", (config.model.model_dump_json(), config.track), rest


def _name(path: Path) -> str:
    return shown(str(path)).replace(": ", ":")


def refusals(record: Record, catalog: Catalog) -> Iterator[str]:
    """Why a record that is valid in form cannot be true; nothing for a good one."""
    config = record.config
    yield from _identity(record)
    yield from _tuning(record)
    yield from _names(record, catalog)
    yield from _options(record, catalog)
    yield from _provenance(record, catalog)
    yield from costs.refusals(record)
    if (config.device == "cpu") != record.env.device.startswith("cpu"):
        yield f"env.device is {record.env.device!r}, but config.device is {config.device}"
    if record.status == "done":
        yield from _training(record)
        yield from _along(record)
        yield from _modes(record, catalog)
        for mode, scores in record.by_mode.items():
            where = f"modes.{mode}.scores" if mode else "scores"
            for part, own in (("last", scores.last), ("best", scores.best)):
                yield from _scores(record, f"{where}.{part}", own)
                yield from _few(record, f"{where}.{part}", own, catalog)
            yield from _tops(where, scores, config.eval.top)
            same = [*map(NUMBERS, scores.last)] == [*map(NUMBERS, scores.best)]
            if scores.best and not same and record.best_step in (None, config.train.steps):
                yield f"{where}.best is not {where}.last, but the last step is the best"
        yield from _sets(record, catalog)
        for name in ("backbone_hash", "chance"):
            if getattr(record, name) is None:
                yield f"{name} is missing"
    else:
        if not record.reason:
            yield "status is failed, but there is no reason"
        every = (own for both in record.by_mode.values() for own in (both.last, both.best))
        if any((*every, *record.sets.values())):
            yield "status is failed, but there are scores"


def _tops(where: str, scores: Scores, asked: int) -> Iterator[str]:
    """Scores of the best evaluations stand where the settings ask for them, at tested lengths."""
    lengths = [score.length for score in scores.last]
    for part, least in (("top1", 1), ("top3", 3), ("top3_each", 3)):
        own = [score.length for score in getattr(scores, part)]
        if own and asked < least:
            yield f"{where}.{part} has scores, but eval.top is {asked}"
        elif strange := sorted({*own} - {*lengths}):
            yield f"{where}.{part} has lengths {strange}, which {where}.last has not"


def _sets(record: Record, catalog: Catalog) -> Iterator[str]:
    """What is wrong with the scores of further test sets."""
    asked = {one.name: one.lengths for one in record.config.eval.sets}
    if (given := sorted(record.sets)) != sorted(asked):
        yield f"sets has {given}, but config asks for {sorted(asked)}"
    for name, own in record.sets.items():
        if name in asked:
            yield from _scores(record, f"sets.{name}", own, asked[name])
            yield from _few(record, f"sets.{name}", own, catalog)


def _identity(record: Record) -> Iterator[str]:
    if (digest := record.config.hash) != record.run:
        yield f"run is {record.run}, but the hash of its config is {digest}"
    for field in ("protocol", "task", "encoding", "seed"):
        key = "label" if field == "encoding" else field
        inside, outside = getattr(record.config, key), getattr(record, field)
        if inside != outside:
            yield f"{field} is {outside!r}, but config.{key} is {inside!r}"
    if bare(spec := record.config.encoding) != bare(record.encoding):
        yield f"encoding is {record.encoding!r}, but config.encoding is {spec!r}"


def _tuning(record: Record) -> Iterator[str]:
    if tuning := record.provenance.tuning:
        config = record.config
        train, track = config.train.model_dump(), config.track
        yield from tuning.refusals(record.protocol, train, record.seed, track)
    elif MARK in record.protocol:
        yield f"protocol {record.protocol} needs provenance.tuning, which says what was tried"


def _names(record: Record, catalog: Catalog) -> Iterator[str]:
    if base(record.protocol) not in catalog.protocols:
        yield unknown("protocol", record.protocol, catalog.protocols)
    elif not PROTOCOL.fullmatch(record.protocol):
        yield f"protocol is {record.protocol!r}, expected NAME, NAME+6 or NAME+tune-8 hex digits"
    if catalog.foreign(record):
        yield f"the settings are those of no version of protocol {record.protocol}"
    elif catalog.strange_options(record):
        given, typed = record.config.encoding, record.encoding
        yield f"protocol {record.protocol} makes another encoding of {typed!r} than {given!r}"
    current = catalog.task_version(record.task)
    if bare(record.task) not in catalog.tasks:
        yield unknown("task", record.task, catalog.tasks)
    elif current and not _not_newer(given := record.config.task_version, current):
        yield f"task version {given} is not known: {record.task} is at version {current}"
    name = bare(record.config.encoding)
    if (current := catalog.version(name)) is None:
        yield unknown("encoding", name, catalog.encodings)
    elif not _not_newer(given := record.config.encoding_version, current):
        yield f"encoding version {given} is not known: {name} is at version {current}"


def _options(record: Record, catalog: Catalog) -> Iterator[str]:
    """Texts that the harness does not write, and options that the classes' files do not have."""
    task, config = catalog.tasks.get(bare(record.task)), record.config
    for text in dict.fromkeys((record.encoding, config.encoding, record.task)):
        try:
            spec: Spec | None = parse(text)
        except SpecError as error:
            yield str(error)
            continue
        if str(spec) != text:
            yield f"{text!r} is written {str(spec)!r}"
        while spec:
            known = task if text is record.task else catalog.encodings.get(spec.name)
            yield from known.strange(spec.options) if known else ()
            for name, value in spec.options.items() if known and known is task else ():
                if known.usual.get(name) == value:
                    yield f"{text!r}: {name} has its usual value, which is left out"
            spec = spec.inner
    if not DEVICE.fullmatch(config.device):
        yield f"config.device is {config.device!r}, expected cpu, cuda, cuda:N, mps or xpu"
    if config.attention not in ATTENTION:
        yield unknown("attention", config.attention, ATTENTION)


def _modes(record: Record, catalog: Catalog) -> Iterator[str]:
    """Evaluation modes must be ways in which the encoding's class says that it can be run."""
    name = bare(record.config.encoding)
    own = {mode for part in catalog.parts(name) for mode in part.modes}
    for mode in record.modes if catalog.version(name) is not None else ():
        if mode not in own:
            yield f"modes has {mode!r}, but {name} has {', '.join(sorted(own)) or 'none'}"


def _few(record: Record, where: str, scores: Sequence[Score], catalog: Catalog) -> Iterator[str]:
    task, least = catalog.tasks.get(bare(record.task)), record.config.eval.min_samples
    for score in scores if task and not task.lists else ():
        if score.status == "ok" and (score.count or 0) < least:
            yield f"{where}, length {score.length}: {score.count} examples of at least {least}"


def _not_newer(given: int, current: int) -> bool:
    """Whether every part of a version, three digits each, is at most the current one."""
    while given or current:
        if given % 1000 > current % 1000 or not given % 1000:
            return False
        given, current = given // 1000, current // 1000
    return True


def _provenance(record: Record, catalog: Catalog) -> Iterator[str]:
    command = record.provenance.command
    if not command.startswith("pezoo ") or command_text(command) != command:
        yield "provenance.command is not a plain pezoo command"
    else:
        yield from commanded.refusals(record, catalog)
    if not re.fullmatch(r"[0-9a-f]{7,40}", record.env.commit or ""):
        yield f"env.commit is {record.env.commit!r}, expected the hash of a commit"
    if record.finished > datetime.now(UTC) + timedelta(days=1):
        yield f"provenance.finished lies in the future: {record.provenance.finished}"
    if record.finished.year < 2020:
        yield f"provenance.finished lies before this project: {record.provenance.finished}"


def _training(record: Record) -> Iterator[str]:
    steps, every = record.config.train.steps, record.config.eval.every
    order, points = [point.step for point in record.learning], -(-steps // every)
    if not order:
        yield "a run that is done needs a learning curve"
    elif order[-1] != steps:
        yield f"learning ends at step {order[-1]}, but config asks for {steps}"
    elif len(order) != points or order != [*range(every, steps, every), steps]:
        yield f"learning needs a point every {every} steps: {points}, was {len(order)}"
    elif record.learning[-1].loss is None:
        yield "the last loss of learning is missing"
    for point in record.learning:
        if point.loss is not None and point.loss < 0:
            yield f"the loss at step {point.step} is {point.loss:g}, expected 0 or more"
            break
    best = record.best_step or steps
    if best != steps and (best % every or best > steps):
        yield f"best_step {best} is no step of learning"


def _along(record: Record) -> Iterator[str]:
    """Scores along training, the last of which are those after the last step."""
    points, lengths = record.learning, record.config.eval.curve_lengths or ()
    seconds = [point.seconds or 0.0 for point in points if lengths]
    if seconds != sorted(seconds):
        yield "the seconds of learning do not rise"
    last = {score.length: score for score in record.scores.last if score.status != "no instance"}
    for name in ("token", "exact"):
        own = [getattr(last[length], name) for length in lengths if length in last]
        given = getattr(points[-1], f"test_{name}") if points else None
        mean = fmean(own) if own and None not in own else None
        if given != mean and (given is None or mean is None or abs(given - mean) > 1e-3):
            yield f"learning ends at test_{name} {given}, but scores.last say {mean}"


def _scores(
    record: Record, where: str, scores: Sequence[Score], asked: Sequence[int] | None = None
) -> Iterator[str]:
    given = record.config.eval
    asked = given.lengths if asked is None else asked
    most = max(given.samples, given.min_samples)
    if (lengths := [score.length for score in scores]) != [*asked]:
        yield f"{where} has lengths {lengths}, but config asks for {[*asked]}"
    for score in scores:
        if (score.count or 0) > most:
            yield f"{where}, length {score.length}: {score.count} examples of at most {most}"
        if score.exact == 1 and (score.token or 1.0) < 1 - 1e-6:
            yield f"{where}, length {score.length}: every answer is right, but not every token"
        for fault in _answers(score, record.config.track):
            yield f"{where}, length {score.length}: {fault}"


def _answers(score: Score, track: str) -> Iterator[str]:
    """What is wrong with how answers were made and with their tokens."""
    if score.method and (score.method == "one pass") != (track == "encoder"):
        yield f"method is {score.method!r}, which is not how {track}s answer"
    if (tokens := score.tokens) is None:
        return
    if tokens < (score.count or 0):
        yield f"{tokens} tokens in {score.count} answers: each has one at least"
    if score.token is not None and abs(score.token * tokens - round(score.token * tokens)) > 1e-3:
        yield f"token={score.token} is no number of tokens out of {tokens}"


def _doubts(record: Record, catalog: Catalog) -> Iterator[str]:
    """What is allowed, but weakens the record."""
    if record.env.dirty is None:
        yield "it is not known whether the code had changes that no commit holds"
    elif record.env.dirty:
        yield "the code had changes that no commit holds"
    if record.status == "done" and not record.data_hash:
        yield "no data_hash, which tells whether encodings had the same data"
    settings = record.config
    current = catalog.version(bare(settings.encoding))
    if current is not None and settings.encoding_version != current:
        yield f"encoding version {settings.encoding_version}; the code is at {current}"


def _misplaced(record: Record, path: Path) -> Iterator[str]:
    if path.stem != record.run:
        yield f"the file should be named {record.run}.json"
    home = [record.protocol, slug(record.task)]
    if [*path.parts[-4:-2]] != home:
        yield f"the file should be in {'/'.join(home)}/ENCODING/"
