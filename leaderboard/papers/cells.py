"""Fill the cells of a paper's table from records."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from math import inf
from statistics import fmean, stdev
from typing import Self

from experiment.config import Eval, Model, Protocol, Train
from experiment.protocol import base
from leaderboard.papers.paper import (
    Number,
    Paper,
    PaperColumn,
    PaperGain,
    PaperLine,
    PaperTable,
    lines_of,
)
from leaderboard.record.schema import Checkpoint, Record, Score
from pezoo.registry import parse

NO_RUN = "no run"
ByKind = dict[str, dict[str, list[Record]]]  # by task and encoding


@dataclass(frozen=True, kw_only=True)
class Cell:
    """Our number beside the published one.

    `words` say why our number is missing. `used` are the runs behind the number, of all `runs` of
    the cell. `comparable` is False for measures that depend on the machine.
    """

    group: str
    task: str
    column: str
    paper: Number | None
    ours: Number | None = None
    words: str = NO_RUN
    encoding: str = ""  # whose number it is
    checkpoint: Checkpoint = "last"
    times: tuple[float, float] | None = None
    used: tuple[Record, ...] = ()
    runs: tuple[Record, ...] = ()
    comparable: bool = True

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's."""
        if not (self.ours and self.paper and self.comparable):
            return None
        return self.ours.value - self.paper.value


@dataclass(frozen=True)
class Filled:
    """One table or figure of a paper, filled by the runs of one protocol."""

    paper: Paper
    part: PaperTable
    protocol: Protocol
    lengths: frozenset[int] | None  # those that count; None: all unseen ones
    cells: tuple[Cell, ...]  # row by row
    others: int = 0  # records of the protocol and these tasks that fill none
    reference: Protocol | None = None  # of the paper's size, to say what else ours changes

    @property
    def runs(self) -> list[Record]:
        """All runs of its cells, each once."""
        return list({run.run: run for cell in self.cells for run in cell.runs}.values())

    def of(self, task: str) -> Self:
        """Return the row of a task; all rows for ""."""
        own = tuple(cell for cell in self.cells if task in ("", cell.task))
        return replace(self, cells=own)


def fill(
    paper: Paper,
    part: PaperTable,
    records: Iterable[Record],
    protocol: Protocol,
    lengths: frozenset[int] | None = None,
    reference: Protocol | None = None,
) -> Filled:
    """Fill a table or a figure from runs of a protocol, which may differ in the learning rate.

    A figure over training takes runs with `eval.curve_lengths`: unless the protocol has its
    own, all test lengths beyond training.
    """
    records = list(records)
    if part.gains:
        sources = [
            (gain, fill(paper, paper.table(gain.table), records, protocol, lengths))
            for gain in part.gains
        ]
        cells = tuple(cell for gain, source in sources for cell in _gains(gain, source))
        return Filled(paper, part, protocol, lengths, cells, reference=reference)
    if part.along:
        protocol = _along(protocol)
        lengths = frozenset(protocol.eval.curve_lengths or ())
    lines = list(lines_of(paper, part, protocol.name))
    known = {column.task(line.task) for line in lines for column in part.columns}
    records = [one for one in records if one.task in known]
    by_kind: ByKind = defaultdict(lambda: defaultdict(list))
    for record in records:
        by_kind[record.task][record.config.spec].append(record)
    settings = cache(partial(_settings, protocol))

    def cell_of(line: PaperLine, column: PaperColumn) -> Cell:
        task = column.task(line.task)
        empty = Cell(
            group=line.group,
            task=line.task,
            column=column.name,
            checkpoint=column.checkpoint,
            times=column.times,
            paper=line.numbers.get(column.name),
            comparable=part.measure != "hours",
        )
        options = [
            _filled(replace(empty, encoding=encoding, runs=tuple(own)), column, part, lengths)
            for name in column.encodings
            for encoding in paper.texts(name)
            if (own := _runs(by_kind, protocol, task, encoding, settings(task, column.long)))
        ]
        return max(options, key=lambda cell: cell.ours.value if cell.ours else -inf, default=empty)

    cells = tuple(cell_of(line, column) for line in lines for column in part.columns)
    filled = Filled(paper, part, protocol, lengths, cells, reference=reference)
    used = {record.run for record in filled.runs}
    others = [r for r in records if base(r.protocol) == base(protocol.name) and r.run not in used]
    return replace(filled, others=len(others))


