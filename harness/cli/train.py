"""The runs of `pezoo bench`, those of the sweep and of the comparison, from settings to records."""

from __future__ import annotations

import json
import re
import resource
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click
from filelock import Timeout

from experiment.config import ConfigError, RunConfig
from harness.cli.progress import Progress
from harness.engine import Engine
from harness.runs.events import Event
from harness.runs.folder import RunFolder
from harness.settings.sweep import (
    Choice,
    Sweep,
    choose,
    possible_configs,
    sweep_configs,
    tuned_configs,
)

WAIT = 10.0  # seconds between two looks at runs that other processes hold
LOCAL_OPTIONS = (
    "--runs",
    "--known",
    "--engine",
    "--address",
    "--slurm",
    "--accumulate",
)  # of one site
RUN = re.compile(rb'"run":\s*"([0-9a-f]{16})"')  # as a record says it
Records = Mapping[str, dict[str, Any]]  # by the hash of the run


def train(
    configs: Sequence[RunConfig],
    folder: Path,
    engine: Engine,
    fresh: bool,
    wait: bool = False,
    known: Records = MappingProxyType({}),
) -> tuple[list[dict[str, Any]], bool]:
    """Execute the runs that are not finished; all records in order, and whether a run failed or is
    missing. `known` runs need no folder. With `wait`, other processes' runs are waited for.
    """
    if fresh:
        _forget(configs, folder)
    done = [RunFolder(folder, run).result() or known.get(run.hash) for run in configs]
    records = {run: record for run, record in enumerate(done) if record is not None}
    waiting = [run for run in range(len(configs)) if run not in records]
    with Progress([configs[run] for run in waiting], len(records)) as progress:

        def note(run: int, event: Event) -> None:
            progress.update(waiting.index(run), event)
            if "record" in event:
                records[run] = event["record"]

        def look(runs: Sequence[int]) -> list[int]:
            """Train those that nobody holds; those without a record."""
            ours, command = [configs[run] for run in runs], recorded_command(sys.argv[1:])
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
    failed = progress.failed or any(record["status"] == "failed" for record in ordered)
    return ordered, bool(left) or failed


def tune(
    sweep: Sweep,
    plain: Sequence[RunConfig],
    folder: Path,
    engine: Engine,
    fresh: bool,
    wait: bool = False,
    known: Records = MappingProxyType({}),
) -> tuple[list[RunConfig], list[Choice]]:
    """Run the sweep; the comparison's runs with the settings that it chose, and the choices.

    A cell of the grid that fails is a result, as long as another one can be chosen.
    """
    configs = sweep_configs(sweep, plain)
    if fresh:  # before anything is forgotten, whatever will be chosen
        with _held(possible_configs(sweep, plain), folder):
            pass
    records, _ = train(configs, folder, engine, fresh, wait, known)
    choices = choose(sweep, configs, records)
    tuned = tuned_configs(sweep, choices, plain)
    if fresh:
        _forget([config for config, _ in tuned], folder)
    for config, tuning in tuned:
        RunFolder(folder, config).note_tuning(tuning)
    return [config for config, _ in tuned], choices


def known_records(folder: Path, configs: Sequence[RunConfig]) -> Records:
    """The finished ones of these runs among the records in a folder, whatever their files' names.

    Errors: ConfigError for no such folder, and for a record of one of these runs that is damaged or
    has other scores than another.
    """
    from leaderboard.record.read import LARGEST_FILE, read

    if not folder.is_dir():
        raise ConfigError(f"--known: {folder} is no folder of records")
    wanted = {config.hash for config in configs}
    found = {}
    for path in sorted(folder.rglob("*.json")):
        small = path.is_file() and path.stat().st_size <= LARGEST_FILE
        named = RUN.search(path.read_bytes()) if small else None
        run = named[1].decode() if named else path.stem
        if wanted & {run, path.stem}:
            record = read(path)
            if isinstance(record, str) or record.config.hash != run:
                why = record if isinstance(record, str) else f"it is of run {record.config.hash}"
                raise ConfigError(f"--known: {path}: {why}")
            if record.status == "done":
                raw = json.loads(path.read_text(encoding="utf-8"))
                if found.setdefault(run, raw)["scores"] != raw["scores"]:
                    raise ConfigError(
                        f"--known: {path}: another record of run {run} scored otherwise"
                    )
    return found


def recorded_command(arguments: Sequence[str]) -> str:
    """The command that gives these results anywhere: without the options of one site.

    >>> recorded_command(["bench", "--pe", "rope", "--runs", "/some/where", "--engine=ray"])
    'pezoo bench --pe rope'
    """
    kept = ["pezoo"]
    words = iter(arguments)
    for word in words:
        if word in LOCAL_OPTIONS:
            next(words, None)
        elif word != "--wait" and word.partition("=")[0] not in LOCAL_OPTIONS:
            kept.append(word)
    return shlex.join(kept)


def _forget(configs: Sequence[RunConfig], folder: Path) -> None:
    """Empty the folders of these runs, or none. Errors: as `_held`."""
    with _held(configs, folder) as runs:
        for run in runs:
            run.clear()


@contextmanager
def _held(configs: Sequence[RunConfig], folder: Path) -> Iterator[list[RunFolder]]:
    """Those of these runs that have a folder, locked.

    Errors: UsageError where another process is training one, ConfigError for a link.
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
                    f"--fresh: another process is training {config.label} on {config.task}, seed "
                    f"{config.seed}; end it first"
                ) from error
        yield runs
