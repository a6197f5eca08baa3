"""The README's first table: how far each encoding carries on, on which tasks, and at what cost."""

from __future__ import annotations

from collections.abc import Sequence

from tabulate import tabulate

from leaderboard.catalog import Catalog
from leaderboard.escape import markdown_text
from leaderboard.findings import chosen, cost, disclosure
from leaderboard.overview import bare_lines, main_tables, overview
from leaderboard.rows import Line, Row
from leaderboard.summary import PASS
from leaderboard.tables import Table
from leaderboard.text import reach_text

BEGIN = "<!-- made by pezoo leaderboard build -->"
END = "<!-- end -->"
MOST = 12  # rows, the one of all others included


def filled(text: str, tables: Sequence[Table], catalog: Catalog) -> str:
    """A README with the table between its two comments made anew; unchanged where it has none.

    Errors: ValueError where one is missing, or they are the wrong way round.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end and (begin or END in text):
        raise ValueError(f"a README needs {BEGIN} and, after it, {END}; or neither")
    own = main_tables(tables)
    if not end or not own:
        return text
    return f"{before}{begin}\n{_block(own, catalog)}\n{end}{after}"


def _block(tables: Sequence[Table], catalog: Catalog) -> str:
    lines = bare_lines(overview(tables))
    far = [line for line in lines if (line.reach or 0) > 1][: MOST - 1]
    rest = [line for line in lines if line not in far]
    marks = chosen(tables, catalog)
    rows = [[_name(line, marks), *map(_cell, line.rows), _cost([line])] for line in far]
    if rest:
        columns = zip(*(line.rows for line in rest), strict=True)
        rows.append(
            [f"{len(rest)} other{'s' * (len(rest) > 1)}", *map(_most, columns), _cost(rest)]
        )
    heads = ["encoding", *(markdown_text(table.first.task) for table in tables), "CPU s a run"]
    table = tabulate(rows, heads, tablefmt="pipe", disable_numparse=True)
    others = ", ".join(_name(line, marks) for line in rest)
    after = f"\nThe others: {others}.\n" if rest else ""
    return f"\n{_intro(lines, tables, catalog)}\n\n{table}\n{after}"


def _intro(lines: Sequence[Line], tables: Sequence[Table], catalog: Catalog) -> str:
    counts = sorted({len(row.seeds) for line in lines for row in line.own if row.seeds}) or [0]
    seeds = "one seed" if counts == [1] else f"{counts[-1]} seeds"
    seeds = f"{counts[0]} to {seeds}" if counts[1:] else seeds
    return (
        f"Up to how many times the training length at least {PASS} of the answers are right in "
        f"every token, on average over {seeds}; 0: not even up to it; ≥: to the longest length "
        f"tested. {disclosure(tables, catalog)}"
    ).strip()


def _name(line: Line, marks: set[str]) -> str:
    name = markdown_text(line.label)
    return f"{name} †" if line.label in marks else name


def _cell(row: Row | None) -> str:
    return "not run" if row is None else reach_text(row)


def _most(rows: Sequence[Row | None]) -> str:
    """Of several encodings on a task: the farthest."""
    known = [row for row in rows if row is not None and row.reach is not None]
    if not known:
        return "not run"
    best = reach_text(max(known, key=lambda row: row.reach or 0))
    return best if all(reach_text(row) == best for row in known) else f"≤{best}"


def _cost(lines: Sequence[Line]) -> str:
    """The mean over tasks; of several encodings the least and the most."""
    costs = [seconds for line in lines if (seconds := cost(line)) is not None]
    low, high = f"{min(costs):.0f}", f"{max(costs):.0f}"
    return low if low == high else f"{low}-{high}"
