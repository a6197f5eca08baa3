"""Rows as text: for a terminal, for Markdown and for a spreadsheet."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence

from tabulate import tabulate

from leaderboard.escape import csv_text, markdown_text
from leaderboard.record.schema import Record
from leaderboard.stats.intervals import Stat, wilson
from leaderboard.stats.rows import EXACT, TOKENS, Cell, Line, Row

RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
UNSEEN_BESIDE = {TOKENS: "unseen tokens", EXACT: "unseen exact"}

CSV_HEADERS = [
    "protocol", "task", "settings", "rank", "encoding", "spec", "version", "length",
    "times_train_length", "seen", "status", "exact_mean", "exact_low", "exact_high", "interval",
    "exact_median", "token_mean", "correct", "count", "seeds", "failed", "unseen_mean",
    "unseen_low", "unseen_high", "unseen_note", "reach", "reach_open", "parameters",
    "encoding_parameters", "steps_per_second", "rank_first", "rank_last", "mode", "typed_options",
    "chosen_setting", "settings_tried", "metric", "seeds_apart",
]  # fmt: skip


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


def notes_text(rows: Iterable[Row], names: Mapping[str, str] | None = None) -> list[str]:
    """The notes of rows, each once, after the rows that have it; `names` are short for labels."""
    found: dict[str, list[str]] = {}
    for row in rows:
        for note in row.notes:
            found.setdefault(note, []).append((names or {}).get(row.label, row.label))
    return [f"{', '.join(have)}: {note}" for note, have in found.items()]


def medians_text(rows: Iterable[Row], names: Mapping[str, str] | None = None) -> list[str]:
    """Medians over three seeds or more at twice the length and farthest out, neighbours too: a
    mean hides one seed that fails.

    `median over seeds at 20, 21, 100, 101, %: rope 12.0, 10.5, 0.0, 0.0`, or nothing.
    """
    found: dict[str, list[str]] = {}
    for row in rows:
        there = [cell for cell in row.cells if cell.status != "no instance"]
        far = [cell for cell in there if cell.length >= 2 * row.train_length]
        two = [c for c in far if c.length <= far[0].length + 1 or c.length >= far[-1].length - 1]
        if len(row.seeds) < 3 or not two or any(cell.median is None for cell in two):
            continue
        lengths = ", ".join(str(cell.length) for cell in two)
        values = ", ".join(percent(cell.median) for cell in two)
        found.setdefault(lengths, []).append(f"{(names or {}).get(row.label, row.label)} {values}")
    return [f"median over seeds at {at}, %: {'; '.join(have)}" for at, have in found.items()]


def wilson_text(correct: int, count: int) -> str:
    """Wilson's interval of one run's right answers, in percent.

    >>> wilson_text(8, 10)
    '[49.0, 94.3]'
    """
    low, high = wilson(correct, count)
    return f"[{percent(low)}, {percent(high)}]"


def unseen_text(row: Row, intervals: bool = True) -> str:
    return row.unseen_note or "-" if row.unseen is None else stat_text(row.unseen, intervals)


def span_text(numbers: Iterable[int], between: str = " to ") -> str:
    """From the least to the most; of none, 0.

    >>> span_text([3, 1, 1]), span_text([2, 2])
    ('1 to 3', '2')
    """
    low, *more = sorted(set(numbers)) or [0]
    return f"{low}{between}{more[-1]}" if more else f"{low}"


def seeds_of(lines: Sequence[Line]) -> list[list[int]]:
    """By task, the numbers of seeds that these lines have."""
    columns_ = zip(*(line.rows for line in lines), strict=True)
    return [[len(row.seeds) for row in rows if row and row.seeds] or [0] for rows in columns_]


def fewer(row: Row, most: int) -> str:
    """The number of its seeds, small and raised, where it is below that of its column.

    >>> "12".translate(RAISED)
    '¹²'
    """
    n = len(row.seeds)
    return str(n).translate(RAISED) if 0 < n < most else ""


def reach_text(row: Row) -> str:
    """`2.5x`, `≥5x` where every tested length passed, `0` for less than the training length."""
    if row.reach is None:
        return "-"
    return "0" if not row.reach else ("≥" if row.reach_open else "") + times(row.reach)


def seeds_text(row: Row) -> str:
    """`3 (t)`, `1 (Wilson)`, `2 (t), 1 failed`: done seeds, kind of interval, failed runs."""
    one = "" if row.track == "encoder" else " (Wilson)"  # tokens of one answer are no sample
    done = f"{len(row.seeds)}{' (t)' if len(row.seeds) > 1 else one}" if row.seeds else "0"
    return done + (f", {len(row.failures)} failed" if row.failures else "")


def rank_text(row: Row | Line) -> str:
    """`2`, `2 [1-3]` with the places that the paired tests leave possible, `(2)` for a row with
    custom options, `-` where there is none; no brackets where no pair was tested."""
    if row.rank is None:
        return "-"
    place = f"({row.rank})" if row.custom else str(row.rank)
    if row.ranks is None or row.ranks[0] == row.ranks[1]:
        return place
    return f"{place} [{row.ranks[0]}-{row.ranks[1]}]"


def columns(row: Row) -> dict[str, str]:
    """What a table shows of a row, by column; lengths as `10 (trained)` and `15 (1.5x)`."""

    def head(cell: Cell) -> str:
        return (
            f"{cell.length} ({'trained' if cell.seen else times(cell.length / row.train_length)})"
        )

    return {
        "rank": rank_text(row),
        "encoding": row.label,
        "seeds": seeds_text(row),
        f"training {'exact' if row.track == 'encoder' else 'mean'}": percent(row.trained),
        **{head(c): stat_text(c.main) if c.main else c.status for c in row.cells},
        "unseen mean": unseen_text(row),
        UNSEEN_BESIDE[row.other]: percent(row.unseen_beside),
        "reach": reach_text(row),
        "parameters": "-" if row.parameters is None else f"{row.parameters}",
        "CPU s": "-" if row.cpu_seconds is None else f"{row.cpu_seconds:.0f}",
    }


def rows_as_markdown(rows: Sequence[Row], names: Mapping[str, str] | None = None) -> str:
    """The rows of one table in Markdown; every text is shown as it is, whatever it holds.

    `names` are short names of labels.

    Errors: ValueError for rows of several tables.
    """
    if len({(row.protocol, row.task, row.settings) for row in rows}) > 1:
        raise ValueError("rows of several protocols, tasks or settings do not share one table")
    lines = [columns(row) for row in rows]
    cells = [
        line | {"encoding": markdown_text((names or {}).get(row.label, row.label))}
        for row, line in zip(rows, lines, strict=True)
    ]
    align = ["right", "left", *["right"] * (len(lines[0]) - 2)]
    return tabulate(cells, "keys", tablefmt="pipe", disable_numparse=True, colalign=align)


def rows_as_csv(rows: Iterable[Row]) -> str:
    """One line per encoding and length, shares from 0 to 1, for any number of tables."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_HEADERS)
    for row in rows:
        for cell in row.cells:
            writer.writerow([_csv_cell(value) for value in _csv_line(row, cell)])
    return out.getvalue()


