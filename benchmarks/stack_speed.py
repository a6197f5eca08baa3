"""Whether seeds train faster as one stack: `python benchmarks/stack_speed.py`.

Prints, per encoding and settings, the CPU seconds of a step of each run alone over those of the
same steps taken as one (docs/findings/harness-speed.md).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

import torch

from experiment.config import RunConfig
from harness.perf.timing import interleave, ratio
from harness.runs import heap
from harness.settings.protocol import load_protocol, resolve
from harness.training.stack import Stack
from harness.training.trainer import Trainer, start
from pezoo.spec import parse

TINY = ("model.width=16", "model.heads=2", "train.batch=6", "train.lengths=[1, 5]")
EQUAL = ("train.lengths=[10, 10]",)
SMALL = "prism(cursors=1,d_pe=8,hidden=6)"
CASES = (
    *(("rope", ()), ("prism", ()), ("rope", EQUAL), ("prism", EQUAL)),
    *(("rope", TINY), (SMALL, TINY)),
)


def speedup(configs: Sequence[RunConfig], rounds: int = 6) -> float:
    """CPU seconds of a step of each run alone, over those of the same steps taken as one.

    New trainers take steps spread over the training, in turns.
    Errors: what making or stacking them raises.
    """
    heap.keep()
    alone, stacked = ([start(config) for config in configs] for _ in range(2))
    stack = Stack(stacked)
    last = configs[0].train.steps - 1  # has the longest lengths, and warms up
    steps = [last, *(round(last * (i + 1) / (rounds + 1)) for i in range(rounds))]
    left = {"alone": iter(steps), "stacked": iter(steps)}

    def turn(name: str, trainers: list[Trainer]) -> dict[str, float]:
        step = next(left[name])
        for trainer in trainers:
            trainer.step = step
        call = stack.advance if name == "stacked" else lambda: [t.advance() for t in trainers]
        began = time.process_time()
        call()
        return {"step": time.process_time() - began}

    turns = {"alone": partial(turn, "alone", alone), "stacked": partial(turn, "stacked", stacked)}
    seconds = interleave(turns, rounds, warmup=1)
    return ratio(seconds["alone"]["step"], seconds["stacked"]["step"])


def main() -> None:
    torch.set_num_threads(1)
    for pe, settings in CASES:
        protocol = load_protocol("quick", ("train.curriculum=[]", *settings) if settings else ())
        for members in (3, 5):
            seeds = range(members)
            runs = [resolve(protocol, "copy", parse(pe), seed, "cpu", "auto") for seed in seeds]
            print(pe, *settings, members, round(speedup(runs), 2))


if __name__ == "__main__":
    main()
