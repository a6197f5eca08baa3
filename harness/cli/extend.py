"""`pezoo extend`: which way to read longer texts suits a model of your own."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import click

from harness.cli import options

if TYPE_CHECKING:
    from harness.extend.measure import Say, Study
    from harness.extend.subject import Subject

PLAIN_SECONDS = 15


@click.command()
@click.argument("model")
@click.option("--to", default="8x", show_default=True, help="Longest text: 8x, or tokens.")
@click.option("--pe", help="Ways to read on, encodings; a list that suits the model by default.")
@click.option("--text", help="Folder of text files.  [default: Python's library]")
@click.option("--texts", type=click.IntRange(1, 1000), default=4, show_default=True)
@click.option("--last", type=click.IntRange(min=1), help="Scored tokens.  [default: 256 or L / 2]")
@click.option("--tune", type=click.IntRange(min=1), help="Tune each way for so many steps, too.")
@click.option("--lora", is_flag=True, help="Tune with LoRA (package peft).")
@options.device(default="auto")
@click.option(
    "--dtype",
    type=click.Choice(["float32", "bfloat16", "float16"]),
    help="Of weights.  [default: float32 on a CPU, else bfloat16]",
)
@options.runs
@options.form
def command(**typed: Any) -> None:
    """Read long texts with a trained model in several ways, and say which to take.

    MODEL is a folder of a causal model of transformers that rotates (Llama, Qwen, Mistral), a GGUF
    file, or the id or folder of a run of protocol text. docs/extend-a-model.md explains the table.

    pezoo extend ./my-model --to 4x --tune 100
    """
    asked = SimpleNamespace(**typed)
    if asked.lora and not asked.tune:
        raise click.UsageError("--lora tunes with LoRA: add --tune STEPS")
    from filelock import FileLock, Timeout

    study, settings = _study(asked)
    study.folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(study.folder / ".lock", timeout=0), _progress() as say:
            study.run(say)
    except Timeout as error:
        raise click.ClickException(f"another process measures {study.folder}") from error
    _show(study, settings, asked.format)


def _study(asked: SimpleNamespace) -> tuple[Study, dict[str, Any]]:
    """Return what to measure and the settings that it depends on. Errors: ValueError."""
    from harness.extend import ways
    from harness.extend.measure import Study, digest
    from harness.extend.texts import Texts
    from harness.extend.tune import Tuner, Tuning
    from harness.settings.protocol import check_device
    from harness.tasks.corpus import read_corpus

    asked.device = check_device(asked.device)
    asked.dtype = asked.dtype or ("float32" if asked.device == "cpu" else "bfloat16")
    given = None if asked.pe is None else ways.ways(asked.pe)
    _length(asked.to, 1)  # what is mistyped, before a model is loaded
    corpus = read_corpus("python", asked.text)
    subject = _subject(asked)
    longest = _length(asked.to, subject.trained)
    lengths = ways.lengths(subject.trained, longest)
    last = asked.last or min(256, lengths[0] // 2)
    if last >= lengths[0]:
        raise click.UsageError(f"--last {last}: expected fewer tokens than a text of {lengths[0]}")
    texts = Texts(subject, corpus, lengths, asked.texts, last)
    settings = {
        "model": subject.name, "checksum": subject.checksum(), "trained": subject.trained,
        "text": corpus.checksum, "texts": asked.texts, "last": last, "longest": longest,
        "dtype": asked.dtype, "device": asked.device,
    }  # fmt: skip
    name = f"extend-{digest({k: v for k, v in settings.items() if k != 'model'})}"
    chosen = given or ways.ways(ways.default(subject, longest))
    tuner = None
    if asked.tune:
        tuner = Tuner(subject, Tuning(asked.tune, longest, asked.lora), texts.training(longest))
    folder = Path(asked.runs) / name
    return Study(subject, texts, chosen, lengths, folder, tuner, asked.device), settings


def _length(text: str, trained: int) -> int:
    """Return the tokens of --to. Errors: UsageError."""
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)x|([0-9][0-9,_]{0,14})", text)
    length = 0
    if found:
        length = round(float(found[1]) * trained) if found[1] else int(re.sub("[,_]", "", found[2]))
    if length < trained:
        least = "as 4096" if trained == 1 else f"at least the {trained:,} of the model"
        raise click.UsageError(f"--to {text[:40]}: expected a multiple as 8x, or tokens, {least}")
    return length


def _subject(asked: SimpleNamespace) -> Subject:
    """Load the model. Errors: UsageError or ValueError."""
    from harness.cli.show import config_of, find, restore, started
    from harness.extend.subject import OWN, OfRun, OfTransformers

    path, run, runs = Path(asked.model), asked.model, asked.runs
    if (path / "result.json").exists():
        run, runs = path.resolve().name, str(path.resolve().parent)
    elif path.exists() or not (run.isalnum() and any(Path(runs).glob(f"{run}*/config.json"))):
        return OfTransformers(path, asked.device, asked.dtype)
    config = config_of(find(run, runs))
    if config.track != "text" or config.encoding != OWN:
        raise click.UsageError(
            f"run {config.hash} is {config.encoding} on {config.task}, track {config.track}: "
            "expected a run of rope by protocol text"
        )
    trainer = started(config)
    if not restore(trainer, config, runs):
        raise click.UsageError(f"run {config.hash} has no checkpoint left")
    trainer.model.to(asked.device)
    return OfRun(trainer, config.hash)


def _show(study: Study, settings: dict[str, Any], form: str) -> None:
    from harness.extend import report
    from harness.runs.files import write, write_json

    if study.tuner:
        settings = settings | {"tuning": asdict(study.tuner.settings)}
    write_json(study.folder / "extend.json", report.data(study, settings))
    write(study.folder / "extend.svg", report.svg(study).encode())
    write(study.folder / "extend.html", report.page(study, settings).encode())
    click.echo(report.text(study, settings, form))
    click.echo(f"page {study.folder / 'extend.html'}", err=True)


@contextmanager
def _progress() -> Iterator[Say]:
    """Show progress and the time left on stderr: a bar on a terminal, else a line every 15 s."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    words = TextColumn("{task.description}", markup=False)
    columns = BarColumn(), TextColumn("{task.percentage:.0f} %"), TimeRemainingColumn(), words
    live = {"transient": True, "disable": not console.is_terminal, "speed_estimate_period": 3600}
    with Progress(*columns, console=console, **live) as bar:
        task, began = bar.add_task("", total=1.0), time.monotonic()
        printed = began

        def say(what: str, done: float) -> None:
            nonlocal printed
            now = time.monotonic()
            bar.update(task, completed=done, description=what)
            if not console.is_terminal and now - printed > PLAIN_SECONDS:
                printed, left = now, (now - began) * (1 - done) / done
                click.echo(f"[{done:.0%}] {what}; about {_time(left)} left", err=True)

        yield say


def _time(seconds: float) -> str:
    """
    >>> _time(75), _time(7200)
    ('2 min', '2.0 h')
    """
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{-(-seconds // 60):.0f} min"