RUN_HEADERS = [
    "run", "protocol", "settings", "task", "encoding", "spec", "seed", "status", "mode", "length",
    "seen", "result", "exact", "correct", "count", "token", "train_length", "cpu_seconds",
    "train_seconds", "steps_per_second", "peak_memory_mb", "parameters", "data_hash",
    "backbone_hash", "commit", "dirty", "device", "torch", "finished",
]  # fmt: skip


def runs_as_csv(records: Iterable[Record]) -> bytes:
    """One line per run, evaluation mode and length, shares from 0 to 1; a failed run has one line
    without a length. It is UTF-8: of 20,000 runs a text would be a tenth of a build's memory."""
    out = io.BytesIO()
    lines = io.TextIOWrapper(out, "utf-8", newline="")
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(RUN_HEADERS)
    for record in records:
        cost, env = record.cost, record.env
        head: list[object] = [
            record.run, record.protocol, f"#{record.shared_hash}", record.task, record.encoding,
            record.config.encoding, record.seed, record.status,
        ]  # fmt: skip
        tail: list[object] = [
            record.train_length, cost.cpu_seconds, cost.train_seconds, cost.steps_per_second,
            cost.peak_memory_mb, cost.parameters, record.data_hash, record.backbone_hash,
            env.commit, env.dirty, env.device, env.torch, record.provenance.finished,
        ]  # fmt: skip
        head, tail = ([_csv_cell(value) for value in part] for part in (head, tail))
        for mode, scores in record.by_mode.items():
            for one in scores.last:
                token = None if one.token is None else f"{one.token:.6g}"
                exact = None if one.exact is None else f"{one.exact:.6g}"
                writer.writerow([*head, mode, one.length, one.seen, one.status, exact,
                                 one.correct, one.count, token, *tail])  # fmt: skip
        if not record.scores.last:
            writer.writerow([*head, "", None, None, "failed", *[None] * 4, *tail])
    lines.flush()
    return out.getvalue()


def _csv_line(row: Row, cell: Cell) -> list[object]:
    main, unseen = cell.main, row.unseen
    of_tokens = row.metric == TOKENS
    stat = (main.mean, main.low, main.high, main.method) if main else (None,) * 4
    exact = (cell.beside, None, None, None) if of_tokens else stat
    return [
        row.protocol, row.task, f"#{row.settings}", row.rank, row.encoding, row.spec, row.version,
        cell.length, cell.length / row.train_length, cell.seen, cell.status,
        *exact, None if of_tokens else cell.median, stat[0] if of_tokens else cell.beside,
        cell.correct or (0 if main else None), cell.count or None,
        len(row.seeds), len(row.failures),
        *((unseen.mean, unseen.low, unseen.high) if unseen else [None] * 3), row.unseen_note,
        row.reach, row.reach_open, row.parameters, row.encoding_parameters, row.steps_per_second,
        *(row.ranks or (None, None)), row.mode, row.custom, row.chosen, len(row.tried) or None,
        row.metric, row.apart,
    ]  # fmt: skip


def _csv_cell(value: object) -> object:
    if isinstance(value, float):
        return f"{value:.6g}"
    return csv_text(value) if isinstance(value, str) else value
