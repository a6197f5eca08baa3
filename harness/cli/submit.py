"""Offer records: a branch with their files, and the text of a pull request."""

import shlex
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from leaderboard.catalog import Catalog
from leaderboard.check import Verify, add
from leaderboard.record.clashes import Alike
from leaderboard.record.read import load, read
from leaderboard.record.schema import Record
from leaderboard.render.markdown import write_markdown
from leaderboard.stats.tables import tables

RECORDS, PAGE = Path("leaderboard/records"), Path("leaderboard/LEADERBOARD.md")


def submit(
    runs: Sequence[str],
    folder: Path,
    clone: Path,
    branch: str | None,
    catalog: Catalog,
    how: tuple[Verify, Alike],
) -> str:
    """Commit the records of finished runs, with the pages, to a new branch of a clone.

    The clone's files, its index and its own branch stay as they are. Returns the command that
    pushes the branch and the pull request's text. Errors: those of `add`, before anything is
    written; UsageError for a folder that is no clone of pezoo and for a branch that exists.
    """
    if not (clone / RECORDS).is_dir() or not (clone / ".git").exists():
        raise click.UsageError(
            f"{clone} is no clone of pezoo: it needs .git and {RECORDS}\n"
            "git clone the repository, then pass --clone FOLDER"
        )
    with _branch(clone, branch) as (place, name):
        made = [add(run, folder, place / RECORDS, catalog, *how) for run in runs]
        records = [one for path in made if isinstance(one := read(path), Record)]
        title = _title(records)
        write_markdown(tables(load([place / RECORDS])[0], catalog), place / PAGE, catalog)
        _git(place, "add", "--all")
        _git(place, "commit", "--quiet", "-m", title)
    push = shlex.join(["git", "-C", str(clone), "push", "-u", "origin", name])
    return f"branch {name}: {push}\n\n{title}\n\n{_body(records)}"


@contextmanager
def _branch(clone: Path, branch: str | None) -> Iterator[tuple[Path, str]]:
    """Yield a working tree of a new branch, and its name; after an error there is no branch."""
    taken = set(_git(clone, "branch", "--format=%(refname:short)").split())
    free = (f"records-{n}" for n in range(1, len(taken) + 2))
    name = branch or next(one for one in free if one not in taken)
    if name in taken:
        raise click.UsageError(f"the branch {name} exists: pass another --branch")
    with TemporaryDirectory() as folder:
        place = Path(folder) / "tree"
        _git(clone, "worktree", "add", "--quiet", "-b", name, str(place))
        try:
            yield place, name
        except BaseException:
            _git(clone, "worktree", "remove", "--force", str(place))
            _git(clone, "branch", "-D", name)
            raise
        _git(clone, "worktree", "remove", "--force", str(place))


def _git(folder: Path, *words: str) -> str:
    """Return what git prints. Errors: ClickException with what it says."""
    command = ["git", "-C", str(folder), *words]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except FileNotFoundError as error:
        raise click.ClickException("git is not installed") from error
    except subprocess.CalledProcessError as error:
        said = " ".join(error.stderr.split())
        raise click.ClickException(f"git {words[0]} failed: {said}") from error


def _title(records: Sequence[Record]) -> str:
    names = (_few(getattr(record, key) for record in records) for key in ("encoding", "task"))
    return f"Records of {len(records)} run{'s' * (len(records) > 1)}: {' on '.join(names)}"


def _few(names: Iterable[str]) -> str:
    first, *others = dict.fromkeys(names)
    return f"{first} and {len(others)} others" if len(others) > 1 else ", ".join([first, *others])


def _body(records: Sequence[Record]) -> str:
    """Return the runs as a table, where they ran and the commands that repeat them."""
    lines = ["| run | protocol | task | encoding | seed | scores | on |", "|" + "---|" * 7]
    for record in records:
        rows = record.scores.last
        kind = "bits" if record.config.track == "text" else "exact"
        pairs = ((row.length, getattr(row, kind)) for row in rows)
        scores = ", ".join(f"{n}: {'-' if x is None else f'{x:.2f}'}" for n, x in pairs)
        scores = scores or f"failed: {record.reason}"
        env = record.env
        where = f"{env.device}, torch {env.torch}, commit {env.commit or 'unknown'}"
        own = record.run, record.protocol, record.task, record.encoding, record.seed, scores, where
        lines.append(f"| {' | '.join(str(cell).replace('|', '/') for cell in own)} |")
    commands = dict.fromkeys(record.provenance.command for record in records)
    return "\n".join([*lines, "", "```sh", *commands, "```"])
