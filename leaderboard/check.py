"""Check that records agree with themselves and with each other, and add one.

`harness.cli.verify` recomputes what follows from a record's command, encoding and task.
"""

import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path

from experiment.files import slug, tidy, write
from leaderboard.catalog import Catalog
from leaderboard.escape import shown
from leaderboard.record.clashes import Alike, Claims, path_text
from leaderboard.record.read import paths_of, read
from leaderboard.record.refusals import refusals
from leaderboard.record.schema import Record
from pezoo.spec import parse

ROOT = Path(__file__).resolve().parents[1]
MOST_REASONS = 10  # to refuse a record
CLOCKS = 3600  # seconds that the clocks of two machines may differ by
APART = 0.5  # of exact match between two checkpoints; the committed ones are within half of it
Verify = Callable[[Record], Iterable[str]]


@dataclass(frozen=True)
class CheckReport:
    """`refused` and `warnings` are lines `path: reason`; a path contains no ": "."""

    records: int
    refused: tuple[str, ...]
    warnings: tuple[str, ...]


def check(
    paths: Sequence[Path],
    catalog: Catalog,
    tree: bool = False,
    verify: Verify = lambda record: (),
    alike: Alike = lambda one, other: True,
    watch: Callable[[list[Path]], Iterable[Path]] = iter,
) -> CheckReport:
    """Check every record in these files and folders, and that they do not contradict each other.

    `tree`: files must also lie where records are committed, in PROTOCOL/TASK/ENCODING/, and be
    named after the run. `verify` gives more reasons to refuse a record; `alike` says whether the
    encodings of two runs with equal results train alike; `watch` yields the files, and may show
    how many are left. One record is in memory at a time.
    """
    bad_paths: list[str] = []
    reasons: dict[Path, list[str]] = {}
    warnings: list[str] = []
    commits, claims = history(ROOT), Claims(alike)
    files = [*dict.fromkeys(paths_of(paths, bad_paths, committed=tree))]
    for path in watch(files):
        record = read(path)
        if isinstance(record, str):
            reasons[path] = [record]
            continue
        own = reasons[path] = [*_reasons(record, commits, verify)]
        own += _misplaced(record, path) if tree else ()
        warnings += (f"{path_text(path)}: {text}" for text in _doubts(record, catalog, commits))
        if not own:
            claims.note(path, record)
    for path, reason in claims.clashes():
        reasons[path].append(reason)
    refused = [f"{path_text(path)}: {'; also '.join(own)}" for path, own in reasons.items() if own]
    return CheckReport(len(reasons), (*bad_paths, *refused), tuple(warnings))


def _reasons(record: Record, commits: str, verify: Verify) -> list[str]:
    every = chain(refusals(record), _too_early(record, commits), verify(record))
    try:
        return [*islice(every, MOST_REASONS)]
    except Exception as error:  # one record must not hide the others
        return [f"it cannot be checked: {type(error).__name__}: {shown(str(error))[:300]}"]


def _too_early(record: Record, commits: str) -> Iterator[str]:
    made = _made(record.env.commit or "unknown", commits)
    if made is not None and record.finished.timestamp() < made - CLOCKS:
        date = datetime.fromtimestamp(made, UTC)
        yield f"provenance.finished is {record.finished}, before its commit of {date}"


def _misplaced(record: Record, path: Path) -> Iterator[str]:
    if path.stem != record.run:
        yield f"the file should be named {record.run}.json"
    home = [record.protocol, slug(record.task)]
    if [*path.parts[-4:-2]] != home:
        yield f"the file should be in {'/'.join(home)}/ENCODING/"


def history(root: Path) -> str:
    """Return the commits of a checkout, a line for each: seconds since 1970, a space, its hash.

    "" where git does not know all of them, or the checkout is of something else.
    """

    def git(*words: str) -> str:
        words = ("git", "-C", str(root), *words)
        return subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout

    try:
        top, cut = git("rev-parse", "--show-toplevel", "--is-shallow-repository").splitlines()
        whole = cut == "false" and Path(top).resolve() == root.resolve()
        return git("rev-list", "--timestamp", "HEAD") if whole else ""
    except (OSError, ValueError, subprocess.SubprocessError):
        return ""


@lru_cache(1000)
def _made(commit: str, commits: str) -> int | None:
    """Return when a commit was made; None if it is not in the history."""
    found = re.search(rf"^(\d+) {re.escape(commit)}", commits, re.MULTILINE)
    return int(found[1]) if found else None


def _doubts(record: Record, catalog: Catalog, commits: str) -> Iterator[str]:
    """Yield what is allowed but weakens the record."""
    if commits and _made(record.env.commit or "unknown", commits) is None:
        yield "the commit is not in the history of this repository"
    for scores in record.by_mode.values():
        ends = zip(scores.last, scores.best, strict=False)
        if any(abs((a.exact or 0) - (b.exact or 0)) > APART for a, b in ends if not a.seen):
            yield f"last and best are more than {APART} apart at an unseen length"
    if record.env.dirty is None:
        yield "it is not known whether the code had uncommitted changes"
    elif record.env.dirty:
        yield "the code had uncommitted changes"
    version, current = record.config.encoding_version, catalog.version(record.config.spec)
    if current not in (None, version):
        yield f"encoding version {version}; the code is at {current}"


def add(
    run: str,
    runs: Path,
    records: Path,
    catalog: Catalog,
    verify: Verify = lambda record: (),
    alike: Alike = lambda one, other: True,
) -> Path:
    """Copy the record of a run into `records`, byte by byte, and return where it is.

    `run` is a run's folder, or the beginning of its id in the folder `runs`. Errors: ValueError
    for no such run, one that is not finished, a damaged result, or a record that `check` refuses,
    here or where a file that the task reads is not. `verify` and `alike` are as in `check`.
    """
    folder = find(run, runs)
    result = folder / "result.json"
    if not (folder / "DONE").is_file() or not result.is_file():
        raise ValueError(f"{folder} is not a finished run: it needs result.json and DONE")
    record = read(result)
    if isinstance(record, str):
        raise ValueError(f"{result}: {record}")
    if reasons := _reasons(record, history(ROOT), verify):
        raise ValueError(f"{result}: {'; '.join(reasons)}")
    task = parse(record.task)
    if files := [name for name in catalog.tasks[task.name].versioned_by if name in task.options]:
        raise ValueError(
            f"{result}: {record.task} reads {task.options[files[0]]}, which other machines do not "
            "have, and check would refuse the record there. Compare its runs where they are, with "
            "pezoo leaderboard build --runs; or make a task of it (docs/add-a-task.md)"
        )
    name = f"{record.run}.json"
    home, data = records / record.protocol / slug(record.task), result.read_bytes()
    path = home / slug(record.encoding) / name
    others = [other for other in records.rglob(name) if other != path]
    if others or (path.is_file() and path.read_bytes() != data):
        raise ValueError(f"run {record.run} is there with another content: {(*others, path)[0]}")
    claims = Claims(alike)
    claims.note(path, record)
    for other in paths_of([home], []):
        if other != path and isinstance(one := read(other), Record):
            claims.note(other, one)
    if reasons := [reason for where, reason in claims.clashes() if where == path]:
        raise ValueError(f"{result} cannot be added: {'; '.join(reasons)}")
    tidy([path])
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
