"""Train the runs of `pezoo bench`: those of the sweep, then those of the comparison."""

import re
import resource
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType

import click
from filelock import Timeout

from experiment.config import ConfigError, RunConfig, Start
from harness.cli.progress import Progress
from harness.engine import Engine
from harness.runs.events import Event
from harness.runs.folder import RunFolder
from harness.runs.logs import Logs
from harness.settings.sweep import (
    Choice,
    Sweep,
    choose,
    possible_configs,
    sweep_configs,
    tuned_configs,
)
from leaderboard.record.schema import Record

WAIT = 10.0  # seconds between two polls of other processes' runs
# Options of one site.
LOCAL_OPTIONS = ("--runs", "--known", "--engine", "--address", "--slurm", "--accumulate", "--log")
RUN = re.compile(rb'"run":\s*"([0-9a-f]{16})"')  # in a record
Records = Mapping[str, Record]  # by the hash of the run


def train(
    configs: Sequence[RunConfig],
    folder: Path,
    engine: Engine,
    fresh: bool,
    wait: bool = False,
    known: Records = MappingProxyType({}),
    command: str = "",
    start: Start | None = None,
) -> tuple[list[Record], bool]:
    """Execute the runs that are neither finished nor `known`, after those that they start from.

    Returns all records in order, and True if a run failed or is missing. With `wait`, wait for
    runs of other processes. `command` is for the records, by default that of this process; of the
    runs to start from, it is made of `start`.
    """
    command = command or recorded_command(sys.argv[1:])
    if fresh:
        _forget(configs, folder)
    done = [RunFolder(folder, run).result() or known.get(run.hash) for run in configs]
    records = {run: record for run, record in enumerate(done) if record is not None}
    waiting = [run for run in range(len(configs)) if run not in records]
    if first := parents([configs[run] for run in waiting], folder):
        train(first, folder, engine, False, wait, command=start_command(start, first) or command)
    todo = [configs[run] for run in waiting]
    progress = Progress(todo, len(records))
    with progress, Logs(engine.options.log, todo, progress.names, folder) as logs:

        def note(run: int, event: Event) -> None:
            progress.update(waiting.index(run), event)
            logs.update(waiting.index(run), event)
            if "record" in event:
                records[run] = event["record"]

        def look(runs: Sequence[int]) -> list[int]:
            """Train the runs that no process holds; return those without a record."""
            ours = [configs[run] for run in runs]
            engine.run_all(ours, folder, command, lambda place, event: note(runs[place], event))
            return [run for run in runs if run not in records]

        left = look(waiting)
        while left and wait and not progress.failed:
            time.sleep(WAIT)
            for run in left:
                if record := RunFolder(folder, configs[run]).result():
                    note(run, {"record": record})
            left = look([run for run in left if run not in records])
    if left:
        click.echo(f"warning: {len(left)} of {len(configs)} runs have no record yet", err=True)
    ordered = [records[run] for run in sorted(records)]
    failed = progress.failed or any(record.status == "failed" for record in ordered)
    return ordered, bool(left) or failed


def parents(configs: Sequence[RunConfig], folder: Path) -> list[RunConfig]:
    """Return the runs that these start from, without those that are finished."""
    found = {run.start.hash: run.start for run in configs if run.start}
    return [run for run in found.values() if RunFolder(folder, run).result() is None]


def start_command(start: Start | None, configs: Sequence[RunConfig]) -> str:
    """Return the command that makes the runs to start from; "" without `start`."""
    if start is None:
        return ""
    own = ["bench", "--protocol", start.protocol, "--pe", start.encoding]
    own += ["--task", ",".join(dict.fromkeys(config.task for config in configs))]
    own += ["--seeds", ",".join(map(str, sorted({config.seed for config in configs})))]
    own += ["--attention", configs[0].attention] * (configs[0].attention != "auto")
    return recorded_command(own + [word for one in start.set for word in ("--set", one)])


def tune(
    sweep: Sweep,
    plain: Sequence[RunConfig],
    folder: Path,
    engine: Engine,
    fresh: bool,
    wait: bool = False,
    known: Records = MappingProxyType({}),
    start: Start | None = None,
) -> tuple[list[RunConfig], list[Choice]]:
    """Run the sweep. Returns the comparison's runs with the chosen settings, and the choices.

    A setting whose runs fail is a result, as long as another one can be chosen.
    """
    configs = sweep_configs(sweep, plain)
    if fresh:  # refuse before any result is deleted
        with _held(possible_configs(sweep, plain), folder):
            pass
    records, _ = train(configs, folder, engine, fresh, wait, known, start=start)
    choices = choose(sweep, configs, records)
    tuned = tuned_configs(sweep, choices, plain)
    if fresh:
        _forget([config for config, _ in tuned], folder)
    for config, tuning in tuned:
        RunFolder(folder, config).note_tuning(tuning)
    return [config for config, _ in tuned], choices


def known_records(folder: Path, configs: Sequence[RunConfig]) -> Records:
    """Read the records of these runs from a folder, whatever the files' names.

    Errors: ConfigError for a missing folder, and for a record that is damaged or contradicts
    another one of the same run.
    """
    from leaderboard.record.read import LARGEST_FILE, read

    if not folder.is_dir():
        raise ConfigError(f"--known: there is no folder {folder}")
    wanted = {config.hash for config in configs}
    found: dict[str, Record] = {}
    for path in sorted(set(folder.rglob("*.json")) - {*folder.rglob("ckpt-*.json")}):
        small = path.is_file() and path.stat().st_size <= LARGEST_FILE
        named = RUN.search(path.read_bytes()) if small else None
        run = named[1].decode() if named else path.stem
        if wanted & {run, path.stem}:
            record = read(path)
            if isinstance(record, str) or record.config.hash != run:
                why = record if isinstance(record, str) else f"it is of run {record.config.hash}"
                raise ConfigError(f"--known: {path}: {why}")
            if record.status == "done" and found.setdefault(run, record).scores != record.scores:
                raise ConfigError(f"--known: {path}: another record of run {run} scored otherwise")
    return found


def recorded_command(arguments: Sequence[str]) -> str:
    """Return the command without the options of one site, so that it repeats the results anywhere.

    >>> recorded_command(["bench", "--pe", "rope", "--runs", "/some/where", "--engine=ray"])
    'pezoo bench --pe rope'
    """
    kept = ["pezoo"]
    words = iter(arguments)
    for word in words:
        if word in LOCAL_OPTIONS:
            next(words, None)
        elif word.partition("=")[0] not in (*LOCAL_OPTIONS, "--wait", "--keep-predictions"):
            kept.append(word)
    return shlex.join(kept)


def _forget(configs: Sequence[RunConfig], folder: Path) -> None:
    """Empty the folders of these runs, all or none. Errors: as `_held`."""
    with _held(configs, folder) as runs:
        for run in runs:
            run.clear()


@contextmanager
def _held(configs: Sequence[RunConfig], folder: Path) -> Iterator[list[RunFolder]]:
    """Lock the runs that have a folder.

    Errors: UsageError if another process is training one, ConfigError for a link.
    """
    runs = [run for config in configs if (run := RunFolder(folder, config)).path.is_dir()]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)  # a lock is an open file
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, len(runs) + 200)), hard))
    with ExitStack() as locks:
        for run in runs:
            try:
                locks.enter_context(run.lock())
            except Timeout as error:
                config = run.config
                raise click.UsageError(
                    f"--fresh: another process is training {config.encoding} on {config.task}, "
                    f"seed {config.seed}; end it first"
                ) from error
        yield runs
