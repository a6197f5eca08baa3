"""Many runs in, one row per encoding out. The pages and the command line use the same numbers.

Runs are compared only within one table: same protocol, same task and the same settings in
everything but seed and encoding. Another evaluation mode of the same weights is a row of its own.
Three rules keep words from turning into numbers:
- a length that any seed cannot represent is the words "cannot represent", never 0;
- the mean over unseen lengths is None, with the reason, unless every unseen length has a number;
- a failed run counts as failed and enters no mean.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from statistics import fmean, median
from typing import Any

from leaderboard.intervals import Stat, over_seeds
from leaderboard.ranks import ranked
from leaderboard.records import Record, Score
from leaderboard.tuning import values_text

PASS = 0.9  # the mean exact match that counts as solving a length


@dataclass(frozen=True)
class Cell:
    """One encoding at one length. `status` is "ok", or words to show instead of a number:
    "cannot represent", "no instance", "not tested", "failed"."""

    length: int
    seen: bool
    status: str
    exact: Stat | None = None
    median: float | None = None
    token: float | None = None
    seeds: tuple[tuple[int, float], ...] = ()  # (seed, exact match)
    correct: int = 0  # over all seeds
    count: int = 0


@dataclass(frozen=True)
class Row:
    """One encoding in one table. `rank` is by `unseen`; None where that is None. `ranks` is the
    first and the last place that the paired comparisons leave possible.

    `typed`: options were typed with the encoding's name, so that it was tuned by hand; such a row
    counts for no other row's rank, and its own is the place that it would have.

    `reach` is the largest length, as a multiple of the training length, up to which the mean
    exact match is at least 0.9 at every tested length; 0 where that is not even the training
    length; None where no run is done. `reach_open`: every tested length passed, so the true reach
    may be larger.
    """

    protocol: str
    task: str
    settings: str
    encoding: str
    spec: str  # the encoding with all its options
    version: str
    train_length: int
    cells: tuple[Cell, ...]
    unseen: Stat | None
    unseen_note: str | None
    reach: float | None
    reach_open: bool
    steps_per_second: float | None
    train_seconds: float | None
    cpu_seconds: float | None
    peak_memory_mb: float | None
    parameters: int | None
    encoding_parameters: int | None
    seeds: tuple[int, ...]  # of the runs that are done
    failures: tuple[tuple[int, str], ...]  # (seed, reason)
    runs: tuple[str, ...]
    notes: tuple[str, ...]
    label: str = ""  # the shortest text that tells this row from the others in its table
    rank: int | None = None
    ranks: tuple[int, int] | None = None
    mode: str = ""  # the evaluation mode, where it is not the one of training
    typed: bool = False
    by_seed: tuple[tuple[int, float], ...] = ()  # each seed's mean over the unseen lengths
    step: float = 0.0  # what one right answer more adds to a seed's mean, at most
    trained: float | None = None  # mean exact match over all training lengths, at the last step
    tried: tuple[str, ...] = ()  # in a table of tuned encodings: the settings to choose from
    chosen: str = ""
    tuning_seconds: float | None = None  # CPU-seconds that the sweep took for this row


def table_key(record: Record) -> tuple[str, str, str]:
    """Records with equal keys belong into one table."""
    return record.protocol, record.task, record.shared_hash


def summarise(records: Iterable[Record], checkpoint: str = "last") -> list[Row]:
    """One row per table and encoding, best first. `checkpoint` is "last" or "best"."""
    if checkpoint not in ("last", "best"):
        raise ValueError(f"checkpoint must be 'last' or 'best', was given {checkpoint!r}")
    rows: list[Row] = []
    views = [view for record in records for view in record.views()]
    for _, table in groupby(sorted(views, key=_order), key=table_key):
        runs = list(table)
        lengths = sorted({(s.length, s.seen) for r in runs for s in getattr(r.scores, checkpoint)})
        own = [_row(list(one), lengths, checkpoint) for _, one in groupby(runs, key=_entry)]
        rows += ranked(_labelled(own))
    return rows


def bare(spec: str) -> str:
    """The text of an encoding without its options.

    >>> bare("randomized(max_len=512):rope(base=500)")
    'randomized:rope'
    """
    return re.sub(r"\([^()]*\)", "", spec) or spec


def _entry(record: Record) -> tuple[str, str, str]:
    return record.plain.spec, str(record.plain.encoding_version), record.mode


def _order(record: Record) -> tuple[object, ...]:
    return *table_key(record), *_entry(record), record.seed, record.finished, record.run


def _labelled(rows: list[Row]) -> list[Row]:
    """The short name where it says which row is meant; else the options, else the version too."""

    def label(row: Row) -> str:
        same = [other for other in rows if other.mode == row.mode]
        name = row.encoding
        if sum(other.encoding == row.encoding for other in same) > 1:
            several = sum(other.spec == row.spec for other in same) > 1
            name = f"{row.spec} (version {row.version})" if several else row.spec
        return f"{name} ({row.mode})" if row.mode else name

    return [replace(row, label=label(row)) for row in rows]


def _row(runs: list[Record], lengths: list[tuple[int, bool]], checkpoint: str) -> Row:
    first, notes = runs[0], []
    done = {run.seed: run for run in runs if run.status == "done"}  # the newest of each seed
    if extra := sum(run.status == "done" for run in runs) - len(done):
        notes.append(f"{extra} older run(s) with an equal seed left out")
    scores = {s: {x.length: x for x in getattr(r.scores, checkpoint)} for s, r in done.items()}
    cells = tuple(_cell(length, seen, scores) for length, seen in lengths)
    if any(x.method == "decoded" for own in scores.values() for x in own.values()):
        notes.append("scored by decoding token by token")
    by_seed, why = _unseen(cells, len(done))
    costs = [run.cost for run in done.values()]
    return Row(
        *table_key(first), first.encoding, *_entry(first)[:2], first.train_length, cells,
        over_seeds(list(by_seed.values())) if by_seed else None, why,
        *_reach(cells, first.train_length, bool(done)),
        _mean([c.steps_per_second for c in costs]), _mean([c.train_seconds for c in costs]),
        _mean([c.cpu_seconds for c in costs]), _mean([c.peak_memory_mb for c in costs]),
        _same([c.parameters for c in costs]),
        _same([c.encoding_parameters for c in costs]),
        tuple(done),
        tuple((r.seed, r.reason or "no reason given") for r in runs if r.status == "failed"),
        tuple(run.run for run in runs),
        tuple(notes),
        mode=first.mode,
        typed=bare(first.encoding) != first.encoding,
        by_seed=tuple(by_seed.items()),
        step=_step(cells),
        trained=_trained(done.values(), checkpoint),
        **_tuned(first),
    )  # fmt: skip


def _tuned(run: Record) -> dict[str, Any]:
    """What was tried and chosen, where the settings come from a sweep."""
    tuning = run.provenance.tuning
    if tuning is None:
        return {}
    return {
        "tried": tuple(values_text(trial.values) for trial in tuning.cells),
        "chosen": values_text(tuning.chosen),
        "tuning_seconds": tuning.cpu_seconds,
    }


def _trained(runs: Iterable[Record], checkpoint: str) -> float | None:
    """The mean over all training lengths at the last step; the learning curve ends with it."""
    if checkpoint != "last" or any(run.mode or not run.learning for run in runs):
        return None
    return _mean([run.learning[-1].exact for run in runs])


def _cell(length: int, seen: bool, scores: dict[int, dict[int, Score]]) -> Cell:
    own = {seed: by[length] for seed, by in scores.items() if length in by}
    statuses = {score.status for score in own.values()}
    if "cannot represent" in statuses:
        return Cell(length, seen, "cannot represent")
    good = {seed: score for seed, score in own.items() if score.status == "ok"}
    if not good:
        status = "no instance" if statuses else "not tested" if scores else "failed"
        return Cell(length, seen, status)
    seeds = tuple((seed, score.exact or 0.0) for seed, score in good.items())
    values = [value for _, value in seeds]
    correct = sum(score.correct or 0 for score in good.values())
    count = sum(score.count or 0 for score in good.values())
    tokens = [score.token for score in good.values() if score.token is not None]
    return Cell(
        length, seen, "ok", over_seeds(values, (correct, count)), median(values),
        fmean(tokens) if tokens else None, seeds, correct, count,
    )  # fmt: skip


def _unseen(cells: Sequence[Cell], done: int) -> tuple[dict[int, float], str | None]:
    """Each seed's mean over the unseen lengths; or nothing, and why."""
    cells = [cell for cell in cells if not cell.seen and cell.status != "no instance"]
    if not done:
        return {}, "failed"
    for status in ("cannot represent", "not tested"):
        if any(cell.status == status for cell in cells):
            return {}, status
    if not cells:
        return {}, "no unseen length"
    if any(len(cell.seeds) < done for cell in cells):
        return {}, "not tested with every seed"
    seeds = [seed for seed, _ in cells[0].seeds]
    by_seed = zip(*([value for _, value in cell.seeds] for cell in cells), strict=True)
    return dict(zip(seeds, map(fmean, by_seed), strict=True)), None


def _step(cells: Sequence[Cell]) -> float:
    """What one right answer more, at the unseen length with fewest examples, adds to the mean."""
    unseen = [cell.count / len(cell.seeds) for cell in cells if not cell.seen and cell.seeds]
    return 1 / (len(unseen) * min(unseen)) if unseen else 0.0


def _reach(cells: Sequence[Cell], train_length: int, done: bool) -> tuple[float | None, bool]:
    tested = [cell for cell in cells if cell.status != "no instance"]
    if not done or not tested:
        return None, False
    length = 0
    for cell in tested:
        if cell.exact is None or cell.exact.mean < PASS - 1e-9:
            return (length / train_length if length >= train_length else 0.0), False
        length = cell.length
    return (length / train_length if length >= train_length else 0.0), length >= train_length


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _same(values: list[int | None]) -> int | None:
    """The one value that all share, else None."""
    return values[0] if len(set(values)) == 1 else None
