"""Findings of the records in sentences, for LEADERBOARD.md and the page "Which one?"."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from leaderboard.catalog import Catalog
from leaderboard.render.text import percent, span_text
from leaderboard.stats.overview import bare_lines, baseline, counting
from leaderboard.stats.ranks import ALIKE, UNKNOWN, matrix
from leaderboard.stats.rows import Line, Row
from leaderboard.stats.summary import PASS
from leaderboard.stats.tables import Table
from pezoo.spec import bare

NEAR = 0.05  # a mean this close to the best counts as near the best


@dataclass(frozen=True)
class Best:
    """The best encoding of a task, and those statistically tied with it.

    `row` has the highest mean of the `ran` encodings; `alike` are not distinguishable from it;
    `open` share fewer than two seeds with it. `baseline` is the score without the prompt.
    """

    protocol: str
    task: str
    row: Row
    alike: tuple[Row, ...]
    open: tuple[Row, ...]
    ran: int
    baseline: float = 0.0

    @property
    def any(self) -> bool:
        """True where the best is above the baseline."""
        return self.row.unseen is not None and self.row.unseen.mean >= self.baseline + NEAR


def findings(lines: Sequence[Line], tables: Sequence[Table]) -> list[str]:
    """At most five sentences about the encodings with default options."""
    return [text for text in _findings(bare_lines(lines), tables) if text][:5]


def _findings(lines: Sequence[Line], tables: Sequence[Table]) -> Iterator[str]:
    known = [line for line in lines if line.unseen is not None]
    count = sum(counting(tables))
    if known and count > 1:
        best = known[0]
        more = f", followed by {_mean(known[1])}" if len(known) > 1 else ""
        others = best.ranks[1] - 1 if best.ranks else 0
        tied = f"; {others} not distinguishable from it, or not compared" if others else ""
        some = sum(any(row.seeds for row in line.own) for line in lines)
        every = f"all {count} tasks" + " that most encodings ran" * (count < len(tables))
        yield (
            f"{len(known)} of {some} encodings have a score on {every}. "
            f"{_mean(best)} has the highest mean{more}{tied}."
        )
    yield untested(known)
    solved = {task: rows for task, rows in _solving(tables).items() if rows}
    right = f"At least {100 * PASS:.0f} % exact match at every tested length: "
    yield right + _list(solved) if solved else ""
    yield _unsolved([best for best in bests(tables) if best.task not in solved])
    unable = [
        line.label
        for line in lines
        if any(row.unseen_note == "cannot represent" for row in line.own)
    ]
    yield f"Without positions beyond the training length: {', '.join(unable)}." if unable else ""


def untested(lines: Sequence[Line]) -> str:
    """Say that no differences of these lines are tested, and why; "" where some are."""
    known = [line for line in bare_lines(lines) if line.rank]
    if len(known) < 2 or any(line.ranks for line in known):
        return ""
    where = " on every task" * (len(known[0].main) > 1)
    return f"Differences are not tested: the encodings do not share two seeds{where}."


def bests(tables: Sequence[Table], catalog: Catalog | None = None) -> list[Best]:
    """The best encoding with default options on each task that has a score."""
    found = []
    for table in tables:
        rows = [row for row in table.rows if row.competes]
        scored = matrix(rows)
        if scored:
            row, against = scored[0]
            by: dict[str, list[Row]] = defaultdict(list)
            for (other, _), words in zip(scored, against, strict=True):
                by[words].append(other)
            ran = sum(bool(row.seeds) for row in rows)
            known = baseline(table, catalog or Catalog()).unseen if table.of_encoders else 0.0
            about = table.base, table.first.task, row, tuple(by[ALIKE]), tuple(by[UNKNOWN])
            found.append(Best(*about, ran, known or 0.0))
    return found


def by_family(tables: Sequence[Table], catalog: Catalog) -> Mapping[str, list[Best]]:
    """The best of each task, by kind of task; a task of several protocols counts in the first."""
    found: dict[str, list[Best]] = defaultdict(list)
    seen: dict[str, str] = {}
    for best in bests(tables, catalog):
        if seen.setdefault(bare(best.task), best.protocol) != best.protocol:
            continue
        task = catalog.tasks.get(bare(best.task))
        found[(task and task.family) or "other"].append(best)
    return dict(sorted(found.items()))


def near_the_best(lines: Sequence[Line]) -> list[Line]:
    """Lines with a mean over all tasks within NEAR of the highest."""
    known = [line for line in bare_lines(lines) if line.unseen]
    most = max((line.unseen.mean for line in known if line.unseen), default=0.0)
    return [line for line in known if line.unseen and line.unseen.mean >= most - NEAR]


def cost(line: Line) -> float | None:
    """CPU seconds of training: the mean over seeds, then the median over the tasks that count."""
    costs = [row.cpu_seconds for row in line.main if row.cpu_seconds is not None]
    return median(costs) if costs else None


def _solving(tables: Sequence[Table]) -> dict[str, list[Row]]:
    rows = {table.first.task: table.rows for table in tables}
    return {task: [r for r in own if r.reach_open and r.competes] for task, own in rows.items()}


def _list(found: Mapping[str, Sequence[Row]]) -> str:
    """The encodings of each task, with their number of seeds."""
    parts = []
    for task, rows in found.items():
        counts = {len(row.seeds) for row in rows}
        seeds = f"{span_text(counts)} seed{'s' * (counts != {1})}"
        parts.append(f"{task} ({', '.join(row.label for row in rows)}; {seeds})")
    return "; ".join(parts) + "."


def _unsolved(found: Sequence[Best]) -> str:
    """The best encodings of the tasks that no encoding solves at all lengths."""
    parts = [f"{best.task} (best: {_words(best.row)})" for best in found]
    if not parts:
        return ""
    return f"No encoding has {100 * PASS:.0f} % exact match at every length on {', '.join(parts)}."


def _mean(line: Line) -> str:
    return f"{line.label} ({percent(line.unseen.mean if line.unseen else None)} %)"


def _words(row: Row) -> str:
    return f"{row.label}, " + (f"{percent(row.unseen.mean)} %" if row.unseen else "no number")


def chosen(tables: Sequence[Table], catalog: Catalog) -> set[str]:
    """Labels of the rows whose options were chosen on a task of these tables."""
    return {
        row.label
        for table in tables
        for row in table.rows
        if (known := catalog.protocols.get(table.base))
        and bare(table.first.task) in known.chosen_on(bare(row.encoding), table.first)
    }


def marked(names: Mapping[str, str], tables: Sequence[Table], catalog: Catalog) -> dict[str, str]:
    """Names with † where options were chosen on a task of these tables."""
    marks = chosen(tables, catalog)
    return {label: f"{name} †" if label in marks else name for label, name in names.items()}


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


def advice(
    lines: Sequence[Line], tables: Sequence[Table], others: Sequence[Table], catalog: Catalog
) -> dict[str, Any]:
    """The values of the page "Which encoding should I use?"; `others` add kinds of tasks."""
    plain = bare_lines(lines)
    costs = [(line, seconds) for line in plain if (seconds := cost(line))]
    done = [line for line in plain if any(row.seeds for row in line.own)]
    return {
        "main": tables,
        "about": tables[0].about if tables else "",
        "findings": findings(lines, tables),
        "families": by_family([*tables, *others], catalog),
        "far": [line for line in plain if (line.reach or 0) > 1],
        "cheap": sorted(costs, key=lambda pair: pair[1]),
        "near": near_the_best(lines),
        "devices": sorted({record.env.device for table in tables for record in table.records}),
        "cached": [line for line in done if not any(row.decoded for row in line.own)],
        "uncached": [line for line in done if any(row.decoded for row in line.own)],
    }
