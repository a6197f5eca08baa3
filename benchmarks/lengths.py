"""CPU time and memory of a training step against length, at the same number of tokens a step.

    python benchmarks/lengths.py --pe rope,prism,prism_spectral --longest 2048

The model is that of `quick` and the task copy. The exponent of a column is log2 of its growth from
half the length: with the tokens of a step fixed, 0 where cost is linear in length, 1 if quadratic.
"""

from __future__ import annotations

import math
import statistics
import time

import click
import torch

from harness.perf.memory import peak_bytes
from harness.runs.cost import keep_heap
from harness.settings.protocol import load_protocol, resolve
from harness.training.trainer import Trainer, start
from pezoo.spec import parse_list

TOKENS = 2048  # of a step


def trainers(pe: str, length: int) -> list[Trainer]:
    """Return a trainer per encoding whose sequences have about `length` tokens."""
    half = length // 2
    sizes = f"train.batch={TOKENS // length}", f"train.lengths=[{half},{half}]"
    protocol = load_protocol("quick", ("train.curriculum=[]", *sizes))
    return [start(resolve(protocol, "copy", one, 0, "cpu", "auto")) for one in parse_list(pe)]


def seconds(trainer: Trainer) -> float:
    began = time.process_time()
    trainer.advance()
    return time.process_time() - began


@click.command()
@click.option("--pe", default="rope,prism,prism_spectral", show_default=True)
@click.option("--longest", type=click.IntRange(32, TOKENS), default=TOKENS, show_default=True)
@click.option("--rounds", type=click.IntRange(min=1), default=5, show_default=True)
def main(pe: str, longest: int, rounds: int) -> None:
    """Medians over rounds, of which each lets all encodings take a step."""
    torch.set_num_threads(1)
    keep_heap()
    before: dict[str, tuple[float, float]] = {}
    for length in (2**n for n in range(5, longest.bit_length())):
        found = trainers(pe, length)
        taken = [[seconds(trainer) for trainer in found] for _ in range(1 + rounds)]
        for trainer, times in zip(found, zip(*taken[1:], strict=True), strict=True):
            name, ms = trainer.config.encoding, statistics.median(times) * 1e3
            now = ms, peak_bytes(trainer.advance, "cpu") / 2**20
            growth = [math.log2(b / a) for a, b in zip(before.get(name, ()), now, strict=False)]
            shown = "".join(f"{x:8.2f}" for x in growth)
            click.echo(f"{length:5} {name:16}{now[0]:9.0f} ms{now[1]:9.1f} MiB{shown}")
            before[name] = now


if __name__ == "__main__":
    main()
