"""The static site: works from the disk, from any host and in a subfolder."""

import json
import subprocess
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from importlib.resources import files
from itertools import chain, groupby
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

from filelock import FileLock

from experiment.files import slug, tidy, write
from leaderboard.catalog import HOOKS, Catalog
from leaderboard.charts.curves import curves
from leaderboard.charts.grids import prf_grids
from leaderboard.charts.styles import SETTINGS, Style, shown, styles
from leaderboard.escape import script_json
from leaderboard.papers.cells import Cell, Filled
from leaderboard.papers.pictures import PaperPicture, figures_of, filled_of
from leaderboard.processes import in_processes
from leaderboard.record.read import PREDICTIONS, SITE_RECORDS, SITE_TABLES
from leaderboard.record.schema import Record
from leaderboard.render.choices import LEGEND, choices
from leaderboard.render.columns import rows_as_csv
from leaderboard.render.data import files_of, runs_data, script, scripts, site_data, unseen_of
from leaderboard.render.front import fronts
from leaderboard.render.overviews import findings, overview_of
from leaderboard.render.runs import runs_as_csv
from leaderboard.render.templating import render
from leaderboard.render.which import BUDGETS, advice, answers
from leaderboard.stats.costs import measured
from leaderboard.stats.overview import main_tables, ordered, protocols, with_column
from leaderboard.stats.tables import Table
from pezoo import __version__
from pezoo.spec import bare

Content = str | bytes | Iterator[bytes]
Work = Callable[[], list[Path]]  # writes files, returns their paths
# From these, pages of earlier builds go.
FOLDERS = ("task", "encoding", "run", "data", "pictures", SITE_RECORDS)
TOGETHER = 200  # runs whose pages one process writes before it takes the next
GZIP = 31  # zlib's code for a file that gzip reads
LOCK = ".lock"
WRITTEN = "files.txt"  # what a build wrote into them, one path per line: nothing else ever goes


@dataclass(frozen=True)
class Built:
    """Date and commit of a build; the address of its code, as https://host/owner/pezoo/blob/main."""

    date: str
    commit: str | None = None
    source: str | None = None

    @classmethod
    def now(cls, source: str | None = None) -> Self:
        """Return today's date, and the commit if the code is a checkout."""
        command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
        try:
            found = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
            commit = found.stdout.strip()
        except (OSError, subprocess.SubprocessError):
            commit = None
        return cls(date.today().isoformat(), commit, source)


def build(
    tables: Sequence[Table],
    records: Sequence[Record],
    out: Path,
    refused: int = 0,
    catalog: Catalog | None = None,
    built: Built | None = None,
    predictions: Mapping[str, Path] | None = None,
    share: Callable[[Sequence[Work]], list[list[Path]]] = in_processes,
) -> list[Path]:
    """Write the site into `out` and return the paths written, index.html first.

    `refused` is the number of files that were not valid records; `predictions` are the files for
    download, by run; `share` does the work, which may be done in any order. Pages of an earlier
    build that this one does not write are deleted.
    Errors: ValueError for a folder `out` with other files, and for folders that are links.
    """
    claim(out)
    catalog = catalog or Catalog()
    newest = max((record.finished for record in records), default=None)
    common = {
        "refused": refused,
        "records": len(records),
        "source": built and built.source,
        "built": built,
        "newest": newest and newest.date().isoformat(),
        "version": __version__,
        "predictions": predictions or {},
        "data": site_data(tables, catalog),
    }
    table_of = {record.run: table for table in tables for record in table.records}
    starts = range(0, len(records), TOGETHER)
    parts = [
        partial(_pages, tables, records, catalog, common),
        partial(_files, tables, records, common["data"]),
        partial(_downloads, records, common["predictions"]),
        *(partial(_of_runs, records[i : i + TOGETHER], table_of, common) for i in starts),
    ]
    with FileLock(out / LOCK):  # of two builds the second waits: it would delete the first's pages
        written = list(chain.from_iterable(share([partial(_save, out, part) for part in parts])))
        _forget(out, set(written))
    return written


def _save(out: Path, part: Callable[[], Iterator[tuple[str, Content]]]) -> list[Path]:
    """Write files, each after its name: a build that is interrupted leaves none without one."""
    found = []
    with (out / WRITTEN).open("a", encoding="utf-8") as names:
        for name, content in part():
            if name.partition("/")[0] in FOLDERS:
                print(name, file=names, flush=True)
            found.append(write(out / name, content))
    return found


