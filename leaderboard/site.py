"""The site: files that work from the disk, from any host and in a subfolder, without a server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from leaderboard import catalog as known
from leaderboard import pages, text
from leaderboard.catalog import Catalog
from leaderboard.curves import curves
from leaderboard.data import runs_data, script, site_data
from leaderboard.files import script_json, write
from leaderboard.records import SITE_RECORDS, SITE_TABLES
from leaderboard.render import render
from leaderboard.schema import Record
from leaderboard.styles import styles
from leaderboard.tables import Table

FOLDERS = ("task", "encoding", "run", SITE_RECORDS)  # from these, pages of earlier builds go
_TABLE = ("tabulator.min.js", "data.js", "core.js", "grid.js")
_CHART = (*_TABLE, "chart.js")  # which loads plotly.min.js
SCRIPTS = {  # what each kind of page loads, besides theme.js
    "index": (*_TABLE, "overview.js"),
    "task": (*_CHART, "task.js"),
    "encoding": (*_CHART, "encoding.js"),
    "compare": (*_CHART, "compare.js"),
    "cost": (*_CHART, "cost.js"),
    "runs": (*_TABLE, "runs.js", "all-runs.js"),
    "run": ("core.js", "chart.js", "run.js"),
    "method": ("core.js",),
}
BESIDE = ("data.js", "runs.js")  # written next to the pages; the others are in static/


def build(
    tables: Sequence[Table],
    records: Sequence[Record],
    out: Path,
    refused: int = 0,
    catalog: Catalog | None = None,
    source: str | None = None,
) -> list[Path]:
    """Write the site into `out` and return the paths written, index.html first.

    `refused` is how many files were no valid record; the overview says so. `source` is the address
    that shows the repository's files, as in https://host/owner/pezoo/blob/main.
    """
    catalog = catalog or known.read()
    data = site_data(tables, catalog)
    common = {"refused": refused, "records": len(records), "source": source, "data": data}
    written = [
        write(out / name, content)
        for part in (
            _pages(tables, records, catalog, common),
            _shared(tables, records, data),
            _assets(),
        )
        for name, content in part
    ]
    _forget(out, set(written))
    return written


def _pages(
    tables: Sequence[Table], records: Sequence[Record], catalog: Catalog, common: dict[str, Any]
) -> Iterator[tuple[str, str]]:
    def page(kind: str, root: str, **context: Any) -> str:
        scripts = [f"{'' if name in BESIDE else 'static/'}{name}" for name in SCRIPTS[kind]]
        page = {"root": root, "scripts": scripts, "here": kind}
        return render(f"{kind}.html", **common, **page, **context)

    data = common["data"]
    yield "index.html", page("index", "", tables=tables)
    for name in ("compare", "cost", "runs"):
        yield f"{name}.html", page(name, "")
    yield "method.html", page("method", "", **pages.method(catalog))
    for name, facts in data["tasks"].items():
        own = [table for table in tables if table.first.task == name]
        yield facts["page"], page("task", "../", **pages.task(name, own, catalog))
    for name, facts in data["encodings"].items():
        yield facts["page"], page("encoding", "../", **pages.encoding(name, catalog))
    for record in records:
        yield f"run/{record.run}.html", page("run", "../", **pages.run(record))


def _shared(
    tables: Sequence[Table], records: Sequence[Record], data: dict[str, Any]
) -> Iterator[tuple[str, str]]:
    rows = [row for table in tables for row in table.rows]
    look = styles(rows)
    yield "data.js", script("DATA", data)
    yield "runs.js", script("RUNS", runs_data(records))
    yield SITE_TABLES, script_json(data["tables"]) + "\n"
    yield "leaderboard.csv", text.rows_as_csv(rows)
    for table in tables:
        yield f"pictures/{table.slug}.svg", curves(table.title, table.rows, look)
    for record in records:
        as_json = record.model_dump_json(by_alias=True, indent=1)
        yield f"{SITE_RECORDS}/{record.run}.json", as_json + "\n"


def _assets() -> Iterator[tuple[str, str | bytes]]:
    from plotly.offline import get_plotlyjs

    yield "static/plotly.min.js", get_plotlyjs()
    folder = files("leaderboard") / "static"
    for place in (folder, folder / "vendor"):
        for item in place.iterdir():
            if item.is_file():
                yield f"static/{item.name}", item.read_bytes()


def _forget(out: Path, written: set[Path]) -> None:
    """Pages of runs, tasks and encodings that are there no longer."""
    for folder in FOLDERS:
        for path in (out / folder).glob("*.*"):
            if path not in written and path.suffix in (".html", ".json"):
                path.unlink()
