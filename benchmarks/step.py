"""CPU time of a training step in two checkouts of this repository, in turns.

    git worktree add ../before c5488f8
    python benchmarks/step.py ../before . --pe rope,prism

Each checkout has a process of its own, on one thread; a ratio compares times of one round.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import click

STEPS = 8  # of a round
WORKER = """
import json, sys, time, torch
from harness.runs.cost import keep_heap
from harness.settings.protocol import load_protocol, resolve
from harness.training.trainer import start
from pezoo.spec import parse_list

torch.set_num_threads(1)
keep_heap()
steps, text, task, settings = json.loads(sys.argv[1])
protocol = load_protocol("quick", ("train.curriculum=[]", *settings))
trainers = [
    start(resolve(protocol, task, encoding, 0, "cpu", "auto")) for encoding in parse_list(text)
]
for number, _ in enumerate(sys.stdin):
    taken = {}
    for trainer in trainers:
        began = time.process_time()
        for i in range(steps):
            trainer.step = 500 + 100 * i + number
            trainer.advance()
        taken[trainer.config.encoding] = (time.process_time() - began) / steps * 1e3
    print(json.dumps(taken), flush=True)
"""


def measure(folders: tuple[str, str], what: list[object], rounds: int) -> dict[str, list[float]]:
    """Milliseconds of each encoding and round: [before, after, before, after, ...]."""
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, json.dumps(what)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder,
            env={**os.environ, "PYTHONPATH": str(Path(folder).resolve()), "OMP_NUM_THREADS": "1"},
        )
        for folder in folders
    ]  # fmt: skip
    found: dict[str, list[float]] = {}
    for number in range(2 + rounds):  # two to warm up
        for worker in workers:
            worker.stdin.write("\n")
            worker.stdin.flush()
            for name, taken in json.loads(worker.stdout.readline()).items():
                found.setdefault(name, []).extend([taken] if number > 1 else [])
    for worker in workers:
        worker.communicate()
    return found


@click.command()
@click.argument("before", type=click.Path(exists=True, file_okay=False))
@click.argument("after", type=click.Path(exists=True, file_okay=False))
@click.option("--pe", default="nope,rope,relative,prism,prism_spectral", show_default=True)
@click.option("--task", default="copy", show_default=True)
@click.option("--set", "settings", multiple=True, help="Change a setting: --set model.width=128.")
@click.option("--rounds", type=click.IntRange(min=1), default=20, show_default=True)
def main(
    before: str, after: str, pe: str, task: str, settings: tuple[str, ...], rounds: int
) -> None:
    """Medians in milliseconds, and the median over rounds of after / before."""
    for name, taken in measure((before, after), [STEPS, pe, task, settings], rounds).items():
        old, new = taken[::2], taken[1::2]
        ratio = statistics.median(b / a for a, b in zip(old, new, strict=True))
        medians = statistics.median(old), statistics.median(new)
        click.echo(f"{name:30} {medians[0]:8.2f} {medians[1]:8.2f}  {ratio:.3f}")


if __name__ == "__main__":
    main()
