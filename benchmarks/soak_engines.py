"""Kill `pezoo bench` at random moments under every engine, and check that nothing was lost.

    python benchmarks/soak_engines.py --engine local --kills 50 --root FOLDER

Engines: local, ddp (two processes of torchrun), ray (a cluster that the command starts). Three
seeds are first trained without interruption, then in commands that are killed (SIGKILL, in turn the
command alone and all of its processes) within two seconds after they saved something, each followed
by the same command. After a kill every run's newest checkpoint must be whole and not older than
before. Where all three have finished, records and weights must be those of the whole runs, bit for
bit. Then the next round begins.
"""

from __future__ import annotations

import math
import os
import random
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path

import click
import torch
from soak import SETTINGS, same, weights

from experiment.config import RunConfig
from harness.runs.folder import RunFolder, finished
from harness.settings.protocol import load_protocol, resolve
from harness.training.trainer import start
from pezoo.spec import parse

LONG = (*SETTINGS, "train.steps=150", "train.checkpoint_every=10", "eval.every=50")
BENCH = ["-m", "harness", "bench"]
ENGINES = {
    "local": BENCH,
    "ddp": ["-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone", *BENCH],
    "ray": [*BENCH, "--engine", "ray"],
}


@dataclass
class Report:
    """Counts; the last three are faults and must stay 0."""

    kills: int = 0
    commands: int = 0
    rounds: int = 0
    seconds: float = 0.0
    bit_for_bit: int = 0  # runs
    damaged_or_older_checkpoints: int = 0
    lost_records: int = 0
    other_results: int = 0

    @property
    def faults(self) -> int:
        return self.damaged_or_older_checkpoints + self.lost_records + self.other_results


def soak(engine: str, root: Path, kills: int, seed: int = 0, minutes: float = math.inf) -> Report:
    """Kill until there are that many kills or minutes, then finish the round that was begun."""
    report, draws, began = Report(), random.Random(seed), time.monotonic()

    def enough() -> bool:
        return report.kills >= kills or time.monotonic() - began > 60 * minutes

    protocol = load_protocol("quick", LONG)
    configs = [resolve(protocol, "copy", parse("rope"), s, "cpu", "auto") for s in range(3)]
    whole = root / "whole"
    if code := command(engine, whole).wait():
        raise RuntimeError(f"without interruption the command ended with exit code {code}")
    for part in count():
        cut, steps = root / f"part-{part}", [0] * len(configs)
        while any(finished(cut / config.hash) is None for config in configs):
            process, saved = command(engine, cut), _saved(cut)
            report.commands += 1
            while not enough() and process.poll() is None and not _saved(cut) - saved:
                time.sleep(0.01)
            if not enough() and process.poll() is None:
                time.sleep(draws.uniform(0, 2))
                alone = report.kills % 2 == 0
                process.kill() if alone else os.killpg(process.pid, signal.SIGKILL)
                report.kills += 1
                click.echo(f"{engine}: {report.kills} kills, {report.faults} faults", err=True)
            process.wait()
            now = [_step(config, cut, report) for config in configs]
            report.damaged_or_older_checkpoints += sum(map(int.__lt__, now, steps))
            steps = now
        for config in configs:
            _compare(config, whole, cut, report)
        report.rounds += 1
        report.seconds = round(time.monotonic() - began, 1)
        if enough():
            return report
    raise AssertionError


def command(engine: str, root: Path) -> subprocess.Popen[bytes]:
    """`pezoo bench` of three seeds, in a process group of its own."""
    words = [sys.executable, *ENGINES[engine], "--pe=rope", "--task=copy", "--seeds=0-2"]
    words += ["--device=cpu", "--threads=1", "--format=csv", f"--runs={root}"]
    words += [f"--set={setting}" for setting in LONG]
    quiet = subprocess.DEVNULL
    return subprocess.Popen(words, stdout=quiet, stderr=quiet, start_new_session=True)


def _saved(root: Path) -> set[Path]:
    return set(root.glob("*/ckpt-*.json"))


def _step(config: RunConfig, root: Path, report: Report) -> int:
    """The step of the newest checkpoint, which must be whole."""
    trainer = start(config)
    for _ in range(3):  # a process that outlives the command may replace it just now
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            RunFolder(root, config).restore(trainer)
        if not caught:
            return trainer.step
        time.sleep(1)
    report.damaged_or_older_checkpoints += 1
    return trainer.step


def _compare(config: RunConfig, whole: Path, cut: Path, report: Report) -> None:
    one, two = finished(whole / config.hash), finished(cut / config.hash)
    report.lost_records += two is None
    if same(one, two) and weights(whole, config) == weights(cut, config):
        report.bit_for_bit += 1
    else:
        report.other_results += 1


@click.command()
@click.option("--engine", type=click.Choice(sorted(ENGINES)), multiple=True, default=["local"])
@click.option("--kills", default=50, show_default=True, help="Of each engine.")
@click.option("--minutes", default=math.inf, help="Of each engine; no more kills after them.")
@click.option("--root", type=click.Path(path_type=Path), required=True, help="An empty folder.")
@click.option("--seed", default=0, show_default=True, help="Of the moments of the kills.")
def main(engine: Sequence[str], kills: int, minutes: float, root: Path, seed: int) -> None:
    """Kill commands at random moments and check that nothing was lost; exit code 1 if it was."""
    torch.set_num_threads(1)
    faults = 0
    for name in engine:
        report = soak(name, root / name, kills, seed, minutes)
        faults += report.faults
        words = (f"{key.replace('_', ' ')} {value}" for key, value in asdict(report).items())
        click.echo(f"{name}: {', '.join(words)}")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
