"""`pezoo show RUN`: print one run, and write a page of pictures of what it has learned."""

from pathlib import Path
from typing import Any

import click
from tabulate import tabulate

from experiment.config import RunConfig
from harness.cli import options
from harness.runs.files import write
from harness.runs.folder import RunFolder, failed, finished
from harness.show.examples import lengths, read
from harness.show.page import FinishedRun, files, inspect, page
from harness.training.trainer import Trainer, start
from leaderboard.escape import hidden
from leaderboard.record.schema import Record
from pezoo.spec import unknown


@click.command()
@click.argument("run")
@options.runs
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File of the page.  [default: show.html in the run's folder]",
)
@click.option("--prompt", "prompts", multiple=True, help="A prompt to show; repeatable.")
@click.option(
    "--svg",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for every picture as a file of its own.",
)
@click.option("--mode", help="Mode of the encoding.")
@click.option(
    "--length",
    type=click.IntRange(min=1),
    help="Length of the longer example.  [default: twice the longest in training]",
)
def command(
    run: str,
    runs: str,
    out: Path | None,
    prompts: tuple[str, ...],
    svg: Path | None,
    mode: str | None,
    length: int | None,
) -> None:
    """Print a run's scores, cost and settings, and write a page of pictures of it.

    RUN is the start of its hash. The page needs no other file and no network.

    pezoo show 3f2a --prompt 8349216=
    """
    record = find(run, runs)
    if out is not None and not out.parent.is_dir():
        raise click.UsageError(f"--out: there is no folder {out.parent}")
    if svg is not None:
        svg.mkdir(parents=True, exist_ok=True)
    if record.status == "failed":
        _print(record)
        return
    config = config_of(record)
    trainer = started(config)
    modes = trainer.model.encoding.modes
    if mode is not None and mode not in modes:
        raise click.UsageError(unknown("mode", mode, modes))
    given = [read(trainer.task, text) for text in prompts]
    lengths(trainer.task, config, length)
    _print(record)
    if not restore(trainer, config, runs):
        click.echo("no page: the run's checkpoint is gone", err=True)
        return
    shown = FinishedRun(record.data(), config, trainer.task, trainer.model, started(config).model)
    inspection = inspect(shown, given, mode, length)
    out = out or Path(runs) / record.run / "show.html"
    write(out, page(shown, inspection, mode).encode())
    click.echo(f"\npage {out}")
    if svg is not None:
        for name, content in files(inspection).items():
            write(svg / name, content.encode())


def find(run: str, runs: str) -> Record:
    """Read the record of the run whose hash starts with `run`. Errors: UsageError."""
    configs = Path(runs).glob(f"{run}*/config.json") if run.isalnum() else []
    folders = sorted(path.parent for path in configs)
    if len(folders) != 1:
        found = ", ".join(p.name for p in folders[:5]) or "none"
        raise click.UsageError(f"expected one run starting with {run!r} in {runs}, found {found}")
    record = finished(folders[0]) or failed(folders[0])
    if record is None:
        done = (folders[0] / "result.json").exists() and (folders[0] / "DONE").exists()
        why = "has a damaged result, or one of other settings or code"
        raise click.UsageError(f"run {folders[0].name} {why if done else 'is not finished'}")
    return record


def config_of(record: Record) -> RunConfig:
    """Return the settings of a record. Errors: UsageError if this version cannot read them."""
    if record.config.hash == record.run:
        return record.config
    raise click.UsageError(f"run {record.run} has settings of another version of pezoo")


def started(config: RunConfig) -> Trainer:
    """Build the run's model as before training, on the CPU."""
    return start(config.replace(device="cpu", attention="eager"))


def restore(trainer: Trainer, config: RunConfig, runs: str) -> bool:
    """Load the newest checkpoint, warning if it is not the last; return False if there is none.

    Errors: UsageError if it does not fit the model.
    """
    try:
        if RunFolder(Path(runs), config).restore(trainer) is None:
            return False
    except RuntimeError as error:
        raise click.UsageError(
            f"the weights of run {config.hash} belong to another version of its encoding"
        ) from error
    if trainer.step < trainer.last:
        step = f"step {trainer.step} of {trainer.last}"
        click.echo(f"warning: showing {step}; later checkpoints are gone or damaged", err=True)
    return True


def _print(record: Record) -> None:
    say(f"{record.encoding} on {record.task}, seed {record.seed}, {record.protocol}")
    if record.status == "failed":
        say(f"failed: {record.reason}")
        return
    data = record.data()
    tables: dict[str, list[str]] = {}  # the names of the checkpoints that have these scores
    for name, scores in data["scores"].items():
        tables.setdefault(_scores(scores), []).append(name)
    for table, names in tables.items():
        say(f"\n{' and '.join(names)} checkpoint\n{table}")
    hashes = {name: data.get(name) for name in ("backbone_hash", "data_hash")}
    parts = {"cost": data["cost"], "environment": data["env"] | hashes}
    for title, part in (parts | {"start": data["start"]} if "start" in data else parts).items():
        known = {key: value for key, value in part.items() if value not in (None, "", [], {})}
        rows = [(key, _words(value)) for key, value in known.items()]
        say(f"\n{title}\n{tabulate(rows, tablefmt='plain', disable_numparse=True)}")


def _scores(scores: list[dict[str, Any]]) -> str:
    """Tabulate scores by length, without columns that have no value."""
    known = ("length", "exact", "token", "bits", "method", "status", "note")
    plain = {"method": {"teacher-forced"}, "status": {"ok"}}
    columns = [key for key in known if {s[key] for s in scores} - plain.get(key, set()) - {None}]
    return tabulate([[s[key] for key in columns] for s in scores], columns, floatfmt=".3f")


def say(text: str, err: bool = False) -> None:
    """Print without control characters: a record may be a stranger's."""
    click.echo("".join(" " if hidden(c) and c != "\n" else c for c in text), err=err)


def _words(value: object) -> object:
    """Format a value without Python's marks: {"eval": ["sdpa"]} as `eval: sdpa`."""
    if isinstance(value, dict):
        return "; ".join(f"{key}: {_words(part)}" for key, part in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else value
