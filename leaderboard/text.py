"""Numbers, intervals and notes as text."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence

from leaderboard.escape import csv_text
from leaderboard.stats.intervals import Stat, wilson
from leaderboard.stats.rows import NOT_LEARNED, PASS, SEEDS, SOLVED, Line, Row

RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def times(multiple: float) -> str:
    """
    >>> times(2.0), times(1.25)
    ('2x', '1.25x')
    """
    return f"{round(multiple, 2):g}x"


def percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def score(value: float | None, bits: bool = False) -> str:
    """Return a share in percent, or bits.

    >>> score(0.98), score(1.4702, bits=True)
    ('98.0', '1.470')
    """
    return f"{value:.3f}" if bits and value is not None else percent(value)


def shade(row: Row, best: float) -> float:
    """Return how dark a cell is, 0 to 1: by the fewest bits or the longest reach of the tables."""
    if row.in_bits:
        return best / row.unseen.mean if row.unseen and row.unseen.mean else 1.0
    return (row.reach or 0.0) / best


def number(value: float | None) -> str:
    """
    >>> number(1234.5), number(None)
    ('1,234', '-')
    """
    return "-" if value is None else f"{value:,.0f}"


def stat_text(stat: Stat, intervals: bool = True, bits: bool = False) -> str:
    """Return `98.2 [95.1, 100.0]`, in percent, or bits; only the mean without an interval."""
    if not intervals or stat.low is None:
        return score(stat.mean, bits)
    return f"{score(stat.mean, bits)} [{score(stat.low, bits)}, {score(stat.high, bits)}]"


def notes_text(rows: Iterable[Row], names: Mapping[str, str] | None = None) -> list[str]:
    """Return each note once, after the names of its rows; `names` are short names of labels."""
    found: dict[str, list[str]] = {}
    for row in rows:
        for note in row.notes:
            found.setdefault(note, []).append((names or {}).get(row.label, row.label))
    return [f"{', '.join(have)}: {note}" for note, have in found.items()]


def medians_text(rows: Iterable[Row], names: Mapping[str, str] | None = None) -> list[str]:
    """Return medians over at least three seeds at twice the training length and farthest out.

    A mean hides one seed that fails.

    `median over seeds at 20, 21, 100, 101, %: rope 12.0, 10.5, 0.0, 0.0`, or nothing.
    """
    found: dict[str, list[str]] = {}
    unit = "%"
    for row in rows:
        there = [cell for cell in row.cells if cell.status != "no instance"]
        far = [cell for cell in there if cell.length >= 2 * row.train_length]
        two = [c for c in far if c.length <= far[0].length + 1 or c.length >= far[-1].length - 1]
        if len(row.seeds) < 3 or not two or any(cell.median is None for cell in two):
            continue
        lengths, unit = ", ".join(str(cell.length) for cell in two), "bits" if row.in_bits else "%"
        values = ", ".join(score(cell.median, row.in_bits) for cell in two)
        found.setdefault(lengths, []).append(f"{(names or {}).get(row.label, row.label)} {values}")
    return [f"median over seeds at {at}, {unit}: {'; '.join(have)}" for at, have in found.items()]


def wilson_text(correct: int, count: int) -> str:
    """Return Wilson's interval of a run in percent.

    >>> wilson_text(8, 10)
    '[49.0, 94.3]'
    """
    low, high = wilson(correct, count)
    return f"[{percent(low)}, {percent(high)}]"


def unseen_text(row: Row, intervals: bool = True) -> str:
    """Return the mean beyond training, or why there is none."""
    if row.unseen is None:
        return row.unseen_note or "-"
    return stat_text(row.unseen, intervals, row.in_bits)


def headline(row: Row, most: int = 0) -> str:
    """Return `2x (61.5)`: the reach and, behind it, the mean beyond training; of text its bits.

    A raised number is that of the seeds, where others have more (`most`) or they are few.
    """
    marks = fewer(row, most)
    if row.unseen is None or row.in_bits:
        return unseen_text(row, False) + marks
    return f"{reach_text(row, most)} ({percent(row.unseen.mean)})"


def span_text(numbers: Iterable[int], between: str = " to ") -> str:
    """Return the range of the numbers; 0 for none.

    >>> span_text([3, 1, 1]), span_text([2, 2])
    ('1 to 3', '2')
    """
    low, *more = sorted(set(numbers)) or [0]
    return f"{low}{between}{more[-1]}" if more else f"{low}"


def seeds_of(lines: Sequence[Line]) -> list[list[int]]:
    """Return the numbers of seeds of these lines, by task."""
    columns_ = zip(*(line.rows for line in lines), strict=True)
    return [[len(row.seeds) for row in rows if row and row.seeds] or [0] for rows in columns_]


def fewer(row: Row, most: int) -> str:
    """Return the number of seeds, raised, if it is below that of the column, or below SEEDS.

    >>> "12".translate(RAISED)
    '¹²'
    """
    n = len(row.seeds)
    return str(n).translate(RAISED) if 0 < n < max(most, SEEDS) else ""


def reach_text(row: Row, most: int = 0) -> str:
    """Return `2.5x`; `≥5x` if every tested length passed; "not learned"; `0` of a mode that fails.

    A raised number is that of the seeds, where others have more (`most`) or they are few.
    """
    if row.unlearned:
        words = NOT_LEARNED
    elif row.reach is None:
        return "-"
    else:
        words = ("≥" if row.reach_open else "") + times(row.reach) if row.reach else "0"
    return words + fewer(row, most)


def unlearned_text(rows: Iterable[Row], names: Mapping[str, str]) -> list[str]:
    """Return one line that says how many seeds pass the training length in rows that have not
    learned; none without any."""
    low = []
    for row in rows:
        seen = [cell for cell in row.cells if cell.seen and cell.main]
        if row.unlearned and not row.mode and seen:
            passed, every = row.reached(seen[-1].length)
            low.append(f"{names[row.label]} ({passed} of {every} seeds)")
    least = f"{100 * SOLVED:.0f} % of the seeds at {PASS:g} at the training length"
    return [f"{NOT_LEARNED} (fewer than {least}): {', '.join(low)}"] if low else []


def seeds_text(row: Row) -> str:
    """Return finished seeds and failed runs, as `2` or `2, 1 failed`."""
    return f"{len(row.seeds)}" + (f", {len(row.failures)} failed" if row.failures else "")


def rank_text(row: Row | Line) -> str:
    """Return `2`; `2 [1-3]` with the ranks that the tests leave possible; `(2)` for custom options;
    `-` for none."""
    if row.rank is None:
        return "-"
    place = f"({row.rank})" if row.custom else str(row.rank)
    if row.ranks is None or row.ranks[0] == row.ranks[1]:
        return place
    return f"{place} [{row.ranks[0]}-{row.ranks[1]}]"


def shortened(label: str, room: int) -> str:
    """Shorten a label to `room` letters by cutting its middle.

    >>> shortened("prism_spectral(cursors=2,stride=2) (snapped)", 30)
    'prism_spect…tride=2) (snapped)'
    """
    if len(label) <= room:
        return label
    head = (room - 1) * 2 // 5
    return f"{label[:head]}…{label[head + 1 - room :]}"


def receives_text(row: Row | Line) -> str:
    """Return what an encoding receives besides the sequence in brackets; "" for nothing."""
    return f" ({row.receives})" if row.receives else ""


def as_csv(heads: Sequence[str], lines: Iterable[Iterable[object]]) -> str:
    """Return lines as CSV: numbers with six digits, and no cell that starts a formula.

    Without heads there are only the lines.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows([heads] * bool(heads))
    writer.writerows(map(csv_cell, line) for line in lines)
    return out.getvalue()


def csv_cell(value: object) -> object:
    """Return a cell of a CSV file."""
    kind = type(value)  # there are a million
    if kind is float:
        return f"{value:.6g}"
    return csv_text(value) if kind is str else value