def _gains(gain: PaperGain, table: Filled) -> tuple[Cell, Cell]:
    """Return the mean and the largest lead, over tasks, of the best of some columns over others."""
    ours: dict[str, dict[str, float]] = defaultdict(dict)
    theirs: dict[str, dict[str, float]] = defaultdict(dict)
    used, tried = {}, {}
    for cell in table.cells:
        for numbers, number in ((ours, cell.ours), (theirs, cell.paper)):
            if number:
                numbers[cell.task][cell.column] = number.value
        if cell.column in (*gain.best, *gain.over):
            used |= {run.run: run for run in cell.used}
            tried |= {run.run: run for run in cell.runs}

    def above(row: dict[str, float]) -> float:
        best, over = (max(row.get(n, -inf) for n in names) for names in (gain.best, gain.over))
        return best - over if -inf < min(best, over) else -inf

    def summary(
        rows: dict[str, dict[str, float]], of: Callable[[list[float]], float]
    ) -> Number | None:
        found = [value for value in map(above, rows.values()) if value > -inf]
        return Number(of(found)) if found else None

    mean, largest = (
        Cell(
            group="", task=gain.name, column=name, paper=summary(theirs, of),
            ours=summary(ours, of),
            used=tuple(used.values()), runs=tuple(tried.values()),
        )
        for name, of in (("mean", fmean), ("largest", max))
    )  # fmt: skip
    return mean, largest


def _along(protocol: Protocol) -> Protocol:
    """Return the protocol with test scores along training."""
    test, high = protocol.eval, protocol.train.lengths[1]
    unseen = test.curve_lengths or tuple(length for length in test.lengths if length > high)
    test = test.model_copy(update={"curve_lengths": unseen})
    return protocol.model_copy(update={"eval": test})


def _runs(
    by_kind: ByKind,
    protocol: Protocol,
    task: str,
    encoding: str,
    settings: tuple[Model, Train, Eval],
) -> list[Record]:
    """Return the first finished run of every seed and learning rate, of the newest versions."""
    kinds = by_kind.get(task)
    if not kinds or not (there := kinds.get(str(protocol.fill(task, parse(encoding))))):
        return []
    own = [record for record in there if _follows(record, protocol, *settings)]
    newest = max(map(_versions, own), default=None)
    own = sorted((r for r in own if _versions(r) == newest), key=lambda r: (r.finished, r.run))
    order = sorted(own, key=lambda r: r.status != "done")  # a failed one counts without another
    first: dict[tuple[float, int], Record] = {}
    for record in order:
        first.setdefault((record.config.train.lr, record.seed), record)
    return list(first.values())


def _versions(record: Record) -> tuple[int, int]:
    return record.config.task_version, record.config.encoding_version


def _settings(protocol: Protocol, task: str, long: bool) -> tuple[Model, Train, Eval]:
    """Return a protocol's settings; one that is long trains to the longest test length."""
    model, train, test = protocol.settings(task)
    if long:
        train = train.model_copy(update={"lengths": (train.lengths[0], max(test.lengths))})
    return model, train, test


def _follows(record: Record, protocol: Protocol, model: Model, train: Train, test: Eval) -> bool:
    """Return whether a run has the settings of a protocol except for the learning rate."""
    own = record.config
    return (own.track, own.model, own.eval) == (protocol.track, model, test) and (
        own.train.model_copy(update={"lr": train.lr}) == train
    )


