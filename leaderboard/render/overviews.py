"""Overviews: the tasks of one protocol side by side; findings of the records in sentences."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tabulate import tabulate

from leaderboard.catalog import Catalog
from leaderboard.escape import markdown_text
from leaderboard.stats.overview import (
    bare_lines,
    baseline,
    chosen,
    counting,
    heads,
    mean_baseline,
    overview,
    with_column,
)
from leaderboard.stats.rows import PASS, SEEDS, SOLVED, Line, Row
from leaderboard.stats.tables import Table
from leaderboard.text import (
    headline,
    percent,
    rank_text,
    reach_text,
    score,
    seeds_of,
    span_text,
)
from pezoo.spec import bare


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
    plain = bare_lines(lines)
    baselines = [baseline(table, catalog) for table in tables if table.of_encoders]
    return Overview(
        tables=tables,
        all_lines=lines,
        lines=plain,
        heads=heads(tables),
        seeds=seeds_of(plain) if plain else [],
        names=marked(names, tables, catalog),
        disclosure=" ".join(filter(None, [_counted(tables, counts), disclosure(tables, catalog)])),
        untested=untested(lines),
        baselines=[one.unseen for one in baselines] or None,
        baseline=mean_baseline(baselines, counts) if baselines else None,
    )


def _counted(tables: Sequence[Table], counts: Sequence[bool]) -> str:
    """Name the tasks that the mean is over, where others have a column; "" where all count."""
    own = [table.first.task for table, counted in zip(tables, counts, strict=True) if counted]
    if not own or len(own) == len(counts):
        return ""
    which = f"{len(own)} of {len(counts)} tasks, which enough have learned: {_in_words(own)}"
    return f"The mean, by which encodings are ranked, is over {which}."


def findings(tables: Sequence[Table]) -> list[str]:
    """Say what encodings with default options solve, what none solves, and which have no values."""
    lines = bare_lines(overview(tables))
    solved, unsolved, unlearned, fewest = [], [], [], []
    for table in tables:
        rows = [row for row in table.rows if not row.set_apart]
        scored = [row for row in rows if row.unseen and not row.aside]  # the best first
        solvers = [row for row in rows if row.reach_open and len(row.seeds) >= SEEDS]
        if scored and scored[0].unseen and scored[0].in_bits:
            bits = score(scored[0].unseen.mean, bits=True)
            fewest.append(f"{table.first.task} ({scored[0].label}, {bits})")
        elif scored and solvers:
            counts = {len(row.seeds) for row in solvers}
            seeds = f"{span_text(counts)} seed{'s' * (counts != {1})}"
            labels = ", ".join(row.label for row in solvers)
            solved.append(f"{table.first.task} ({labels}; {seeds})")
        elif scored:
            best = max(scored, key=lambda row: row.reach or 0)
            unsolved.append(f"{table.first.task} ({best.label}, {reach_text(best)})")
        elif any(row.unlearned for row in rows):
            unlearned.append(table.first.task)
    notes = {line.label: [row.unseen_note for row in line.own] for line in lines}
    unable = [label for label, own in notes.items() if "cannot represent" in own]
    found = {
        f"Solved at every tested length ({100 * SOLVED:.0f} % of {SEEDS} seeds or more reach "
        f"{100 * PASS:.0f} %)": "; ".join(solved),
        "Fewest bits per byte beyond training": ", ".join(fewest),
        "Without hints by no encoding (longest reach)": ", ".join(unsolved),
        "Not learned by any encoding": ", ".join(unlearned),
        "Without positions beyond the training length": ", ".join(unable),
    }
    texts = [untested(lines), *(f"{head}: {own}." for head, own in found.items() if own)]
    return [text for text in texts if text]


def untested(lines: Sequence[Line]) -> str:
    """Say that no differences of these lines are tested, and why; "" where some are."""
    known = [line for line in bare_lines(lines) if line.rank]
    if len(known) < 2 or any(line.ranks for line in known):
        return ""
    where = " on every task" * (len(known[0].main) > 1)
    return f"Differences are not tested: the encodings do not share two seeds{where}."


def marked(names: Mapping[str, str], tables: Sequence[Table], catalog: Catalog) -> dict[str, str]:
    """Names with † where options were chosen on a task of these tables, and what they receive."""
    marks = chosen(tables, catalog)
    receives = {row.label: f" ({row.receives})" for t in tables for row in t.rows if row.receives}
    return {
        label: name + " †" * (label in marks) + receives.get(label, "")
        for label, name in names.items()
    }


def disclosure(tables: Sequence[Table], catalog: Catalog) -> str:
    """Name the encodings whose options were chosen on tasks of these tables; "" for none."""
    on: dict[str, set[str]] = defaultdict(set)
    for table in tables:
        marks = chosen([table], catalog)
        for row in table.rows:
            if row.label in marks:
                on[bare(row.encoding)].add(table.first.task)
    together: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name, tasks in sorted(on.items()):
        together[tuple(sorted(tasks))].append(name)
    parts = [f"{_in_words(names)} on {_in_words(tasks)}" for tasks, names in together.items()]
    return f"† Options were chosen on these tasks: {'; '.join(parts)}." if parts else ""


def _in_words(names: Sequence[str]) -> str:
    """`a`; `a and b`; `a, b and c`."""
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)
