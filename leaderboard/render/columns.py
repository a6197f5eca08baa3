"""The columns of a row: one list for the terminal, Markdown, CSV, JSON and the site's tables.

A column that is added to COLUMNS is in all of them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tabulate import tabulate

from leaderboard.escape import markdown_text
from leaderboard.stats.rows import BITS, EXACT, NOT_LEARNED, TOKENS, Point, Row
from leaderboard.text import (
    as_csv,
    number,
    percent,
    rank_text,
    reach_text,
    seeds_text,
    stat_text,
    times,
    unseen_text,
)

TEXTS = "terminal", "wide", "markdown"
BESIDE = {TOKENS: "unseen tokens", EXACT: "unseen exact"}


@dataclass(frozen=True)
class Column:
    """One column. `name` is its name in files; by default its value is the row's field `name`.

    A column with a `head` stands in the tables of `places`: "terminal", "wide" (that of --wide),
    "markdown" and "page". `text` is its cell there; by default the number. `at_length` gives the
    value at one length: such a column is in the CSV file alone.
    """

    name: str
    value: Callable[[Row], Any] | None = None
    head: str = ""
    text: Callable[[Row], str] | None = None
    at_length: Callable[[Row, Point], Any] | None = None
    places: tuple[str, ...] = (*TEXTS, "page")

    def of(self, row: Row, cell: Point | None = None) -> Any:
        """Return the value for files."""
        if self.at_length is not None:
            return self.at_length(row, cell) if cell else None
        return self.value(row) if self.value else getattr(row, self.name)

    def shown(self, row: Row) -> str:
        """Return the text for tables."""
        return self.text(row) if self.text else number(self.of(row))


def in_tables(place: str) -> list[Column]:
    """Return the columns of a place that follow the scores."""
    return [column for column in COLUMNS if column.head and place in column.places]


def _mean(metric: str) -> Callable[[Row, Point], float | None]:
    """Return a function for the mean of one measure, which is the row's metric or beside it."""

    def mean(row: Row, cell: Point) -> float | None:
        if row.metric == metric:
            return cell.main and cell.main.mean
        return cell.beside if row.other == metric else None

    return mean


def _bound(name: str) -> Callable[[Row, Point], Any]:
    """Return a function for a bound of exact match, if it is the metric."""
    return lambda row, cell: _if_exact(row, getattr(cell.main, name, None))


def _if_exact(row: Row, value: Any) -> Any:
    return value if row.metric == EXACT else None


COLUMNS: tuple[Column, ...] = (
    Column("protocol"),
    Column("task"),
    Column("settings", lambda row: f"#{row.settings}"),
    Column("rank"),
    Column("encoding"),
    Column("spec"),
    Column("version"),
    Column("length", at_length=lambda row, cell: cell.length),
    Column("times_train_length", at_length=lambda row, cell: cell.length / row.train_length),
    Column("seen", at_length=lambda row, cell: cell.seen),
    Column("status", at_length=lambda row, cell: cell.status),
    Column("exact_mean", at_length=_mean(EXACT)),
    Column("exact_low", at_length=_bound("low")),
    Column("exact_high", at_length=_bound("high")),
    Column("interval", at_length=_bound("method")),
    Column("exact_median", at_length=lambda row, cell: _if_exact(row, cell.median)),
    Column("token_mean", at_length=_mean(TOKENS)),
    Column("bits_mean", at_length=_mean(BITS)),
    Column("bits_saved", at_length=lambda row, cell: cell.gain),
    Column("bits_saved_error", at_length=lambda row, cell: cell.gain_error),
    Column("correct", at_length=lambda row, cell: cell.correct or (0 if cell.main else None)),
    Column("count", at_length=lambda row, cell: cell.count or None),
    Column("unseen_mean", lambda row: row.unseen and row.unseen.mean),
    Column("unseen_low", lambda row: row.unseen and row.unseen.low),
    Column("unseen_high", lambda row: row.unseen and row.unseen.high),
    Column("unseen_note"),
    Column("learned"),
    Column("reach", head="reach", text=reach_text, places=("page",)),
    Column("reach_open"),
    Column("steps_until_learned", head="steps until learned", places=("wide", "markdown", "page")),
    Column("seeds", lambda row: len(row.seeds), "seeds", seeds_text, places=TEXTS),
    Column("failed", lambda row: len(row.failures)),
    Column("parameters", head="parameters", places=("markdown", "page")),
    Column("encoding_parameters", head="its own", places=("page",)),
    Column("steps_per_second"),
    Column("cpu_seconds", head="CPU s"),
    Column("cpu_seconds_least", lambda row: row.cpu_range and row.cpu_range[0]),
    Column("cpu_seconds_most", lambda row: row.cpu_range and row.cpu_range[1]),
    Column("peak_memory_mb", head="peak MB", places=("page",)),
    Column("rank_first", lambda row: row.ranks and row.ranks[0]),
    Column("rank_last", lambda row: row.ranks and row.ranks[1]),
    Column("mode"),
    Column("typed_options", lambda row: row.custom),
    Column("chosen_setting", lambda row: row.chosen),
    Column("settings_tried", lambda row: len(row.tried) or None),
    Column("metric"),
    Column("seeds_apart", lambda row: row.apart),
    Column("receives"),
)


def rows_as_csv(rows: Iterable[Row]) -> str:
    """Return one CSV line per encoding and length, with shares from 0 to 1."""
    lines = ([column.of(row, cell) for column in COLUMNS] for row in rows for cell in row.cells)
    return as_csv([column.name for column in COLUMNS], lines)


def rows_as_markdown(rows: Sequence[Row], names: Mapping[str, str] | None = None) -> str:
    """Return the rows of one table in Markdown; `names` are short names of labels.

    Errors: ValueError for rows of several tables.
    """
    if len({(row.protocol, row.task, row.settings) for row in rows}) > 1:
        raise ValueError("rows of several protocols, tasks or settings do not share one table")
    lines = [_markdown(row, (names or {}).get(row.label, row.label)) for row in rows]
    align = ["right", "left", *["right"] * (len(lines[0]) - 2)]
    return tabulate(lines, "keys", tablefmt="pipe", disable_numparse=True, colalign=align)


def _at(row: Row, cell: Point) -> str:
    """Return the score at a length; of a text also the bits that longer context saves."""
    if cell.main is None:
        return _dash(cell.status)
    saved = "" if cell.seen or cell.gain is None else f" ({round(cell.gain, 3) + 0.0:+.3f})"
    return stat_text(cell.main, bits=row.in_bits) + saved


def _dash(words: str) -> str:
    """Return the words in place of a number; "-" where the column "reach" has them."""
    return "-" if words == NOT_LEARNED else words


def _markdown(row: Row, name: str) -> dict[str, str]:
    """Return the cells of a row by head; lengths are `10 (trained)`, `15 (1.5x)`."""

    def head(cell: Point) -> str:
        where = "trained" if cell.seen else times(cell.length / row.train_length)
        return f"{cell.length} ({where})"

    head_of_training = "training exact" if row.track == "encoder" else "training mean"
    return {
        "rank": rank_text(row),
        "encoding": markdown_text(name),
        "reach": reach_text(row),
        f"unseen {'bits' if row.in_bits else 'mean'}": _dash(unseen_text(row)),
        **({} if row.in_bits else {head_of_training: percent(row.trained)}),
        **{head(cell): _at(row, cell) for cell in row.cells},
        BESIDE[row.other]: percent(row.unseen_beside),
        **{column.head: column.shown(row) for column in in_tables("markdown")},
    }