def _filled(
    cell: Cell, column: PaperColumn, part: PaperTable, lengths: frozenset[int] | None
) -> Cell:
    """Return the cell with the number of its runs, or with words."""
    scores = {
        run.run: score_of(run, part, lengths, cell.checkpoint, cell.times) for run in cell.runs
    }
    good = [run for run in cell.runs if not isinstance(scores[run.run], str)]
    if not good:
        return replace(cell, words=str(next(iter(scores.values()))))

    def mean(some: Sequence[Record]) -> float:
        return fmean(float(scores[run.run]) for run in some)

    if column.summary == "max":
        best = max(good, key=lambda run: mean([run]))
        return replace(cell, ours=Number(mean([best])), used=(best,))
    same = good if column.summary == "all" else max(_of_most_seeds(good), key=mean)
    sd = stdev(mean([run]) for run in same) if len(same) > 1 else None
    return replace(cell, ours=Number(mean(same), sd), used=tuple(same))


def counted(
    run: Record,
    part: PaperTable,
    lengths: frozenset[int] | None,
    checkpoint: Checkpoint = "last",
    times: tuple[float, float] | None = None,
) -> list[Score]:
    """Return the scores that count: those of `lengths`, else all unseen ones.

    A table may name one multiple of the training length instead, a column two (`times`).
    """
    if part.measure == "pairs":
        return [score for pair, score in pairs_of(run).items() if max(pair) > run.train_length]
    if lengths is None and (multiple := part.at.get(run.task)) is not None:
        lengths = frozenset({round(multiple * run.train_length)})
    if lengths is None and times:
        low, high = (round(one * run.train_length) for one in times)
        lengths = frozenset(range(low + 1, high + 1))
    return [
        score
        for score in getattr(run.scores, checkpoint)
        if (not score.seen if lengths is None else score.length in lengths)
    ]


def pairs_of(run: Record) -> dict[tuple[int, int], Score]:
    """Return the scores of test sets such as "17+n", by both lengths."""
    return {
        (int(name.removesuffix("+n")), score.length): score
        for name, scores in run.sets.items()
        if name.removesuffix("+n").isdigit()
        for score in scores
    }


def _of_most_seeds(runs: Sequence[Record]) -> list[list[Record]]:
    """Return the runs of each learning rate that has the most seeds."""
    rates: dict[float, list[Record]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: run.config.train.lr):
        rates[run.config.train.lr].append(run)
    most = max(map(len, rates.values()))
    return [own for own in rates.values() if len(own) == most]


def score_of(
    run: Record,
    part: PaperTable,
    lengths: frozenset[int] | None,
    checkpoint: Checkpoint = "last",
    times: tuple[float, float] | None = None,
) -> float | str:
    """Return the hours of a run, the end of its learning curve, or its mean score in percent.

    Words where there is no number.
    """
    if run.status != "done":
        return "failed"
    if part.measure == "hours":
        seconds = run.cost.train_seconds
        return "not measured" if seconds is None else seconds / 3600
    if part.along:
        share = getattr(run.learning[-1], part.measure) if run.learning else None
        return "not measured" if share is None else 100 * share
    every = counted(run, part, lengths, checkpoint, times)
    scores = [one for one in every if one.status != "no instance"]
    measure = "exact" if part.measure == "pairs" else part.measure
    values = [getattr(score, measure) for score in scores if score.status == "ok"]
    if len(values) < len(scores) or None in values:
        return next((score.status for score in scores if score.status != "ok"), "not measured")
    if not values and checkpoint.startswith("top") and run.config.eval.top_below:
        return f"loss never below {run.config.eval.top_below:g}"
    return 100 * fmean(values) if values else "not tested"


def filled_by_first(
    paper: Paper,
    part: PaperTable,
    records: Sequence[Record],
    protocols: Sequence[Protocol],
    lengths: frozenset[int] | None = None,
    reference: Protocol | None = None,
) -> Filled:
    """Fill a part by the first protocol that has runs, or by the last one."""
    for protocol in protocols:
        filled = fill(paper, part, records, protocol, lengths, reference)
        if filled.runs:
            break
    return filled
