"""The README's first table: how far each encoding carries on, on which tasks, and at what cost."""

from __future__ import annotations

from collections.abc import Sequence

from tabulate import tabulate

from leaderboard.catalog import Catalog
from leaderboard.escape import markdown_text
from leaderboard.render.findings import chosen, cost, disclosure
from leaderboard.render.text import fewer, reach_text, seeds_of, span_text
from leaderboard.stats.overview import bare_lines, heads, main_tables, overview
from leaderboard.stats.rows import Line, Row
from leaderboard.stats.summary import PASS
from leaderboard.stats.tables import Table

BEGIN = "<!-- made by pezoo leaderboard build -->"
END = "<!-- end -->"
MOST = 12  # rows, those of the seeds and of all others included


def filled(text: str, tables: Sequence[Table], catalog: Catalog) -> str:
    """A README with the table between its two comments made anew; unchanged where it has none.

    Errors: ValueError where one is missing, or they are the wrong way round.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end and (begin or END in text):
        raise ValueError(f"a README needs {BEGIN} and, after it, {END}; or neither")
    own = main_tables(tables)
    if not end or not bare_lines(overview(own)):
        return text
    return f"{before}{begin}\n{_block(own, catalog)}\n{end}{after}"


def _block(tables: Sequence[Table], catalog: Catalog) -> str:
    lines = bare_lines(overview(tables))
    most = sorted(lines, key=lambda line: line.reach or 0, reverse=True)[: MOST - 2]
    far = [line for line in lines if line in most and (line.reach or 0) > 1]
    rest = [line for line in lines if line not in far]
    marks = chosen(tables, catalog)
    seeds = seeds_of(lines)
    rows = [["seeds", *(span_text(own, "-") for own in seeds), ""]]
    rows += [
        [_name(line, marks), *map(_cell, line.rows, map(max, seeds)), _cost([line])] for line in far
    ]
    if rest:
        columns = zip(*(line.rows for line in rest), strict=True)
        rows.append(
            [f"{len(rest)} other{'s' * (len(rest) > 1)}", *map(_most, columns), _cost(rest)]
        )
    top = ["encoding", *map(markdown_text, heads(tables)), "CPU s a run"]
    table = tabulate(rows, top, tablefmt="pipe", disable_numparse=True)
    others = ", ".join(_name(line, marks) for line in rest)
    after = f"\nThe others: {others}.\n" if rest else ""
    return f"\n{_intro(seeds, tables, catalog)}\n\n{table}\n{after}"


def _intro(seeds: Sequence[Sequence[int]], tables: Sequence[Table], catalog: Catalog) -> str:
    counts = {count for own in seeds for count in own if count}
    records = [record for table in tables for record in table.records]
    known = {record.env.cpu for record in records if record.env.cpu}
    processors = sorted(map(markdown_text, known))
    return (
        "Reach: the longest test length, as a multiple of the training length, up to which at "
        f"least {100 * PASS:.0f} % of whole answers are right at every tested length, on average "
        f"over {span_text(counts)} seed{'s' * (counts != {1})}. 0: not even at the training "
        "length. ≥: at every tested length. CPU s: training, the mean over seeds, the median over "
        f"tasks{', on ' * bool(processors)}{' or '.join(processors)}. The {MOST - 2} that reach "
        f"farthest have rows. {disclosure(tables, catalog)}"
    ).strip()


def _name(line: Line, marks: set[str]) -> str:
    name = markdown_text(line.label)
    return f"{name} †" if line.label in marks else name


def _cell(row: Row | None, most: int) -> str:
    return "not run" if row is None else reach_text(row) + fewer(row, most)


def _most(rows: Sequence[Row | None]) -> str:
    """Of several encodings on a task: the farthest."""
    known = [row for row in rows if row is not None and row.reach is not None]
    if not known:
        return "not run"
    best = reach_text(max(known, key=lambda row: row.reach or 0))
    least = reach_text(min(known, key=lambda row: row.reach or 0))
    return best if all(reach_text(row) == best for row in known) else f"{least} to {best}"


def _cost(lines: Sequence[Line]) -> str:
    """The median over tasks; of several encodings the least and the most."""
    costs = [round(seconds) for line in lines if (seconds := cost(line)) is not None]
    return span_text(costs, "-") if costs else "-"
