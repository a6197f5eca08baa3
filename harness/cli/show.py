"""`pezoo show RUN`: one run in words, and a page of pictures of what it has learned."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leaderboard.escape import hidden

if TYPE_CHECKING:
    from torch import Tensor

    from experiment.config import RunConfig
    from harness.show.page import Run
    from harness.training.trainer import Trainer


@click.command()
@click.argument("run")
@click.option("--runs", default="runs", show_default=True, help="Folder of the runs.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File of the page.  [default: show.html in the run's folder]",
)
@click.option("--prompt", "prompts", multiple=True, help="Show it on this prompt; repeatable.")
@click.option(
    "--svg",
    type=click.Path(path_type=Path, file_okay=False),
    help="Also write every picture as a file of its own into this folder.",
)
@click.option("--mode", help="Run it in this mode of its encoding.")
@click.option(
    "--length",
    type=click.IntRange(min=1),
    help="The length beyond training that is shown.  [default: twice the longest in training]",
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
    """Print one run's scores, cost and settings, and write a page of pictures of it.

    RUN is its hash, or the start of it. The page needs no other file and no network.

    pezoo show 3f2a --prompt 8349216=
    """
    record = find(run, runs)
    _prepare(out, svg)
    check_first = bool(prompts or mode or length)  # a wrong option is printed without the scores
    if record["status"] == "failed" or not check_first:
        _print(record)
    if record["status"] == "failed":
        return
    loaded, given = _load(record, runs, prompts, mode, length)
    if check_first:
        _print(record)
    if loaded is None:
        click.echo("no page: the run's checkpoint is gone", err=True)
        return
    from harness.runs.files import write
    from harness.show.page import files, inspect, page

    out = out or Path(runs) / record["run"] / "show.html"
    inspection = inspect(loaded, given, mode, length)
    write(out, page(loaded, inspection, mode).encode())
    click.echo(f"\npage {out}")
    if svg is not None:
        for name, content in files(inspection).items():
            write(svg / name, content.encode())


def _prepare(out: Path | None, svg: Path | None) -> None:
    """Make the folder of single pictures. Errors: UsageError where a folder is not or cannot be."""
    if out is not None and not out.parent.is_dir():
        raise click.UsageError(f"--out: there is no folder {out.parent}")
    try:
        if svg is not None:
            svg.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.UsageError(f"--svg {svg}: cannot make this folder: {error.strerror}") from error


def find(run: str, runs: str) -> dict[str, Any]:
    """The record of the run whose hash starts with `run`. Errors: UsageError."""
    from harness.runs.folder import failed, finished

    configs = Path(runs).glob(f"{run}*/config.json") if run.isalnum() else []
    folders = sorted(path.parent for path in configs)
    if len(folders) != 1:
        found = ", ".join(p.name for p in folders[:5]) or "none"
        raise click.UsageError(f"expected one run starting with {run!r} in {runs}, found {found}")
    record = finished(folders[0]) or failed(folders[0])
    if record is None:
        there = (folders[0] / "result.json").exists() and (folders[0] / "DONE").exists()
        why = "has a result that is damaged, or of other settings or code" if there else ""
        raise click.UsageError(f"run {folders[0].name} {why or 'is not finished'}")
    return record


def config_of(record: dict[str, Any]) -> RunConfig:
    """The settings of a record. Errors: UsageError where they are those of other code."""
    from experiment.config import RunConfig

    with suppress(ValueError):
        config = RunConfig.model_validate(record["config"])
        if config.hash == record["run"]:
            return config
    raise click.UsageError(f"run {record['run']} was made with settings that are no longer read")


def restore(trainer: Trainer, config: RunConfig, runs: str) -> bool:
    """Load the newest checkpoint; False where there is none. Says so if it is not the last.

    Errors: UsageError where it does not fit the model.
    """
    from harness.runs.folder import RunFolder

    try:
        if RunFolder(Path(runs), config).restore(trainer) is None:
            return False
    except RuntimeError as error:
        raise click.UsageError(
            f"the weights of run {config.hash} are of another version of its encoding"
        ) from error
    if trainer.step < config.train.steps:
        steps = f"step {trainer.step} of {config.train.steps}"
        click.echo(f"warning: this is {steps}: later checkpoints are gone or damaged", err=True)
    return True


def _load(
    record: dict[str, Any],
    runs: str,
    texts: tuple[str, ...],
    mode: str | None,
    length: int | None = None,
) -> tuple[Run | None, list[Tensor]]:
    """The run with its models, None without a checkpoint, and the prompts.

    Errors: UsageError; TaskError for a prompt or a length that the task does not have.
    """
    from harness.show.examples import lengths, read
    from harness.show.page import Run
    from harness.training.trainer import start
    from pezoo.spec import unknown

    config = config_of(record)
    on_cpu = config.replace(device="cpu", attention="eager")
    trainer, untrained = start(on_cpu), start(on_cpu).model
    modes = trainer.model.encoding.modes
    if mode is not None and mode not in modes:
        raise click.UsageError(unknown("mode", mode, modes))
    prompts = [read(trainer.task, text) for text in texts]
    lengths(trainer.task, config, length)
    if not restore(trainer, config, runs):
        return None, prompts
    return Run(record, config, trainer.task, trainer.model, untrained), prompts


def _print(record: dict[str, Any]) -> None:
    from tabulate import tabulate

    say(f"{record['encoding']} on {record['task']}, seed {record['seed']}, {record['protocol']}")
    if record["status"] == "failed":
        say(f"failed: {record['reason']}")
        return
    columns = ("length", "exact", "token", "method", "note")
    for name, scores in record["scores"].items():
        rows = [s if s["exact"] is not None else s | {"exact": s["status"]} for s in scores]
        table = [[row[column] for column in columns] for row in rows]
        say(f"\n{name} checkpoint\n{tabulate(table, columns, floatfmt='.3f')}")
    hashes = [(name, record.get(name)) for name in ("backbone_hash", "data_hash")]
    say("\n" + tabulate([pair for pair in hashes if pair[1]]))
    for part in ("cost", "env"):
        say(f"\n{part}\n{tabulate([(key, _words(value)) for key, value in record[part].items()])}")


def say(text: str, err: bool = False) -> None:
    """Print without what would steer a terminal: a record may be a stranger's."""
    click.echo("".join(" " if hidden(c) and c != "\n" else c for c in text), err=err)


def _words(value: object) -> object:
    """Without the marks of Python: {"eval": ["sdpa"]} is `eval: sdpa`."""
    if isinstance(value, dict):
        return "; ".join(f"{key}: {_words(part)}" for key, part in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else value
