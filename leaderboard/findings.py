"""What the records say, in sentences: for LEADERBOARD.md and the page that advises."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from leaderboard.catalog import Catalog
from leaderboard.overview import bare_lines
from leaderboard.ranks import ALIKE, UNKNOWN, WEAK, matrix
from leaderboard.rows import Line, Row
from leaderboard.tables import Table
from leaderboard.text import percent
from pezoo.spec import bare

NEAR = 0.05  # of the best mean: what counts as about as good


@dataclass(frozen=True)
class Best:
    """Who does best of the `ran` on one task of a protocol: `row` has the highest mean, `alike` are
    not told apart from it, and of `open` too few seeds are shared to say."""

    protocol: str
    task: str
    row: Row
    alike: tuple[Row, ...]
    open: tuple[Row, ...]
    ran: int


def findings(lines: Sequence[Line], tables: Sequence[Table]) -> list[str]:
    """Five lines at most about the encodings without options of their own."""
    return [text for text in _findings(bare_lines(lines), tables) if text][:5]


def _findings(lines: Sequence[Line], tables: Sequence[Table]) -> Iterator[str]:
    known = [line for line in lines if line.unseen is not None]
    if known and len(tables) > 1:
        best = known[0]
        more = f", then {_mean(known[1])}" if len(known) > 1 else ""
        others = (best.ranks or (1, 1))[1] - 1
        alike = f"; not told apart from the first: {others}" if others else ""
        if min(len(line.by_seed) for line in known) < 2:
            alike = ". Some lack two seeds that all tasks share, and are told apart from none"
        some = sum(any(row.seeds for row in line.own) for line in lines)
        yield (
            f"Of {some} encodings {len(known)} have a number on all {len(tables)} tasks; of these "
            f"{_mean(best)} is first{more}{alike}."
        )
    solved = {task: names for task, names in _solving(tables).items() if names}
    yield "Right to the longest test length: " + _list(solved) if solved else ""
    found = bests(tables)
    open_ = [best for best in found if best.task not in solved]
    yield (
        "Solved to the longest test length by no encoding without typed options, in the "
        "protocol's settings: "
        + _list({best.task: [f"best of {best.ran}: {_words(best.row)}"] for best in open_})
        if open_
        else ""
    )
    one_device = len({record.env.device for table in tables for record in table.records}) == 1
    yield _cheapest(lines) if one_device else ""
    unable = [
        line.label
        for line in lines
        if any(row.unseen_note == "cannot represent" for row in line.own)
    ]
    yield f"Cannot represent positions beyond training: {', '.join(unable)}." if unable else ""


def bests(tables: Sequence[Table]) -> list[Best]:
    """The best encoding without options of its own on each task that has a number."""
    found = []
    for table in tables:
        rows = [row for row in table.rows if not row.custom and not row.mode]
        scored = matrix(rows)
        if scored:
            row, against = scored[0]
            by: dict[str, list[Row]] = defaultdict(list)
            for (other, _), words in zip(scored, against, strict=True):
                by[words].append(other)
            unsure = *by[WEAK], *by[UNKNOWN]
            ran = sum(bool(row.seeds) for row in rows)
            found.append(Best(table.base, table.first.task, row, tuple(by[ALIKE]), unsure, ran))
    return found


def by_family(tables: Sequence[Table], catalog: Catalog) -> Mapping[str, list[Best]]:
    """The best of each task, by kind of task; of the first of these protocols that has the task."""
    found: dict[str, list[Best]] = defaultdict(list)
    seen: dict[str, str] = {}
    for best in bests(tables):
        if seen.setdefault(bare(best.task), best.protocol) != best.protocol:
            continue
        task = catalog.tasks.get(bare(best.task))
        found[(task and task.family) or "other"].append(best)
    return dict(sorted(found.items()))


def near_the_best(lines: Sequence[Line]) -> list[Line]:
    """Lines whose mean over all tasks is within NEAR of the highest."""
    known = [line for line in bare_lines(lines) if line.unseen]
    most = max((line.unseen.mean for line in known if line.unseen), default=0.0)
    return [line for line in known if line.unseen and line.unseen.mean >= most - NEAR]


def cost(line: Line) -> float | None:
    """CPU seconds of training: the mean over seeds, of these the mean over the tasks run."""
    costs = [row.cpu_seconds for row in line.own if row.cpu_seconds is not None]
    return fmean(costs) if costs else None


def decoded(line: Line) -> bool:
    """Whether its runs had to be scored by decoding token by token."""
    return any("decoding" in note for row in line.own for note in row.notes)


def _solving(tables: Sequence[Table]) -> dict[str, list[str]]:
    rows = {table.first.task: table.rows for table in tables}
    return {
        task: [r.label for r in own if r.reach_open and not r.custom and not r.mode]
        for task, own in rows.items()
    }


def _cheapest(lines: Sequence[Line]) -> str:
    costs = {line.label: value for line in lines if (value := cost(line))}
    near = [line.label for line in near_the_best(lines) if line.label in costs]
    if not near or len(costs) < 2:
        return ""
    first, cheap = min(costs, key=costs.__getitem__), min(near, key=costs.__getitem__)
    if first == cheap:
        return f"{cheap} is cheapest to train, and within {100 * NEAR:.0f} points of the best mean."
    return (
        f"{first} is cheapest to train, {costs[first]:.0f} CPU seconds a run; of those within "
        f"{100 * NEAR:.0f} points of the best mean it is {cheap}, {costs[cheap]:.0f}."
    )


def _mean(line: Line) -> str:
    return f"{line.label} ({percent(line.unseen.mean if line.unseen else None)} %)"


def _words(row: Row) -> str:
    return f"{row.label}, " + (f"{percent(row.unseen.mean)} %" if row.unseen else "no number")


def _list(found: Mapping[str, Sequence[str]]) -> str:
    return "; ".join(f"{task} ({', '.join(names)})" for task, names in found.items()) + "."


def chosen(tables: Sequence[Table], catalog: Catalog) -> set[str]:
    """The labels of rows whose options were chosen on results of a task of these tables."""
    return {
        row.label
        for table in tables
        for row in table.rows
        if (known := catalog.protocols.get(table.base))
        and bare(table.first.task) in known.chosen_on(bare(row.encoding), table.first)
    }


def disclosure(tables: Sequence[Table], catalog: Catalog) -> str:
    """Which encodings' options were chosen on tasks of these tables; "" for none."""
    found = [
        (bare(row.encoding), table.first.task)
        for table in tables
        for marks in [chosen([table], catalog)]
        for row in table.rows
        if row.label in marks
    ]
    if not found:
        return ""
    names, tasks = (_in_words(sorted(set(own))) for own in zip(*found, strict=True))
    return (
        f"† Options of {names} were chosen on results of {tasks}; "
        "those of the other encodings were not."
    )


def _in_words(names: Sequence[str]) -> str:
    """`a`; `a and b`; `a, b and c`."""
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)


def advice(
    lines: Sequence[Line], tables: Sequence[Table], others: Sequence[Table], catalog: Catalog
) -> dict[str, Any]:
    """What the page "Which encoding should I use?" is filled with; `others` add kinds of tasks."""
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
        "cached": [line for line in done if not decoded(line)],
        "uncached": [line for line in done if decoded(line)],
        "rope": next((line for line in plain if line.label == "rope" and line.counted), None),
    }
