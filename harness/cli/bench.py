"""`pezoo bench`: train, evaluate, compare.

`settings.protocol` checks the options and lists the runs, the engine's workers call `execute` on
each, and the tables are made of their records.
"""

from __future__ import annotations

import sys
from dataclasses import fields
from math import prod
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, get_args

import click

from harness.cli import options
from pezoo.kernels import Attention

if TYPE_CHECKING:
    from experiment.config import RunConfig
    from harness.cli.train import Records
    from harness.engine import Engine
    from harness.settings.protocol import Request
    from harness.settings.sweep import Sweep

MOST_RUNS = 100_000


@click.command()
@click.option("--pe", required=True, help='Encodings, for example "prism,randomized:rope".')
@click.option("--task", required=True, help="Tasks, separated by commas.")
@options.protocol
@click.option("--seeds", help="For example 0-2 or 0,3,7; the protocol's by default.")
@options.device(default="auto")
@click.option(
    "--attention",
    default="auto",
    show_default=True,
    help=f"{', '.join(get_args(Attention))}.",
)
@options.runs
@click.option("--known", help="Folder of records, or of runs to start from, that count as done.")
@click.option("--engine", help="local, ray or submitit; ddp under torchrun.  [default: local]")
@click.option(
    "--jobs", type=click.IntRange(min=1), help="Runs at once.  [default: one per core, up to 2]"
)
@click.option("--threads", type=options.THREADS, help="CPU threads of each run.")
@click.option("--address", help="Ray: host:port of the cluster, or auto.  [default: a new one]")
@click.option("--slurm", multiple=True, help="Slurm: --slurm partition=gpu --slurm mem_gb=8.")
@click.option(
    "--accumulate",
    type=click.IntRange(min=1),
    help="torchrun: parts of a batch to compute in turn.",
)
@click.option(
    "--precision",
    type=click.Choice(("float32", "bf16")),
    default="float32",
    show_default=True,
    help="Precision of training.",
)
@options.settings
@click.option(
    "--tune",
    multiple=True,
    help="Sweep a training setting for every encoding: --tune lr=3e-4,1e-3,3e-3.",
)
@click.option("--tune-seeds", help="Seeds of the sweep.  [default: 100]")
@click.option("--dry-run", is_flag=True, help="Print the runs and an estimate of their cost.")
@click.option("--fresh", is_flag=True, help="Delete earlier results of these runs.")
@click.option("--wait", is_flag=True, help="Wait for runs of other processes.")
@click.option(
    "--keep-predictions",
    is_flag=True,
    help="Write every test prompt, target and output to predictions.jsonl.gz in the run's folder.",
)
@options.log
@options.form
@click.option(
    "--wide",
    is_flag=True,
    help="Every length and interval; exact match of encoders, tokens of text.",
)
def command(**typed: Any) -> None:
    """Train Transformers that differ only in the encoding, and test them on longer inputs.

    Run the same command again to continue after an interruption, or to print the results.
    """
    bench(SimpleNamespace(**typed))


def bench(asked: SimpleNamespace) -> None:
    """Check all, then train, evaluate, print; exit with 1 if a run failed or is missing."""
    from harness.cli.validate import check_builds, check_records, writable

    request, sweep = requested(asked)
    engine = _engine(asked)
    device = engine.device(asked.device)
    if not asked.runs.strip():
        raise click.UsageError("--runs expects a folder, got an empty name")
    folder = Path(asked.runs)
    _bounded(request, sweep)
    configs = request.configs(device, asked.attention)
    from harness.cli.train import known_records, parents, recorded_command, train, tune
    from harness.runs.folder import RunFolder
    from harness.settings.sweep import possible_configs, sweep_configs

    kinds = sweep_configs(sweep, configs) + possible_configs(sweep, configs) if sweep else configs
    known = known_records(Path(asked.known), kinds) if asked.known else {}
    waiting = configs if sweep or asked.fresh else _open(configs, folder, known)
    check_builds(waiting)  # finished runs were built before
    check_records(kinds if waiting else [], recorded_command(sys.argv[1:]), sweep)
    first = sweep_configs(sweep, configs) if sweep else configs
    anew = asked.fresh or bool(_open(first, folder, known))
    if anew:
        writable(folder)
    if asked.dry_run:
        _print_forecast(asked, waiting, sweep, engine)
        return
    for run in parents(waiting, folder) if asked.known else ():
        RunFolder(folder, run).adopt(Path(asked.known))
    from harness.cli.tables import print_choices, print_records

    if anew:
        _claim(folder, asked.format)
    missing = False
    if sweep:
        configs, choices = tune(
            sweep, configs, folder, engine, asked.fresh, asked.wait, known, request.protocol.start
        )
        print_choices(choices, aside=asked.format != "table")
        missing = any(choice.tuning is None for choice in choices)
        if not anew and _open(configs, folder, known):
            anew = True
            _claim(folder, asked.format)
    fresh = asked.fresh and not sweep
    records, failed = train(
        configs, folder, engine, fresh, asked.wait, known, start=request.protocol.start
    )
    print_records(records, asked.format, configs, asked.wide)
    kept: list[Path] = []
    if asked.keep_predictions:
        from harness.cli.keep import keep_predictions

        kept = keep_predictions(configs, records, folder)
    if asked.format == "table":
        from harness.cli.pages import write_pages

        write_pages(folder, records, asked.known, anew=anew or bool(kept))
    if missing or failed:
        sys.exit(1)


