"""LEADERBOARD.md: what was found, one table of all tasks, then each task, and how to repeat it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from statistics import pstdev

from tabulate import tabulate

from experiment.files import write
from leaderboard.catalog import Catalog
from leaderboard.escape import markdown_text
from leaderboard.render.curves import curves
from leaderboard.render.findings import disclosure, findings, marked, untested
from leaderboard.render.readme import filled
from leaderboard.render.readme import picture as readme_picture
from leaderboard.render.styles import shown, styles
from leaderboard.render.templating import render
from leaderboard.render.text import (
    fewer,
    percent,
    rank_text,
    seeds_of,
    span_text,
    unseen_text,
)
from leaderboard.stats.baseline import Guess, guess, mean_guess
from leaderboard.stats.names import aliases, legend
from leaderboard.stats.overview import bare_lines, counting, heads, main_tables, overview
from leaderboard.stats.rows import Line, Row
from leaderboard.stats.tables import Table, leading

PICTURES = "pictures"  # the folder beside the page


def write_markdown(
    tables: Sequence[Table], path: Path, catalog: Catalog | None = None
) -> list[Path]:
    """Write the page and its pictures, remove pictures that the page no longer shows, and return
    the paths written, the page first."""
    before = path.read_text("utf-8", errors="replace") if path.is_file() else ""
    made = files(tables, path.name, catalog)
    paths = [write(path.parent / name, text) for name, text in made.items()]
    readme, text = _readme(tables, path, catalog)
    if text and readme.read_text("utf-8") != text:
        write(readme, text)
    for old in (path.parent / PICTURES).glob("*.svg"):
        if old not in paths and f"({PICTURES}/{old.name})" in before:
            old.unlink()
    return paths


def files(
    tables: Sequence[Table], name: str = "LEADERBOARD.md", catalog: Catalog | None = None
) -> dict[str, str]:
    """The page and its pictures, {path from the page's folder: content}; the page first."""
    rows = [row for table in tables for row in table.rows]
    look, names = styles(rows), aliases(rows)
    first = readme_picture(tables, catalog or Catalog())
    extra = {f"{PICTURES}/{first[0]}": first[1]} if first else {}
    return (
        {name: page(tables, catalog)}
        | extra
        | {
            f"{PICTURES}/{table.slug}.svg": curves(
                table.title, shown(table.rows), look, names=names
            )
            for table in leading(tables)
        }
    )


def stale(tables: Sequence[Table], path: Path, catalog: Catalog | None = None) -> list[str]:
    """What of the page and its pictures is not what the records give, one line each."""
    expected = files(tables, path.name, catalog)
    there = sorted((path.parent / PICTURES).glob("*.svg"))
    needless = [one for one in there if f"{PICTURES}/{one.name}" not in expected]
    changed = [
        path.parent / name
        for name, text in expected.items()
        if not (path.parent / name).is_file() or (path.parent / name).read_text("utf-8") != text
    ]
    readme, text = _readme(tables, path, catalog)
    if text and readme.read_text("utf-8") != text:
        changed.append(readme)
    hint = "run pezoo leaderboard build"
    return [f"{one} is not up to date: {hint}" for one in changed] + [
        f"{one} belongs to no table: {hint}" for one in needless
    ]


def _readme(tables: Sequence[Table], path: Path, catalog: Catalog | None) -> tuple[Path, str]:
    """The README of the project that the page is of, and its text; "" where there is none."""
    readme = path.parent.parent / "README.md"
    if not readme.is_file():
        return readme, ""
    try:
        return readme, filled(readme.read_text("utf-8"), tables, catalog or Catalog())
    except ValueError as error:  # not UTF-8, or a comment is missing
        raise ValueError(f"{readme}: {error}") from error


def page(tables: Sequence[Table], catalog: Catalog | None = None) -> str:
    """The text of LEADERBOARD.md."""
    catalog = catalog or Catalog()
    own = leading(tables)
    first = main_tables(tables)
    every = [list(group) for _, group in groupby(own, lambda table: table.base)]
    names = aliases(row for table in tables for row in table.rows)
    lines = overview(first)
    text = render(
        "leaderboard.md",
        folder=PICTURES,
        findings=findings(lines, first),
        picture=_most_telling(first),
        first=first,
        overviews=[
            (
                some[0],
                some[0].rows[0].metric,
                any(line.ranks for line in overview(some)),
                ["" if some == first else untested(overview(some)), disclosure(some, catalog)],
                *_parts(some, marked(names, some, catalog), catalog),
            )
            for some in sorted(every, key=lambda group: group[0] is not (first or [None])[0])
        ],
        legend=legend((row for table in own for row in table.rows), names),
        names={table.slug: marked(names, [table], catalog) for table in own},
        guesses={table.slug: guess(table, catalog) for table in own},
        main=own,
        others=[table for table in tables if table not in own],
    )
    return text.rstrip() + "\n"


def _parts(tables: Sequence[Table], names: Mapping[str, str], catalog: Catalog) -> tuple[str, str]:
    """The lines without options of their own, with a guess among encoders, and the others."""
    lines = overview(tables)
    bare = bare_lines(lines)
    guesses = [guess(table, catalog) for table in tables] if tables[0].of_encoders else None
    rest = [line for line in lines if line not in bare]
    return _overview(tables, bare, names, guesses), _overview(tables, rest, names)


def _most_telling(tables: Sequence[Table]) -> Table | None:
    """The table whose bare encodings differ most: the picture of the first screen."""

    def spread(table: Table) -> float:
        means = [row.unseen.mean for row in shown(table.rows) if row.unseen]
        return pstdev(means) if means else 0.0

    return max(tables, key=spread, default=None)


def _overview(
    tables: Sequence[Table],
    lines: Sequence[Line],
    names: Mapping[str, str],
    guesses: Sequence[Guess] | None = None,
) -> str:
    """Encodings x tasks, best first: one number a cell; "" where there is no line."""
    if not lines:
        return ""
    counts, seeds = counting(tables), seeds_of(lines)

    def cell(row: Row | None, most: int) -> str:
        return "not run" if row is None else unseen_text(row, False) + fewer(row, most)

    def mean(line: Line) -> str:
        given = line.unseen
        return percent(given.mean) if given else f"{line.counted} of {sum(counts)} tasks"

    several = len(tables) > 1
    cells = [["", "seeds", *[""] * several, *(span_text(own, "-") for own in seeds)]]
    cells += [
        [
            rank_text(line),
            markdown_text(names[line.label]),
            *([mean(line)] if several else []),
            *map(cell, line.rows, map(max, seeds)),
        ]
        for line in lines
    ]
    if guesses:
        means = [percent(mean_guess(guesses, counts))] if several else []
        cells.append(["-", "guess", *means, *(percent(told.unseen) for told in guesses)])
    top = ["rank", "encoding", *["mean"] * several, *map(markdown_text, heads(tables))]
    align = ["right", "left", *["right"] * (len(top) - 2)]
    return tabulate(cells, top, tablefmt="pipe", disable_numparse=True, colalign=align)
