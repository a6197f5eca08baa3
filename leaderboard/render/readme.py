"""The README's table and picture: which tasks each encoding solves far beyond training."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from tabulate import tabulate

from leaderboard.catalog import CONTROL, Catalog
from leaderboard.charts.curves import curves
from leaderboard.charts.styles import SETTINGS, distinct
from leaderboard.escape import markdown_text
from leaderboard.render.front import FAR, NEAR
from leaderboard.stats.costs import measured
from leaderboard.stats.overview import bare_lines, chosen, main_tables, overview
from leaderboard.stats.rows import PASS, SEEDS, SOLVED, Line, Row, merit
from leaderboard.stats.tables import Table
from leaderboard.text import reach_text, receives_text, span_text

BEGIN = "<!-- made by pezoo leaderboard build -->"
END = "<!-- end -->"
MOST = 8  # rows

INTRO = (
    f"Tasks learned, and solved at {NEAR} and {FAR} times the training length, of those tested "
    f"there on {SEEDS} seeds or more: {100 * SOLVED:.0f} % of the seeds reach {100 * PASS:.0f} % "
    "exact match, at every shorter length too. Reach: the longest such multiple. "
    f"Sorted by {NEAR}x, {FAR}x, learned, then the mean score. Cost: time of a training step over "
    "{reference}'s, at {lengths} tokens."
)
CAVEAT = (
    "†: options were chosen on some of these tasks, which favours the row. Models and tasks are "
    "small; five seeds do not separate close results."
)


def filled(text: str, tables: Sequence[Table], catalog: Catalog) -> str:
    """Return a README with a new table between its two comments, if it has them.

    Errors: ValueError where one comment is missing, or they are in the wrong order.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end and (begin or END in text):
        raise ValueError(f"a README needs {BEGIN} and, after it, {END}; or neither")
    own = main_tables(tables)
    if not end or not bare_lines(overview(own)):
        return text
    return f"{before}{begin}\n\n{_block(own, catalog)}\n\n{end}{after}"


def picture(tables: Sequence[Table], catalog: Catalog) -> tuple[str, str] | None:
    """Return the file name and SVG text of the README's picture; None without records."""
    wanted = SETTINGS["picture"]
    table = next((one for one in main_tables(tables) if one.first.task == wanted["task"]), None)
    by_name = {row.label: row for row in table.rows if row.competes} if table else {}
    rows = [by_name[name] for name in wanted["encodings"] if name in by_name]
    if not rows:
        return None
    title = wanted["title"].format(
        trained=rows[0].train_length,
        tested=rows[0].cells[-1].length,
        seeds=span_text(len(row.seeds) for row in rows),
    )
    names = {row.label: row.label + receives_text(row) for row in rows}
    look = {row.label: distinct(at) for at, row in enumerate(rows)}
    return wanted["file"], curves(title, rows, look, names=names)


def _block(tables: Sequence[Table], catalog: Catalog) -> str:
    """One line per encoding, most tasks solved first; hinted ones and oracles last, no controls."""
    every, also = overview(tables), SETTINGS["also"]
    lines = [line for line in bare_lines(every) if line.receives != CONTROL]
    lines = [line for line in lines if any(_solved(line, n)[1] for n in (1, NEAR, FAR))]
    hinted = [line for line in lines if line.receives]
    plain = sorted((line for line in lines if line not in hinted), key=_merit, reverse=True)
    if not plain:
        return ""
    reference = next((one for one in plain if one.label == SETTINGS["reference"]), plain[-1])
    room = MOST - len(hinted) - 2  # the reference and all others have a row each
    rest = [line for line in plain[room:] if line is not reference]
    own = plain[:room] + [reference] * (reference not in plain[:room])
    own += [line for line in every if line.label in also and not line.aside]
    marks = chosen(tables, catalog)
    costs: dict[int, dict[str, float]] = defaultdict(dict)
    for one in measured():
        costs[one.length].setdefault(one.encoding, one.train)

    def named(line: Line) -> tuple[str, list[Line]]:
        mark = " †" * (line.label in marks)
        return markdown_text(line.label) + mark + receives_text(line), [line]

    others = f"{len(rest)} other{'s' * (len(rest) > 1)}", rest
    task = SETTINGS["picture"]["task"]
    multiples = 1, NEAR, FAR
    solved = "learned", *(f"at {multiple}x" for multiple in multiples[1:])
    heads = "encoding", *solved, f"{task}, reach", *["cost"] * bool(costs)
    cells = [
        [
            name,
            *(_span(_solved(line, multiple) for line in some) for multiple in multiples),
            _reaches([row for line in some for row in line.own if row.task == task]),
            *[", ".join(_costs(some, own) for own in costs.values())] * bool(costs),
        ]
        for name, some in (*map(named, own), others, *map(named, hinted))
        if some
    ]
    table = tabulate(cells, heads, tablefmt="pipe", disable_numparse=True)
    words = {"reference": markdown_text(reference.label), "lengths": " and ".join(map(str, costs))}
    return f"{INTRO.format(**words)}\n\n{table}\n\n{CAVEAT}"


def _merit(line: Line) -> tuple[float, ...]:
    """Return the sort key: tasks solved and learned, then the mean over the unseen lengths."""
    return *(_solved(line, multiple)[0] for multiple in (NEAR, FAR, 1)), merit(line)


def _solved(line: Line, multiple: int) -> tuple[int, int]:
    """Count the tasks solved at a multiple of the training length, and those tested there on
    enough seeds."""
    tested = [row for row in line.own if row.reached(multiple * row.train_length)[1] >= SEEDS]
    return sum((row.reach or 0) >= multiple for row in tested), len(tested)


def _reaches(rows: Sequence[Row]) -> str:
    """Return the reach of one row, or the range of several."""
    own = sorted((row for row in rows if row.seeds), key=lambda row: row.reach or 0)
    ends = dict.fromkeys(reach_text(row) for row in (own[:1] + own[-1:]))
    return " to ".join(ends) or "-"


def _span(shares: Iterable[tuple[int, int]]) -> str:
    """
    >>> _span([(4, 8)]), _span([(0, 5), (1, 5)]), _span([(0, 0)])
    ('4/8', '0-1/5', '-')
    >>> _span([(0, 5), (1, 8)])
    '0-1/5-8'
    """
    own = [(right, every) for right, every in shares if every]
    return "/".join(span_text(counts, "-") for counts in zip(*own, strict=True)) or "-"


def _costs(lines: Sequence[Line], costs: Mapping[str, float]) -> str:
    """Return a cost, as `5.7x`; for several encodings the range."""
    found = [round(costs[line.label], 1) for line in lines if line.label in costs]
    ends = dict.fromkeys(f"{end(found):.1f}x" for end in (min, max)) if found else ["-"]
    return " to ".join(ends)