def _claim(folder: Path, form: str) -> None:
    """Check that runs can be written, and pages where the comparison has some."""
    from harness.cli.validate import writable

    writable(folder)
    if form == "table":
        from harness.cli.pages import claim_site

        claim_site(folder)


def requested(asked: SimpleNamespace) -> tuple[Request, Sweep | None]:
    """Return the comparison, and the sweep before it. Errors: ValueError names the option."""
    from experiment.config import ConfigError
    from harness.settings.protocol import parse_request
    from harness.settings.sweep import parse_sweep

    if asked.fresh and asked.known:
        raise ConfigError("--fresh contradicts --known: leave one of them out")
    sets = asked.set
    sets += (f"train.precision={asked.precision}",) * (asked.precision != "float32")
    request = parse_request(asked.pe, asked.task, asked.protocol, asked.seeds, sets)
    if asked.tune:
        seeds = asked.tune_seeds or "100"
        return request, parse_sweep(asked.tune, seeds, request.protocol, request.seeds)
    if asked.tune_seeds:
        raise ConfigError("--tune-seeds needs --tune, for example --tune lr=1e-3,3e-3")
    return request, None


def _bounded(request: Request, sweep: Sweep | None) -> None:
    """Refuse more runs than can be listed. Errors: UsageError."""
    seeds = len(request.seeds) + (len(sweep.seeds) if sweep else 0)
    cells = prod(map(len, sweep.grid.values())) if sweep else 1
    runs = len(request.encodings) * len(request.tasks) * seeds * cells
    if runs > MOST_RUNS:
        raise click.UsageError(f"these are {runs:,} runs; the most at once are {MOST_RUNS:,}")


def _open(configs: list[RunConfig], folder: Path, known: Records) -> list[RunConfig]:
    """Return the runs that are not finished."""
    from harness.runs.folder import RunFolder

    return [c for c in configs if c.hash not in known and RunFolder(folder, c).result() is None]


def _engine(asked: SimpleNamespace) -> Engine:
    from harness.engine import Options, make
    from harness.engine.local import threads_of

    threads_of(1)  # raises for an invalid OMP_NUM_THREADS
    if asked.log:
        from harness.runs.logs import check

        check(asked.log)
    own = {field.name: getattr(asked, field.name) for field in fields(Options)}
    return make(asked.engine, Options(**own))


def _print_forecast(
    asked: SimpleNamespace, configs: list[RunConfig], sweep: Sweep | None, engine: Engine
) -> None:
    from harness.cli.dry_run import forecast, measuring, render
    from harness.cli.train import parents
    from harness.engine.local import threads_of
    from harness.settings.protocol import check_device
    from harness.settings.sweep import costliest, sweep_configs

    if not configs:
        click.echo("nothing to do: every run is finished", err=asked.format != "table")
        if asked.format == "json":
            click.echo(render({"runs": 0, "lines": []}, "json"))
        return
    check_device(configs[0].device)  # an engine may have a device that this machine lacks
    phases = {"": configs}
    if sweep:
        phases = {"sweep": sweep_configs(sweep, configs), "comparison": costliest(sweep, configs)}
    if first := parents([run for runs in phases.values() for run in runs], Path(asked.runs)):
        phases = {"start": first} | phases
    workers = max(engine.jobs(runs) for runs in phases.values())
    measure = measuring(phases, asked.threads or threads_of(workers))
    click.echo(render(forecast(phases, workers, measure), asked.format))