def holds(out: Path, runs: set[str]) -> bool:
    """Return whether a built site has all these runs; False for one that cannot be read."""
    try:
        tables = json.loads((out / SITE_TABLES).read_text("utf-8"))
        found = {run for table in tables for row in table["rows"] for run in row["runs"]}
    except (OSError, ValueError, TypeError, KeyError):
        return False
    return (out / "index.html").is_file() and runs <= found


def address(out: Path, runs: set[str]) -> str:
    """Return the address of the page of a built site that opens on these runs."""
    tables = json.loads((out / SITE_TABLES).read_text("utf-8"))
    found = [
        (table, row)
        for table in tables
        for row in table["rows"]
        if not table["device"] and not row["aside"] and runs & {*row["runs"]}
    ]
    page, state = "index.html", {}
    for table, _ in found[:1]:
        state = {"protocol": table["base"], "tuning": table["tuning"], "others": "0"}
    if len(tasks := {table["task"] for table, _ in found}) == 1:
        page = f"task/{slug(tasks.pop())}.html"
        state["pick"] = [row["label"] for _, row in found]
        if not any(
            cell["main"] and cell["main"]["mean"] for _, row in found for cell in row["cells"]
        ):
            state["measure"] = "beside"
    return f"{(out / page).resolve().as_uri()}#{urlencode(state, doseq=True)}"


