"""LEADERBOARD.md and a page per protocol: findings, one table of all tasks, then each task."""

from collections.abc import Sequence
from pathlib import Path
from statistics import pstdev

from experiment.files import tidy, write
from leaderboard.catalog import Catalog
from leaderboard.charts.curves import curves
from leaderboard.charts.styles import shown, styles
from leaderboard.render import readme
from leaderboard.render.choices import LEGEND, as_markdown, choices
from leaderboard.render.overviews import findings, marked, overview_of
from leaderboard.render.templating import render
from leaderboard.stats.overview import (
    baseline,
    main_tables,
    ordered,
    protocols,
)
from leaderboard.stats.rows import aliases, legend
from leaderboard.stats.tables import Table, leading

PICTURES = "pictures"  # the folder beside the page


def write_markdown(
    tables: Sequence[Table], path: Path, catalog: Catalog | None = None
) -> list[Path]:
    """Write the page, the pages of its protocols, the pictures and the README's block.

    Returns the paths, the page first. Pages and pictures of an earlier build that the records no
    longer give are deleted; files of others in the same folders stay.
    """
    expected, beside = _expected(tables, path, catalog), _beside(path)
    pages = [one for one in (path, *beside) if one.suffix == ".md" and one.is_file()]
    before = "".join(one.read_text("utf-8", errors="replace") for one in pages)
    for one, text in expected.items():
        write(one, text)
    tidy(expected)
    for one in beside:
        if one not in expected and f"({one.relative_to(path.parent).as_posix()})" in before:
            one.unlink()
    return [*expected]


def stale(tables: Sequence[Table], path: Path, catalog: Catalog | None = None) -> list[str]:
    """Return one line for each page or picture that is out of date."""
    expected = _expected(tables, path, catalog)
    changed = [
        one
        for one, text in expected.items()
        if not one.is_file() or one.read_text("utf-8", errors="replace") != text
    ]
    needless = [one for one in _beside(path) if one not in expected]
    hint = "run pezoo leaderboard build"
    return [f"{one} is not up to date: {hint}" for one in changed] + [
        f"{one} belongs to no table: {hint}" for one in needless
    ]


def _beside(path: Path) -> list[Path]:
    """Return the pages of protocols and the pictures that belong to the page."""
    folder = path.parent
    return sorted([*folder.glob(f"{path.stem}-*.md"), *(folder / PICTURES).glob("*.svg")])


def _expected(tables: Sequence[Table], path: Path, catalog: Catalog | None) -> dict[Path, str]:
    """Return the text of every generated file; the README only where it has a block."""
    found = {path.parent / name: text for name, text in files(tables, catalog, path.name).items()}
    start, known = path.parent.parent / "README.md", catalog or Catalog()
    try:
        before = start.read_text("utf-8") if start.is_file() else ""
        text = readme.filled(before, tables, known)
    except ValueError as error:  # not UTF-8, or a comment is missing
        raise ValueError(f"{start}: {error}") from error
    if readme.BEGIN in before:
        found[start] = text
        if picture := readme.picture(tables, known):
            found[path.parent / PICTURES / picture[0]] = picture[1]
    return found


def files(
    tables: Sequence[Table], catalog: Catalog | None = None, name: str = "LEADERBOARD.md"
) -> dict[str, str]:
    """Return pages and pictures as {path from the folder of the page: text}, the page first."""
    catalog, rows = catalog or Catalog(), [row for table in tables for row in table.rows]
    look, names, own, first = styles(rows), aliases(rows), leading(tables), main_tables(tables)
    by_base = {base: [one for one in own if one.base == base] for base in protocols(tables)}
    views = {base: overview_of(some, names, catalog) for base, some in by_base.items()}
    own_views = [view for view in views.values() if view.tables]
    common = {"folder": PICTURES, "page": name, "stem": Path(name).stem}
    pages = {
        name: render(
            "leaderboard.md",
            findings=findings(first),
            picture=max(first, key=_spread, default=None),
            first=first,
            overviews=[view for view in own_views if view.compared or view is own_views[0]],
            apart=[view for view in own_views[1:] if not view.compared],
            legend=legend((row for table in own for row in table.rows), names),
            **common,
        )
    }
    if first:
        found = as_markdown(choices(ordered(tables), catalog))
        more = {"choices": found, "legend": LEGEND, "page": name}
        pages[f"{common['stem']}-encodings.md"] = render("encodings.md", **more)
    for base, view in views.items():
        some = by_base[base]
        rest = [line for line in view.all_lines if line not in view.lines] if view.lines else []
        pages[f"{common['stem']}-{base}.md"] = render(
            "protocol.md",
            base=base,
            variants=view.markdown(rest),
            names={table.slug: marked(names, [table], catalog) for table in some},
            baselines={table.slug: baseline(table, catalog) for table in some},
            tables=some,
            others=[table for table in tables if table.base == base and table not in own],
            legend=legend((row for table in some for row in table.rows), names),
            **common,
        )
    return {page: text.rstrip() + "\n" for page, text in pages.items()} | {
        f"{PICTURES}/{table.slug}.svg": curves(table.title, shown(table.rows), look, names=names)
        for table in own
    }


def _spread(table: Table) -> float:
    """Return the spread of the encodings in a picture."""
    means = [row.unseen.mean for row in shown(table.rows) if row.unseen]
    return pstdev(means) if means else 0.0
