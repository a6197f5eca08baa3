"""Overviews: the tasks of one protocol side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tabulate import tabulate

from leaderboard.catalog import Catalog
from leaderboard.escape import markdown_text
from leaderboard.render.findings import disclosure, marked, untested
from leaderboard.render.text import (
    headline,
    percent,
    rank_text,
    score,
    seeds_of,
    span_text,
)
from leaderboard.stats.overview import (
    bare_lines,
    baseline,
    counting,
    heads,
    mean_baseline,
    overview,
    with_column,
)
from leaderboard.stats.rows import Line, Row
from leaderboard.stats.tables import Table


@dataclass(frozen=True, kw_only=True)
class Overview:
    """Encodings by tasks. `lines` have default options, `all_lines` variants too.

    `seeds` are numbers of runs by task; `baselines` are scores without the prompt by task, and None
    for decoders.
    """

    tables: Sequence[Table]
    all_lines: Sequence[Line]
    lines: Sequence[Line]
    heads: Sequence[str]
    seeds: Sequence[Sequence[int]]
    names: Mapping[str, str]
    disclosure: str
    untested: str
    baselines: Sequence[float | None] | None
    baseline: float | None

    @property
    def compared(self) -> bool:
        """True if two encodings share two seeds of a task, so that their difference is tested."""
        return any(row.ranks for table in self.tables for row in table.rows)

    @property
    def best(self) -> float:
        """The fewest bits of its rows, else their longest reach: the darkest cell."""
        rows = [row for line in self.lines for row in line.own]
        bits = [row.unseen.mean for row in rows if row.unseen and row.in_bits]
        return min(bits) if bits else max((row.reach or 0 for row in rows), default=0) or 1.0

    @property
    def of_ranks(self) -> str:
        """The end of a sentence: how far paired tests determine the ranks; "" without a test."""
        ranked = [line for line in self.lines or self.all_lines if line.rank]
        if any(line.ranks and line.ranks[0] < line.ranks[1] for line in ranked):
            return "; brackets behind a rank: the ranks that paired tests leave possible"
        sure = ranked and all(line.ranks for line in ranked)
        return "; paired tests tell all ranks apart" if sure else ""

    def markdown(self, lines: Sequence[Line]) -> str:
        """Return some of the lines as a table in Markdown, best first; "" for none."""
        if not lines:
            return ""
        several = len(self.tables) > 1
        seeds = seeds_of(lines)
        cells = [["", "seeds", *["", ""] * several, *(span_text(own, "-") for own in seeds)]]
        for line in lines:
            mean = f"learned {line.learned} of {len(line.rows)}"
            mean = score(line.unseen.mean, line.in_bits) if line.unseen else mean
            shown = map(_cell, line.rows, map(max, seeds))
            name = markdown_text(self.names[line.label])
            means = [mean, "-" if (mrr := line.reciprocal_rank) is None else f"{mrr:.2f}"]
            cells.append([rank_text(line), name, *means * several, *shown])
        if self.baselines:
            mean = percent(self.baseline)
            cells.append(["-", "baseline", *[mean, "-"] * several, *map(percent, self.baselines)])
        top = ["rank", "encoding", *["mean", "1/rank"] * several, *map(markdown_text, self.heads)]
        align = ["right", "left", *["right"] * (len(top) - 2)]
        return tabulate(cells, top, tablefmt="pipe", disable_numparse=True, colalign=align)


def _cell(row: Row | None, most: int) -> str:
    return "not run" if row is None else headline(row, most)


def overview_of(tables: Sequence[Table], names: Mapping[str, str], catalog: Catalog) -> Overview:
    """Build the overview of the tables of one protocol; `names` are short names of labels."""
    tables = with_column(tables)
    lines, counts = overview(tables), counting(tables)
    bare = bare_lines(lines)
    baselines = [baseline(table, catalog) for table in tables if table.of_encoders]
    return Overview(
        tables=tables,
        all_lines=lines,
        lines=bare,
        heads=heads(tables),
        seeds=seeds_of(bare) if bare else [],
        names=marked(names, tables, catalog),
        disclosure=disclosure(tables, catalog),
        untested=untested(lines),
        baselines=[one.unseen for one in baselines] or None,
        baseline=mean_baseline(baselines, counts) if baselines else None,
    )
