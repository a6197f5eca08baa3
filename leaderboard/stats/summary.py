"""Summarise runs as one row per encoding, for the pages and the command line.

Runs are compared only within one table: same protocol, same task and the same settings in
everything but seed and encoding. Another evaluation mode of the same weights is a row of its own.
A seed counts in a table if a third of its encodings without typed options, or five of them, have a
run of it; such an encoding's runs of other seeds are a separate row, without a rank.
Three rules keep words from turning into numbers:
- a length that any seed cannot represent is the words "cannot represent", never 0;
- the mean over unseen lengths is None, with the reason, unless every unseen length has a number;
- a failed run counts as failed and enters no mean; not if its seed has a finished one.
Where the training length is not learned, scores beyond it say nothing about extrapolation: in
place of these numbers there are the words "not learned".
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, takewhile
from math import inf
from statistics import fmean, median
from typing import Any

from experiment.seeds import spans
from leaderboard.record.schema import Record, Score
from leaderboard.record.tuning import values_text
from leaderboard.stats.intervals import LEVEL, over_seeds, quantile
from leaderboard.stats.ranks import ranked
from leaderboard.stats.rows import (
    BIT_STEP,
    BITS,
    EXACT,
    MEASURES,
    NOT_LEARNED,
    PASS,
    TOKENS,
    Point,
    Row,
    enough,
    in_bits,
    passing,
    top,
)
from pezoo.spec import bare

ENOUGH = 5  # encodings that make a seed count, however many the table has
LEARNED = 0.98  # of the validation over the training lengths: a seed has learned


def table_key(record: Record) -> tuple[str, str, str]:
    """Return the key of the table that a record belongs to."""
    return record.protocol, record.task, record.shared_hash


def summarise(
    records: Iterable[Record], receives: Callable[[str], str] = lambda encoding: ""
) -> list[Row]:
    """Return a row per table, encoding and evaluation mode, best first, at the last step.

    Seeds that do not count have separate rows. `receives`: an encoding's hints, in words.
    """
    runs = sorted(records, key=lambda r: (*_row_key(r), r.seed, r.finished, r.run))
    rows: list[Row] = []
    for _, table in groupby(runs, key=table_key):
        own = list(table)
        every = [score for run in own for both in run.by_mode.values() for score in both.last]
        lengths = sorted({(score.length, score.seen) for score in every})
        made = [
            _row([run for run in same if mode in run.by_mode], mode, lengths, apart)
            for same, apart in _groups(own)
            for mode in sorted({mode for run in same for mode in run.by_mode})
        ]
        rows += ranked(_labelled(made, receives))
    return rows


def _typed(record: Record) -> bool:
    """Return whether options were typed with the name, unless these are ways to extend a model,
    which compete with each other."""
    return bare(record.encoding) != record.encoding and record.config.start is None


def _groups(runs: Sequence[Record]) -> Iterator[tuple[list[Record], bool]]:
    """Yield the runs of each row of a table, and whether their seeds do not count."""
    counting = _counting(runs)
    for _, group in groupby(runs, key=_row_key):
        same = list(group)
        others = {run.seed for run in same if not _typed(run)} - counting
        for apart in (False, True):
            if some := [run for run in same if (run.seed in others) is apart]:
                yield some, apart


def _counting(runs: Sequence[Record]) -> set[int]:
    """Return the seeds that count in one table; all of them if none is common enough."""
    tried: dict[tuple[str, ...], set[int]] = defaultdict(set)
    for run in runs:
        if not _typed(run):
            tried[_row_key(run)].add(run.seed)
    times = Counter(seed for seeds in tried.values() for seed in seeds)
    least = min(len(tried) / 3, ENOUGH)
    return {seed for seed, n in times.items() if n >= least} or {run.seed for run in runs}


def _row_key(record: Record) -> tuple[str, ...]:
    settings = record.config
    return *table_key(record), settings.spec, str(settings.encoding_version)


def _labelled(rows: list[Row], receives: Callable[[str], str]) -> list[Row]:
    """Label the rows: the typed name if unique, else all options, else also the version."""

    def label(row: Row) -> str:
        like = [other for other in rows if (other.mode, other.encoding) == (row.mode, row.encoding)]
        same = {(other.spec, other.version) for other in like}  # not of seeds apart
        name = row.encoding
        if len(same) > 1:
            several = sum(spec == row.spec for spec, _ in same) > 1
            name = f"{row.spec} (version {row.version})" if several else row.spec
        return f"{name} ({row.aside})" if row.aside else name

    return [replace(row, label=label(row), receives=receives(row.encoding)) for row in rows]


def _row(
    runs: Sequence[Record], mode: str, lengths: Iterable[tuple[int, bool]], apart: bool
) -> Row:
    """Return the row of runs that differ only in the seed."""
    first, track = runs[0], runs[0].config.track
    protocol, task, settings, spec, version = _row_key(first)
    done, notes = _first_of_seeds(runs)
    results = {
        seed: {score.length: score for score in run.by_mode[mode].last}
        for seed, run in done.items()
    }
    decoded = any(score.method == "decoded" for own in results.values() for score in own.values())
    if decoded:
        notes.append("scored by decoding token by token")
    seeds = {run.seed for run in runs}
    learned = bool(done) and _learned([*done.values()], len(seeds))
    cells = tuple(_cell(length, seen, results, track) for length, seen in lengths)
    cells = cells if learned else tuple(map(_unlearned, cells))
    by_seed, note = _unseen(cells, len(done))
    if by_seed and first.config.train.draw == "instances":
        notes += _of_all(cells, first.config.eval.samples)
    step = _step(cells, track)
    found = _reach(cells, first.train_length, track, len(seeds)) if learned else (None, False)
    return Row(
        protocol=protocol,
        task=task,
        settings=settings,
        track=track,
        encoding=first.encoding,
        spec=spec,
        version=version,
        mode=mode,
        apart=f"seed{'s' * (len(seeds) > 1)} {spans(seeds)}" if apart else "",
        custom=_typed(first),
        train_length=first.train_length,
        cells=cells,
        unseen=over_seeds([*by_seed.values()], step=step, top=top(track)) if by_seed else None,
        unseen_note=note,
        unseen_beside=_mean(cell.beside for cell in cells if not cell.seen) if by_seed else None,
        by_seed=tuple(by_seed.items()),
        step=step,
        learned=learned,
        reach=found[0],
        reach_open=found[1],
        steps_until_learned=_steps(done.values()) if learned and not mode else None,
        trained=None if mode else _trained(done.values()),
        seeds=tuple(done),
        failures=tuple(
            (run.seed, run.reason or "no reason given") for run in runs if run.seed not in done
        ),
        runs=tuple(run.run for run in runs),
        notes=tuple(notes),
        decoded=decoded,
        **_cost(done.values()),
        **_tuned(first),
    )


def _first_of_seeds(runs: Sequence[Record]) -> tuple[dict[int, Record], list[str]]:
    """Return the first finished run of each seed, so that lucky repetitions do not count."""
    done = dict[int, Record]()
    for run in runs:
        if run.status == "done":
            done.setdefault(run.seed, run)
    others = [run for run in runs if run.seed in done and run is not done[run.seed]]
    extra = sum(run.status == "done" for run in others)
    failed = len(others) - extra
    notes = [f"{extra} later run(s) with an equal seed left out"] * (extra > 0)
    return done, notes + [f"{failed} failed run(s) of finished seeds left out"] * (failed > 0)


def _of_all(cells: Sequence[Point], samples: int) -> list[str]:
    """Return a note with the share right of all unseen instances, if every instance was tested."""
    unseen = [cell for cell in cells if not cell.seen and cell.seeds]
    counts = [cell.count // len(cell.seeds) for cell in unseen]
    if max(counts) >= samples:
        return []
    share = sum(cell.correct for cell in unseen) / sum(cell.count for cell in unseen)
    return [f"whole answers: {100 * share:.1f} % of all {sum(counts)} unseen instances right"]


def _cost(runs: Iterable[Record]) -> dict[str, Any]:
    """Return means over the seeds, and numbers of parameters if all seeds agree."""
    costs = [run.cost for run in runs]
    means = ("steps_per_second", "cpu_seconds", "peak_memory_mb")
    found: dict[str, Any] = {name: _mean(getattr(cost, name) for cost in costs) for name in means}
    seconds = [cost.cpu_seconds for cost in costs if cost.cpu_seconds is not None]
    found["cpu_range"] = (min(seconds), max(seconds)) if seconds else None
    for name in ("parameters", "encoding_parameters"):
        values = {getattr(cost, name) for cost in costs}
        found[name] = values.pop() if len(values) == 1 else None
    return found


def _tuned(run: Record) -> dict[str, Any]:
    """Return the values tried and chosen, if a sweep chose the settings."""
    tuning = run.provenance.tuning
    if tuning is None:
        return {}
    return {
        "tried": tuple(values_text(trial.values) for trial in tuning.cells),
        "chosen": values_text(tuning.chosen),
        "tuning_seconds": tuning.cpu_seconds,
    }


def _trained(runs: Iterable[Record]) -> float | None:
    """Return the mean over all training lengths at the last step of the learning curves."""
    curves = [run.learning for run in runs]
    return _mean(curve[-1].exact for curve in curves) if all(curves) else None


def _learned(done: Sequence[Record], seeds: int) -> bool:
    """Return whether enough of the seeds pass the longest training length that is tested.

    Where none is, the validation over all training lengths decides. Of text every run has learned.
    """
    track = done[0].config.track
    if track == "text":
        return True
    seen = [
        {s.length: s for s in run.scores.last if s.seen and s.status != "no instance"}
        for run in done
    ]
    if longest := max((length for own in seen for length in own), default=None):
        last = [own[longest] for own in seen if longest in own]
        values = [one.token if track == "encoder" else one.exact for one in last]
    else:
        values = [run.learning[-1].exact for run in done if run.learning]
    return enough(sum((value or 0.0) >= PASS - 1e-9 for value in values), seeds)


def _unlearned(cell: Point) -> Point:
    """Return a point of a row that has not learned: without a number beyond training."""
    if cell.seen or cell.status != "ok":
        return cell
    return Point(length=cell.length, seen=cell.seen, status=NOT_LEARNED, ends=cell.ends)


def _steps(runs: Iterable[Record]) -> float | None:
    """Return the median over seeds of the first step with a validation of LEARNED, or None."""
    firsts = [
        next((one.step for one in run.learning if (one.exact or 0.0) >= LEARNED - 1e-9), inf)
        for run in runs
    ]
    middle = median(firsts)
    return None if middle == inf else middle


def _cell(length: int, seen: bool, results: Mapping[int, Mapping[int, Score]], track: str) -> Point:
    """Return one point; `results` are {seed: {length: score}}."""
    own = {seed: by[length] for seed, by in results.items() if length in by}
    good = {seed: score for seed, score in own.items() if score.status == "ok"}
    if any(score.status == "cannot represent" for score in own.values()):
        return Point(length=length, seen=seen, status="cannot represent")
    if not good:
        status = "no instance" if own else "not tested" if results else "failed"
        return Point(length=length, seen=seen, status=status)
    exact = {seed: score.exact or 0.0 for seed, score in good.items()}
    correct = sum(score.correct or 0 for score in good.values())
    count = sum(score.count or 0 for score in good.values())
    token = {seed: score.token or 0.0 for seed, score in good.items()}
    bits = {seed: score.bits or 0.0 for seed, score in good.items()}
    measures = {EXACT: exact, TOKENS: token, BITS: bits}
    main, beside = (measures[name] for name in MEASURES[track])
    counts = (correct, count) if track == "decoder" else None  # tokens of an answer go together
    step = BIT_STEP if in_bits(track) else len(main) / count
    return Point(
        length=length,
        seen=seen,
        main=over_seeds(list(main.values()), counts, step, top(track)),
        median=median(main.values()),
        beside=_mean(beside.values()),
        gain=_mean(score.gain for score in good.values()),
        gain_error=(error := _mean(score.gain_error for score in good.values())),
        gain_half=_half(error, count // len(good)),
        saved=sum(
            _saves(score.gain, _half(score.gain_error, score.count or 0)) for score in good.values()
        ),
        seeds=tuple(main.items()),
        correct=correct,
        count=count,
        ends=_ends(good.values(), track),
    )


def _ends(scores: Iterable[Score], track: str) -> float | None:
    """Return the share of tokens that end answers, one per answer of a decoder; None if unknown."""
    if track != "decoder":
        return 0.0
    counts = [(score.count or 0, score.tokens) for score in scores if score.tokens]
    return sum(n for n, _ in counts) / sum(t or 0 for _, t in counts) if counts else None


def _unseen(cells: Sequence[Point], done: int) -> tuple[dict[int, float], str | None]:
    """Return each seed's mean over the unseen lengths, or {} and the reason."""
    cells = [cell for cell in cells if not cell.seen and cell.status != "no instance"]
    if not done or not cells:
        return {}, "no unseen length" if done else "failed"
    statuses = {cell.status for cell in cells}
    for status in (NOT_LEARNED, "cannot represent", "not tested"):
        if status in statuses:
            return {}, status
    if any(len(cell.seeds) < done for cell in cells):
        return {}, "not tested with every seed"
    columns = [dict(cell.seeds) for cell in cells]
    return {seed: fmean(column[seed] for column in columns) for seed in columns[0]}, None


