"""Findings of the records in sentences, for LEADERBOARD.md and the page "Which one?"."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from leaderboard.catalog import Catalog
from leaderboard.render.text import reach_text, score, span_text
from leaderboard.stats.overview import bare_lines, overview
from leaderboard.stats.rows import PASS, SEEDS, SOLVED, Line
from leaderboard.stats.tables import Table
from pezoo.spec import bare


def findings(tables: Sequence[Table]) -> list[str]:
    """Say what encodings with default options solve, what none solves, and which have no values."""
    lines = bare_lines(overview(tables))
    solved, unsolved, unlearned, fewest = [], [], [], []
    for table in tables:
        rows = [row for row in table.rows if row.competes and not row.receives]
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


def chosen(tables: Sequence[Table], catalog: Catalog) -> set[str]:
    """Labels of the rows whose options were chosen on a task of these tables."""
    found = set()
    for table in tables:
        if known := catalog.protocols.get(table.base):
            own = known.chosen({bare(row.encoding) for row in table.rows}, table.first)
            found |= {row.label for row in table.rows if bare(row.encoding) in own}
    return found


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
