"""Add the record of a finished run to the committed ones."""

from __future__ import annotations

from pathlib import Path

from experiment.files import slug, write
from leaderboard.catalog import Catalog
from leaderboard.record.check import Verify, refusals
from leaderboard.record.read import read
from pezoo.spec import parse


def add(
    run: str, runs: Path, records: Path, catalog: Catalog, verify: Verify = lambda record: ()
) -> Path:
    """Copy the record of a run into `records`, byte by byte, and return where it is.

    `run` is a run's folder, or the beginning of its id in the folder `runs`. Errors: ValueError
    for no such run, one that is not finished, a damaged result, or a record that `check` refuses,
    here or where a file that the task reads is not. `verify` is as in `check`.
    """
    folder = find(run, runs)
    result = folder / "result.json"
    if not (folder / "DONE").is_file() or not result.is_file():
        raise ValueError(f"{folder} is not a finished run: it needs result.json and DONE")
    data, record = result.read_bytes(), read(result)
    if isinstance(record, str):
        raise ValueError(f"{result}: {record}")
    if reasons := [*refusals(record), *verify(record)]:
        raise ValueError(f"{result}: {'; '.join(reasons)}")
    task = parse(record.task)
    if files := [name for name in catalog.tasks[task.name].versioned_by if name in task.options]:
        raise ValueError(
            f"{result}: {record.task} reads {task.options[files[0]]}, which other machines do not "
            "have, and check would refuse the record there. Compare its runs where they are, with "
            "pezoo leaderboard build --runs; or make a task of it (docs/add-a-task.md)"
        )
    name = f"{record.run}.json"
    path = records / record.protocol / slug(record.task) / slug(record.encoding) / name
    others = [other for other in records.rglob(name) if other != path]
    if others or (path.is_file() and path.read_bytes() != data):
        raise ValueError(f"run {record.run} is there with another content: {(*others, path)[0]}")
    return write(path, data)


def find(run: str, runs: Path) -> Path:
    """Return the run's folder. Errors: ValueError for none or several."""
    if Path(run).is_dir():
        return Path(run)
    found = [path for path in sorted(runs.glob("*")) if path.is_dir() and path.name.startswith(run)]
    if len(found) != 1 or not run:
        few = ", ".join(path.name for path in found[:5]) or "none"
        raise ValueError(f"expected a run's folder or its id in {runs}, was {run!r}; found: {few}")
    return found[0]
