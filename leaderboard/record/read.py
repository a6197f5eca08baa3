"""Reading run records from files and folders; a bad file becomes a message, never an exception."""

import gc
import gzip
import hashlib
import os
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from leaderboard.escape import shown
from leaderboard.record.schema import Record

RECORDS = Path(__file__).parents[1] / "records"  # the committed ones
LARGEST_FILE = 4_000_000  # bytes
CHUNK = 1 << 20  # bytes
HASH = 64  # characters of a SHA-256
RECORD_FILE = re.compile(r"[0-9a-f]{16}\.json")  # as records are committed
SITE_TABLES = "leaderboard.json"  # marks a built site
PREDICTIONS = "predictions.jsonl.gz"  # beside a record: every test prompt, target and output
SITE_RECORDS = "record"  # the folder of a site with records and predictions


@contextmanager
def uncollected() -> Iterator[None]:
    """Suspend the search for cycles: records have none, and it takes a third of reading them."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@uncollected()
def load(paths: Iterable[Path | str], once: bool = True) -> tuple[list[Record], list[str]]:
    """Load every record in these files and folders, with one line `path: reason` per bad file.

    In a run's folder, which holds a config.json, only result.json is read, if DONE confirms it; a
    config.json among records is a problem. Of several files with the same run id the first counts,
    in the order of `paths`, except that a run that is done replaces one that failed. No content of
    a file raises. `once`: see Record.parse.
    """
    found: dict[str, Record] = {}
    problems: list[str] = []
    for path in paths_of(paths, problems):
        record = read(path, once)
        if isinstance(record, str):
            problems.append(f"{shown(str(path))}: {record}")
            continue
        known = found.setdefault(record.run, record)
        if known.status == "failed" and record.status == "done":
            found[record.run] = record
        elif known.status == record.status and known.scores != record.scores:
            problems.append(f"{shown(str(path))}: other scores for run {record.run}, left out")
    order = sorted(found.values(), key=lambda r: (r.protocol, r.task, r.encoding, r.seed, r.run))
    return order, problems


def kept_predictions(runs: Path, known: set[str], problems: list[str]) -> dict[str, Path]:
    """Return the files of predictions in a folder of runs, by run, of the runs in `known`.

    Files that are links, not regular or not whole are left out, with a line for each in `problems`.
    """
    found = {}
    for path in sorted(runs.glob(f"*/{PREDICTIONS}")):
        if path.parent.name not in known:
            continue
        try:
            if path.is_symlink() or not path.is_file():
                raise ValueError("not a regular file")
            if not path.stat().st_size:
                raise ValueError("empty")
            with gzip.open(path) as file:
                while file.read(CHUNK):
                    pass
            found[path.parent.name] = path
        except (OSError, EOFError, ValueError, zlib.error) as error:
            problems.append(f"{shown(str(path))}: {error}")
    return found


def read(path: Path, once: bool = True) -> Record | str:
    """Return the record in a file, or the reason why it is invalid. `once`: see Record.parse."""
    try:
        if not path.is_file():
            raise ValueError("not a regular file")
        if (size := path.stat().st_size) > LARGEST_FILE:
            raise ValueError(f"{size} bytes; a record has at most {LARGEST_FILE}")
        data = path.read_bytes()
        if path.name != "result.json":
            return Record.parse(data, once)
        done = path.with_name("DONE")
        if done.is_file() and _start(done) != hashlib.sha256(data).hexdigest().encode():
            raise ValueError("not what DONE says: the file was changed or damaged")
        record = Record.parse(data, once)
        unfinished = path.with_name("config.json").exists() and not done.is_file()
        if unfinished and record.status == "done":
            raise ValueError("the run is not finished: there is no DONE")
        return record
    except (OSError, ValueError, RecursionError) as error:
        return reason(error)


def _start(path: Path) -> bytes:
    """Return the hash in a file that may be of any size."""
    with path.open("rb") as file:
        return file.read(HASH + 1).strip()


def paths_of(
    paths: Iterable[Path | str], problems: list[str], committed: bool = False
) -> list[Path]:
    """Return the record files in these files and folders; a missing path becomes a problem.

    `committed`: the folders do not contain runs, so every JSON file must be a record.
    """
    files: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            files += sorted(_files(path, committed))
        elif path.is_file():
            files.append(path)
        else:
            problems.append(f"{shown(str(path))}: no such file or folder")
    return files


def _files(folder: Path, committed: bool) -> Iterator[Path]:
    for at, folders, names in os.walk(folder):
        if SITE_TABLES in names:
            names.remove(SITE_TABLES)
        in_run = "config.json" in names and not any(map(RECORD_FILE.fullmatch, names))
        in_run = in_run and not committed
        for name in (*folders, *names):  # a folder with the name of a record is a mistake to report
            if name == "result.json" or (name.endswith(".json") and not in_run):
                yield Path(at, name)


def reason(error: Exception) -> str:
    """Describe why a record is invalid, in a line."""
    if not isinstance(error, ValidationError):
        return shown(f"{type(error).__name__}: {error}", 300)
    errors = error.errors(include_url=False, include_input=False)
    parts = [
        f"{'.'.join(map(str, e['loc'])) or 'record'}: {e['msg'].removeprefix('Value error, ')}"
        for e in errors[:3]
    ]
    more = f" (and {len(errors) - 3} more)" if len(errors) > 3 else ""
    return shown("; ".join(parts) + more, 600)