def _pages(
    tables: Sequence[Table],
    records: Sequence[Record],
    catalog: Catalog,
    common: dict[str, Any],
) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of every page, and the pictures that pages share."""
    top, below = common | {"root": ""}, common | {"root": "../"}
    yield from _start(tables, catalog, top)
    papers = [one for one in filled_of(records, catalog, "tables") if one.runs]
    figures = figures_of(records, catalog)
    yield "papers.html", render("papers.html", papers=papers, figures=figures, **top)
    for name in ("compare.html", "cost.html", "runs.html"):
        yield name, render(name, **top)
    yield "method.html", render("method.html", protocols=catalog.protocols.values(), **top)
    yield from ((f"pictures/{one.file}", one.svg) for one in figures)
    yield from _of_tasks(tables, catalog, figures, below)
    yield from _of_encodings(catalog, papers, below)


def _of_runs(
    records: Iterable[Record], table_of: Mapping[str, Table], common: dict[str, Any]
) -> Iterator[tuple[str, Content]]:
    """Yield the page of every run."""
    shown = [one for one in common["data"]["tables"] if not one["device"]]
    common = common | {"tuning_of": {one["id"]: one["tuning"] for one in shown}}
    for record in records:
        more = {"table": table_of.get(record.run), "unseen": unseen_of(record), "root": "../"}
        more["file"] = f"{SITE_RECORDS}/{file_of(record)}"
        yield f"run/{record.run}.html", render("run.html", record=record, **more, **common)


def _start(
    tables: Sequence[Table], catalog: Catalog, common: dict[str, Any]
) -> Iterator[tuple[str, str]]:
    """Yield the overview and the page that helps to choose."""
    main, leads, names = main_tables(tables), ordered(tables), common["data"]["names"]
    every = with_column(leads)
    others = every[len(main) :]
    own = list(answers(every, catalog))
    parts = [main] if main else []
    parts += [list(some) for _, some in groupby(others, key=lambda table: table.base)]
    parts[1:] = sorted(parts[1:], key=lambda some: some[0].base not in SETTINGS["tabs"])
    first = {
        "main": main,
        "overviews": [overview_of(some, names, catalog) for some in parts],
        "fronts": list(fronts(parts, names, catalog)),
        "reference": SETTINGS["reference"],
        "advice": advice(own),
    }
    if first["fronts"]:
        one, look = first["fronts"][0].tasks[0], _look(tables)
        first["picture"] = curves(one.table.title, one.curves, look, names=names, inline=True)
    yield "index.html", render("index.html", **first, **common)
    more = {"findings": findings(main), "budgets": BUDGETS, "reference": SETTINGS["reference"]}
    rows = choices(leads, catalog) if own else []
    more |= {"choices": rows, "legend": LEGEND}
    yield "which.html", render("which.html", answers=own, **more, **common)


def _of_tasks(
    tables: Sequence[Table],
    catalog: Catalog,
    figures: Sequence[PaperPicture],
    common: dict[str, Any],
) -> Iterator[tuple[str, str]]:
    """Yield the pages of tasks."""
    data, order, look = common["data"], protocols(tables), _look(tables)
    for name, facts in data["tasks"].items():
        task, own = catalog.tasks.get(bare(name)), [t for t in tables if t.first.task == name]
        own.sort(key=lambda table: order.index(table.base))
        more = {
            "picture": curves(
                own[0].title, shown(own[0].rows), look, names=data["names"], inline=True
            ) if own else "",
            "figures": [one for one in figures if one.shows(name)],
            "current": catalog.task_version(name),
        }  # fmt: skip
        page = render("task.html", name=name, known=task, tables=own, **more, **common)
        yield facts["page"], page


def _of_encodings(
    catalog: Catalog, papers: Sequence[Filled], common: dict[str, Any]
) -> Iterator[tuple[str, str]]:
    """Yield the pages of encodings, and the pictures that explain them."""
    drawn: dict[str, str] = {}
    claims: dict[str, list[tuple[Filled, Cell]]] = defaultdict(list)
    for paper in papers:
        for cell in paper.cells:
            if cell.ours and cell.paper:
                claims[bare(cell.encoding)].append((paper, cell))
    for name, facts in common["data"]["encodings"].items():
        parts = catalog.parts(name)
        grids = {part.name: prf_grids(part.prf_maps, part.name) for part in parts if part.prf_maps}
        more = {"parts": parts, "hooks": HOOKS, "prf_grids": grids, "claims": claims[name]}
        more |= {"costs": [one for one in measured() if one.encoding == name]}
        yield facts["page"], render("encoding.html", name=name, **more, **common)
        drawn |= {part.name: part.picture[0] for part in parts if part.picture}
    yield from ((f"pictures/{name}.explained.svg", svg) for name, svg in drawn.items())


def _look(tables: Sequence[Table]) -> dict[str, Style]:
    return styles([row for table in tables for row in table.rows])


def _files(
    tables: Sequence[Table], records: Sequence[Record], data: dict[str, Any]
) -> Iterator[tuple[str, Content]]:
    yield from scripts(data)
    yield "runs.js", script("RUNS", runs_data(records))
    parts = map(script_json, files_of(data["tables"]))  # one at a time: less memory
    yield SITE_TABLES, f"[{','.join(parts)}]\n"
    yield "leaderboard.csv", rows_as_csv([row for table in tables for row in table.rows])
    for item in (files("leaderboard.render") / "static").iterdir():
        if item.is_file():
            yield f"static/{item.name}", item.read_bytes()


def _downloads(
    records: Sequence[Record], predictions: Mapping[str, Path]
) -> Iterator[tuple[str, Content]]:
    """Yield the table of all runs, the records of each task, and kept predictions."""
    yield "runs.csv", runs_as_csv(records)
    for name, some in groupby(records, key=file_of):
        yield f"{SITE_RECORDS}/{name}", _packed(some)
    for run, path in sorted(predictions.items()):
        yield f"{SITE_RECORDS}/{run}.{PREDICTIONS}", path.read_bytes()


def _packed(records: Iterable[Record]) -> bytes:
    """Return the lines of records, compressed one after the other: together they may be 50 MB."""
    file = zlib.compressobj(6, wbits=GZIP)
    return b"".join([*(file.compress(one.text().encode()) for one in records), file.flush()])


def file_of(record: Record) -> str:
    """Return the name of the file with all records of the protocol and the task."""
    return f"{slug(record.protocol)}.{slug(record.task)}.jsonl.gz"


def claim(out: Path) -> None:
    """Mark a new folder as a site. Errors: ValueError for a folder with other files."""
    for path in (out, *(out / name for name in (*FOLDERS, "static", WRITTEN))):
        if path.is_symlink():
            raise ValueError(f"{path} is a link: expected one of the site's own")
    marker = out / SITE_TABLES
    if not marker.is_file():
        if out.is_dir() and not all(path.name.startswith(".") for path in out.iterdir()):
            raise ValueError(
                f"{out} has files, but none is {SITE_TABLES}, so it is not a built site: "
                f"expected one, an empty folder or a new name"
            )
        write(marker, "[]\n")


def _forget(out: Path, written: set[Path]) -> None:
    """Delete pages of earlier builds that this build did not write."""
    here = {out / name for name in FOLDERS}
    now = {f"{path.parent.name}/{path.name}" for path in written if path.parent in here}
    listed = out / WRITTEN
    before = listed.read_text("utf-8", errors="replace").splitlines() if listed.is_file() else []
    parts = {line: line.partition("/") for line in before}
    earlier = {
        line
        for line, (folder, _, name) in parts.items()
        if folder in FOLDERS and Path(name).name == name
    }
    tidy({*written, *(out / line for line in earlier), listed})
    for line in earlier - now:
        if (out / line).is_file():
            (out / line).unlink()
    write(listed, "".join(f"{line}\n" for line in sorted(now)))
