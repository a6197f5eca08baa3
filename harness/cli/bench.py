"""`pezoo bench`: train, evaluate, compare."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from harness.engine import Engine
    from harness.settings.protocol import RunConfig
    from harness.settings.request import Request
    from harness.settings.sweep import Sweep

FORMATS = ("table", "json", "csv", "markdown")
LOCAL_OPTIONS = ("--runs", "--engine", "--address", "--slurm", "--accumulate")  # of one site


@click.command()
@click.option("--pe", required=True, help='Encodings, for example "prism,randomized:rope".')
@click.option("--task", required=True, help="Tasks, separated by commas.")
@click.option("--protocol", default="quick", show_default=True, help="A name or a TOML file.")
@click.option("--seeds", help="For example 0-2 or 0,3,7; the protocol's by default.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or cuda:N.")
@click.option(
    "--attention",
    default="auto",
    show_default=True,
    help="auto, sdpa, eager, flex, numba, xformers.",
)
@click.option("--runs", "root", default="runs", show_default=True, help="Folder of the runs.")
@click.option("--engine", help="local, ray or submitit; ddp under torchrun.  [default: local]")
@click.option("--jobs", type=click.IntRange(min=1), help="Runs at once; here one per core up to 2.")
@click.option("--threads", type=click.IntRange(min=1), help="CPU threads of each run.")
@click.option("--address", help="Ray: host:port of the cluster, or auto; a new one by default.")
@click.option("--slurm", multiple=True, help="Slurm: --slurm partition=gpu --slurm mem_gb=8.")
@click.option(
    "--accumulate", type=click.IntRange(min=1), help="torchrun: parts of a batch in turn."
)
@click.option(
    "--stack",
    type=click.Choice(("auto", "on", "off")),
    default="auto",
    show_default=True,
    help="Train seeds (and learning rates) as one model; auto measures whether that is faster.",
)
@click.option(
    "--precision",
    type=click.Choice(("float32", "bf16")),
    default="float32",
    show_default=True,
    help="Of training; as --set train.precision=bf16.",
)
@click.option("--compile", "compiled", is_flag=True, help="Train through torch.compile.")
@click.option("--set", "sets", multiple=True, help="Change a setting: --set train.steps=500.")
@click.option(
    "--tune",
    "tunes",
    multiple=True,
    help="Sweep a training setting for every encoding alike: --tune lr=3e-4,1e-3,3e-3.",
)
@click.option("--tune-seeds", help="Seeds to choose settings on, 100 by default.")
@click.option("--dry-run", is_flag=True, help="Print the runs and their expected cost.")
@click.option("--fresh", is_flag=True, help="Forget earlier results of these runs.")
@click.option("--format", "form", type=click.Choice(FORMATS), default="table", show_default=True)
def command(
    pe: str,
    task: str,
    protocol: str,
    seeds: str | None,
    device: str,
    attention: str,
    root: str,
    engine: str | None,
    jobs: int | None,
    threads: int | None,
    address: str | None,
    slurm: tuple[str, ...],
    accumulate: int | None,
    stack: str,
    precision: str,
    compiled: bool,
    sets: tuple[str, ...],
    tunes: tuple[str, ...],
    tune_seeds: str | None,
    dry_run: bool,
    fresh: bool,
    form: str,
) -> None:
    """Train identical decoders that differ in the encoding alone, and test them on longer inputs.

    The same command again continues what was interrupted and shows what is finished.
    """
    from harness.cli.validate import check_builds, writable
    from harness.engine import Options, make
    from harness.settings.request import request

    sets += (f"train.precision={precision}",) * (precision != "float32")
    sets += ("train.compile=true",) * compiled
    asked = request(pe, task, protocol, seeds, sets)
    if stack == "on" and asked.protocol.train.compile:
        raise click.UsageError(
            "--stack on: what torch compiles trains run by run; leave --compile out, or --stack on"
        )
    sweep = _sweep(asked, tunes, tune_seeds)
    executor = make(engine, Options(jobs, threads, address, slurm, accumulate, stack))
    folder = writable(Path(root))
    device = executor.device(device)
    configs = asked.configs(device, attention)
    check_builds(configs)
    if dry_run:
        plain, swept = _worst(asked, sweep, configs)
        phases = {"sweep": swept, "comparison": plain} if swept else {"": plain}
        _print_cost(phases, executor, folder, threads, stack == "auto", form)
        return
    failed = False
    if sweep:
        configs, failed = _tune(asked, sweep, device, attention, folder, executor, fresh, form)
    records, failures = _run(configs, folder, executor, fresh and not sweep)
    _print(records, form)
    if form == "table":
        _write_leaderboard(folder)
    if failed or failures:
        sys.exit(1)


def _sweep(asked: Request, tunes: tuple[str, ...], seeds: str | None) -> Sweep | None:
    if not tunes:
        if seeds:
            raise click.UsageError("--tune-seeds needs --tune, for example --tune lr=1e-3,3e-3")
        return None
    from harness.settings.sweep import sweep

    return sweep(tunes, seeds or "100", asked.protocol, asked.seeds)


def _worst(
    asked: Request, sweep: Sweep | None, configs: list[RunConfig]
) -> tuple[list[RunConfig], list[RunConfig]]:
    """The comparison's runs, as costly as the sweep may choose them, and the sweep's runs."""
    from harness.settings import sweep as tune

    if sweep is None:
        return configs, []
    device, attention = configs[0].device, configs[0].attention
    return tune.costliest(sweep, configs), tune.configs(asked, sweep, device, attention)


def _tune(
    asked: Request,
    sweep: Sweep,
    device: str,
    attention: str,
    folder: Path,
    executor: Engine,
    fresh: bool,
    form: str,
) -> tuple[list[RunConfig], bool]:
    """Run the sweep, say what it chose; the comparison's runs, and whether any is missing.

    A cell that fails is a result, as long as another one is left to choose.
    """
    from harness.cli.tables import print_choices
    from harness.runs.folder import RunFolder
    from harness.settings import sweep as tune

    runs = tune.configs(asked, sweep, device, attention)
    records, _ = _run(runs, folder, executor, fresh)
    choices = tune.choose(sweep, runs, records)
    print_choices(choices, aside=form != "table")
    chosen = tune.tuned(choices, sweep, asked.configs(device, attention))
    if fresh:
        _forget([config for config, _ in chosen], folder)
    for config, tuning in chosen:
        RunFolder(folder, config).note_tuning(tuning)
    return [config for config, _ in chosen], any(choice.tuning is None for choice in choices)


def _run(
    configs: list[RunConfig], folder: Path, executor: Engine, fresh: bool
) -> tuple[list[dict[str, Any]], bool]:
    from harness.cli.progress import Progress
    from harness.runs.folder import finished

    if fresh:
        _forget(configs, folder)
    records: dict[int, dict[str, Any]] = {}
    for index, config in enumerate(configs):
        record = finished(folder / config.hash)
        if record is not None:
            records[index] = record
    waiting = [index for index in range(len(configs)) if index not in records]
    words = shlex.join(["pezoo", *_repeatable(sys.argv[1:])])
    with Progress([configs[i] for i in waiting], len(records)) as progress:

        def on_event(position: int, event: dict[str, Any]) -> None:
            progress.update(position, event)
            if "record" in event:
                records[waiting[position]] = event["record"]

        executor.run_all([configs[i] for i in waiting], folder, words, on_event)
        failed = progress.failed
    ordered = [records[i] for i in sorted(records)]
    return ordered, failed or any(r["status"] == "failed" for r in ordered)


def _forget(configs: list[RunConfig], folder: Path) -> None:
    from filelock import Timeout

    from harness.runs.folder import RunFolder

    for config in configs:
        run = RunFolder(folder, config)
        try:
            with run.lock():
                run.clear()
        except Timeout as error:
            raise click.UsageError(
                f"--fresh: another process is training {config.label} on {config.task}, seed "
                f"{config.seed}; end it first"
            ) from error


def _repeatable(arguments: list[str]) -> list[str]:
    """The command line that gives these results anywhere: without what belongs to one site."""
    kept = []
    words = iter(arguments)
    for word in words:
        if word in LOCAL_OPTIONS:
            next(words, None)
        elif word.partition("=")[0] not in LOCAL_OPTIONS:
            kept.append(word)
    return kept


def _print(records: list[dict[str, Any]], form: str) -> None:
    if form == "json":
        click.echo(json.dumps(records, indent=1))
        return
    from harness.cli.tables import print_tables

    print_tables(records, form)


def _print_cost(
    phases: dict[str, list[RunConfig]],
    executor: Engine,
    folder: Path,
    threads: int | None,
    choose: bool,
    form: str,
) -> None:
    from harness.cli.cost import print_forecast, progress
    from harness.dry_run import measured
    from harness.engine.local import threads_of
    from harness.forecast import Phase, forecast

    workers = max(executor.jobs(runs) for runs in phases.values())
    planned = {name: Phase(runs, executor.plan(runs, folder)) for name, runs in phases.items()}
    settled, found = measured(planned, threads or threads_of(workers), choose, progress)
    print_forecast(forecast(settled, found, workers), form)


def _write_leaderboard(folder: Path) -> None:
    from leaderboard.build import build
    from leaderboard.records import RECORDS

    site = folder / "leaderboard"
    try:
        report = build(folder, RECORDS, site, None)
    except OSError as error:
        raise OSError(f"cannot write the leaderboard {site}: {error.strerror}") from error
    click.echo(f"\nleaderboard: {site / 'index.html'} ({report.records} records)")
