"""Rows as text: for a terminal, for Markdown and for a spreadsheet."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from statistics import fmean

from tabulate import tabulate

from leaderboard.files import csv_text, markdown_text
from leaderboard.intervals import Stat, wilson
from leaderboard.summary import Cell, Row

CSV_HEADERS = [
    "protocol", "task", "settings", "rank", "encoding", "spec", "version", "length",
    "times_train_length", "seen", "status", "exact_mean", "exact_low", "exact_high", "interval",
    "exact_median", "token_mean", "correct", "count", "seeds", "failed", "unseen_mean",
    "unseen_low", "unseen_high", "unseen_note", "reach", "reach_open", "parameters",
    "encoding_parameters", "steps_per_second", "rank_first", "rank_last", "mode", "typed_options",
    "chosen_setting", "settings_tried",
]  # fmt: skip


_TAIL = ("unseen mean", "unseen tokens", "reach", "parameters", "steps/s")


def length_header(cell: Cell, train_length: int) -> str:
    """`10 (trained)` for a length seen in training, `15 (1.5x)` for one that was not."""
    return f"{cell.length} ({'trained' if cell.seen else times(cell.length / train_length)})"


def times(multiple: float) -> str:
    """
    >>> times(2.0), times(1.25)
    ('2x', '1.25x')
    """
    return f"{round(multiple, 2):g}x"


def percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def stat_text(stat: Stat, intervals: bool = True) -> str:
    """`98.2 [95.1, 100.0]`, in percent; only the mean where there is no interval."""
    if not intervals or stat.low is None:
        return percent(stat.mean)
    return f"{percent(stat.mean)} [{percent(stat.low)}, {percent(stat.high)}]"


def wilson_text(correct: int, count: int) -> str:
    """Wilson's interval of one run's right answers, in percent.

    >>> wilson_text(8, 10)
    '[49.0, 94.3]'
    """
    low, high = wilson(correct, count)
    return f"[{percent(low)}, {percent(high)}]"


def cell_text(cell: Cell, intervals: bool = True) -> str:
    """The mean with its interval, or the words instead of it."""
    return cell.status if cell.exact is None else stat_text(cell.exact, intervals)


def unseen_text(row: Row, intervals: bool = True) -> str:
    return row.unseen_note or "-" if row.unseen is None else stat_text(row.unseen, intervals)


def token_text(row: Row) -> str:
    """Mean token accuracy over the unseen lengths, in percent; `-` where that mean has gaps."""
    tokens = [cell.token for cell in row.cells if not cell.seen and cell.token is not None]
    return percent(fmean(tokens)) if row.unseen is not None and tokens else "-"


def reach_text(row: Row) -> str:
    """`2.5x`, `≥5x` where every tested length passed, `0` for less than the training length."""
    if row.reach is None:
        return "-"
    return "0" if not row.reach else ("≥" if row.reach_open else "") + times(row.reach)


def seeds_text(row: Row) -> str:
    """`3 (t)`, `1 (Wilson)`, `2 (t), 1 failed`: done seeds, kind of interval, failed runs."""
    n = len(row.seeds)
    done = f"{n} ({'t' if n > 1 else 'Wilson'})" if n else "0"
    return done + (f", {len(row.failures)} failed" if row.failures else "")


def rank_text(row: Row) -> str:
    """`2`, `2 [1-3]` with the places that paired comparisons leave possible, `(2)` for a row with
    options typed by hand, `-` where there is none."""
    if row.rank is None:
        return "-"
    place = f"({row.rank})" if row.typed else str(row.rank)
    if row.ranks is None or row.ranks[0] == row.ranks[1]:
        return place
    return f"{place} [{row.ranks[0]}-{row.ranks[1]}]"


def headers(rows: Sequence[Row]) -> list[str]:
    """The column heads of one table. Errors: ValueError for rows of several tables."""
    if len({(row.protocol, row.task, row.settings) for row in rows}) > 1:
        raise ValueError("rows of several protocols, tasks or settings do not share one table")
    lengths = [length_header(c, r.train_length) for r in rows[:1] for c in r.cells]
    return ["rank", "encoding", "seeds", "training mean", *lengths, *_TAIL]


def rows_as_lists(rows: Sequence[Row], intervals: bool = True) -> list[list[str]]:
    """The cells of one table as text, in the order of `headers`."""
    return [
        [
            rank_text(row),
            row.label,
            seeds_text(row),
            percent(row.trained),
            *(cell_text(cell, intervals) for cell in row.cells),
            unseen_text(row, intervals),
            token_text(row),
            reach_text(row),
            "-" if row.parameters is None else f"{row.parameters}",
            "-" if row.steps_per_second is None else f"{row.steps_per_second:.1f}",
        ]
        for row in rows
    ]


def rows_as_markdown(rows: Sequence[Row], intervals: bool = True) -> str:
    """One table in Markdown; every text is shown as it is, whatever it holds."""
    lists = rows_as_lists(rows, intervals)
    cells = [[row[0], markdown_text(row[1]), *row[2:]] for row in lists]  # the rest is our own text
    align = ["right", "left", *["right"] * (len(headers(rows)) - 2)]
    return tabulate(
        cells, headers(rows), tablefmt="pipe", disable_numparse=True, colalign=align if rows else ()
    )


def rows_as_csv(rows: Iterable[Row]) -> str:
    """One line per encoding and length, shares from 0 to 1, for any number of tables."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_HEADERS)
    for row in rows:
        for cell in row.cells:
            writer.writerow([_csv_cell(value) for value in _csv_line(row, cell)])
    return out.getvalue()


def _csv_line(row: Row, cell: Cell) -> list[object]:
    exact, unseen = cell.exact, row.unseen
    return [
        row.protocol, row.task, f"#{row.settings}", row.rank, row.encoding, row.spec, row.version,
        cell.length, cell.length / row.train_length, cell.seen, cell.status,
        *((exact.mean, exact.low, exact.high, exact.method) if exact else [None] * 4),
        cell.median, cell.token, cell.correct or (0 if exact else None), cell.count or None,
        len(row.seeds), len(row.failures),
        *((unseen.mean, unseen.low, unseen.high) if unseen else [None] * 3), row.unseen_note,
        row.reach, row.reach_open, row.parameters, row.encoding_parameters, row.steps_per_second,
        *(row.ranks or (None, None)), row.mode, row.typed, row.chosen, len(row.tried) or None,
    ]  # fmt: skip


def _csv_cell(value: object) -> object:
    if isinstance(value, float):
        return f"{value:.6g}"
    return csv_text(value) if isinstance(value, str) else value
