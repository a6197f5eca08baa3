"""Kill runs at random moments, again and again, and check that nothing was lost.

    python benchmarks/soak.py --kills 200 --root /shared/folder/soak

First every run is trained without interruption. Then it is trained again in processes that are
killed (SIGKILL) at random moments, until one of them finishes. After each kill the newest
checkpoint must be whole and at least as new as the last one that the process reported as saved. In
the end the weights of both runs must be equal bit for bit, and so must their results. Run it once
on a file system that is to hold runs.
"""

from __future__ import annotations

import random
import signal
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import click
import torch

from experiment.config import RunConfig
from harness.engine.local import fork_server
from harness.runs.folder import RunFolder, finished
from harness.runs.run import execute
from harness.settings.protocol import load_protocol, resolve
from harness.training.trainer import Trainer, start
from leaderboard.record.schema import Record
from pezoo.spec import parse_list

SETTINGS = (
    *("model.width=16", "model.heads=2", "train.batch=8", "train.lengths=[1, 5]"),
    *("train.steps=30", "train.checkpoint_every=3", "train.warmup=5", "eval.every=10"),
    *("eval.lengths=[5, 8]", "eval.samples=4", "eval.min_samples=4", "eval.validation_samples=2"),
)
ENCODINGS = (
    "rope,learned,randomized,prism_2025(cursors=1,d_pe=8,hidden=8),"
    "prism_spectral(cursors=1,d_pe=8,hidden=8)"
)
MOST = 20  # kills of one run
_MACHINE = {"env", "provenance", "cost"}  # fields of a record that may differ


@dataclass
class Report:
    """Counts; the last four are faults and must stay 0."""

    kills: int = 0
    kills_while_saving: int = 0
    runs: int = 0
    seconds: float = 0.0
    lost_checkpoints: int = 0
    damaged_checkpoints: int = 0
    lost_records: int = 0
    other_results: int = 0

    @property
    def faults(self) -> int:
        return sum([*vars(self).values()][4:])


def soak(
    configs: Sequence[RunConfig],
    root: Path,
    kills: int,
    seed: int = 0,
    minutes: float = 60.0,
    tell: Callable[[Report], None] = lambda report: None,
) -> Report:
    """Kill until there are that many kills or minutes, then finish the run that was begun.

    A process lives for a time drawn uniformly from 0 to half of what a whole run takes. After MOST
    kills a run is left to finish. `tell` is called after each run.
    """
    report, began, draws = Report(), time.monotonic(), random.Random(seed)
    spans = {config.hash: _attempt(config, root / "whole").seconds for config in configs}
    for part in count():
        for config in configs:
            folder = root / f"part-{part}"
            for killed in count():
                enough = report.kills >= kills or time.monotonic() - began > 60 * minutes
                spare = enough or killed == MOST
                delay = None if spare else draws.uniform(0, spans[config.hash] / 2)
                if not _killed(config, folder, delay, report):
                    break
            report.runs += 1
            _check_result(config, root / "whole", folder, report)
            tell(report)
            if enough:
                report.seconds = round(time.monotonic() - began, 1)
                return report
    raise AssertionError


@dataclass
class _Attempt:
    """One process, and what it reported before its end."""

    ended: bool
    seconds: float
    saved: int = 0  # the last step
    saving: bool = False
    finished: bool = False


def _killed(config: RunConfig, root: Path, delay: float | None, report: Report) -> bool:
    """Train, and whether the process was killed; if so, check what it left."""
    attempt = _attempt(config, root, delay)
    if not attempt.ended:
        report.kills += 1
        report.kills_while_saving += attempt.saving
        _check_checkpoint(config, root, attempt.saved, report)
        report.lost_records += attempt.finished and finished(root / config.hash) is None
    return not attempt.ended


def _attempt(config: RunConfig, root: Path, delay: float | None = None) -> _Attempt:
    """Train in a process that is killed after `delay` seconds if it is still running then."""
    context = fork_server()
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_train, args=(config, root, theirs))
    process.start()
    theirs.close()
    ours.recv()
    began = time.monotonic()
    process.join(delay)
    if process.exitcode is None:
        process.kill()
        process.join()
    if process.exitcode not in (0, -signal.SIGKILL):
        raise RuntimeError(f"run {config.hash} ended with exit code {process.exitcode}")
    attempt = _Attempt(process.exitcode == 0, time.monotonic() - began)
    try:
        while True:
            what, step = ours.recv()
            attempt.saving = what == "saving"
            attempt.saved = step if what == "saved" else attempt.saved
            attempt.finished = what == "finished"
    except (EOFError, OSError):
        ours.close()
        return attempt


def _train(config: RunConfig, root: Path, pipe: Connection) -> None:
    """In the process to be killed: train, and report what is saved."""
    torch.set_num_threads(1)
    save = RunFolder.save

    def told(folder: RunFolder, trainer: Trainer, curve: dict[str, Any]) -> None:
        own = folder.config == config  # not that of the run to start from
        pipe.send(("saving", trainer.step * own))
        save(folder, trainer, curve)
        pipe.send(("saved", trainer.step * own))

    RunFolder.save = told  # type: ignore[method-assign, assignment]
    pipe.send(("started", 0))
    for one in (config.first, config):
        execute(one, root, "soak", lambda event: None)
    pipe.send(("finished", config.train.steps))


def _check_checkpoint(config: RunConfig, root: Path, saved: int, report: Report) -> None:
    trainer = start(config)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        RunFolder(root, config).restore(trainer)
    report.damaged_checkpoints += len(caught)
    report.lost_checkpoints += trainer.step < saved


def _check_result(config: RunConfig, whole: Path, cut: Path, report: Report) -> None:
    one, two = finished(whole / config.hash), finished(cut / config.hash)
    report.lost_records += two is None
    report.other_results += not same(one, two) or weights(whole, config) != weights(cut, config)


def same(one: Record | None, two: Record | None) -> bool:
    """Return True for equal results, apart from machine, command and time."""
    if one is None or two is None:
        return False
    left, right = (record.model_dump(exclude=_MACHINE) for record in (one, two))
    return left == right and one.cost.tokens == two.cost.tokens


def weights(root: Path, config: RunConfig) -> dict[str, bytes]:
    """The bytes of the files of the last and of the best model."""
    folder = root / config.hash
    last = max(folder.glob("ckpt-*.safetensors"))
    return {path.name: path.read_bytes() for path in (last, *folder.glob("best-*"))}


@click.command()
@click.option("--kills", default=200, show_default=True)
@click.option("--minutes", default=60.0, show_default=True, help="No more kills after that time.")
@click.option("--root", type=click.Path(path_type=Path), required=True, help="An empty folder.")
@click.option("--pe", default=ENCODINGS, help="Encodings, five kinds by default.")
@click.option("--seed", default=0, show_default=True, help="Of the moments of the kills.")
def main(kills: int, minutes: float, root: Path, pe: str, seed: int) -> None:
    """Kill runs at random moments and check that nothing was lost; exit code 1 if it was."""
    torch.set_num_threads(1)
    protocol = load_protocol("quick", SETTINGS)
    configs = [resolve(protocol, "copy", encoding, 0, "cpu", "auto") for encoding in parse_list(pe)]
    report = soak(configs, root, kills, seed, minutes, _tell)
    for name, value in asdict(report).items():
        click.echo(f"{name.replace('_', ' ')}: {value}")
    sys.exit(1 if report.faults else 0)


def _tell(report: Report) -> None:
    click.echo(f"{report.kills} kills, {report.runs} runs, {report.faults} faults", err=True)


if __name__ == "__main__":
    main()