def _step(cells: Sequence[Point], track: str) -> float:
    """Return the effect on the mean of one answer at the unseen length with fewest examples."""
    if in_bits(track):
        return BIT_STEP
    unseen = [cell.count / len(cell.seeds) for cell in cells if not cell.seen and cell.seeds]
    return 1 / (len(unseen) * min(unseen)) if unseen else 0.0


def _half(error: float | None, texts: int) -> float | None:
    """Return half of the interval of a mean over texts with this standard error (Student's t)."""
    return None if error is None else quantile(LEVEL, max(texts - 1, 1)) * error


def _saves(gain: float | None, half: float | None) -> bool:
    """Return whether context beyond the training length saves bits."""
    return gain is not None and half is not None and gain > half


def _reach(cells: Sequence[Point], train_length: int, track: str, seeds: int) -> tuple[float, bool]:
    """Return the reach of a row that has learned, and whether every tested length passed."""

    def passes(cell: Point) -> bool:
        if track == "text":
            return cell.seen or _saves(cell.gain, cell.gain_half)
        return enough(passing(cell, track), seeds)

    tested = [cell for cell in cells if cell.status != "no instance"]
    seen = [at for at, cell in enumerate(tested) if cell.seen]
    beyond = tested[seen[-1] if seen else 0 :]
    passed = list(takewhile(passes, beyond))
    if not passed:
        return 0.0 if seen else 1.0, False  # without a tested training length, validation has it
    return max(passed[-1].length / train_length, 1.0), len(passed) == len(beyond)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
