"""Whether runs train faster as one stack on this machine, by measurement."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from harness.perf.timing import clock, interleave, ratio
from harness.runs import heap
from harness.settings.config import RunConfig
from harness.training.stack import Stack
from harness.training.trainer import Trainer, start

ROUNDS = 4
ENOUGH = 1.1  # a stack must be faster by this factor: it changes the last bits of each run


def faster_stacked(configs: Sequence[RunConfig]) -> tuple[bool, str]:
    """Whether to stack these runs, and why, as a message.

    Two are measured first: many large models need much memory and gain nothing.
    """
    members = min(2, len(configs))
    try:
        gain = speedup(configs[:members])
        if gain >= 1 and len(configs) > members:
            members = len(configs)
            gain = speedup(configs)
    except Exception as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        return False, f"seeds train apart: they cannot be stacked ({reason})"
    faster = gain >= ENOUGH and members == len(configs)
    how = "as one stack" if faster else "unstack"
    return (
        faster,
        f"{len(configs)} runs train {how}: a stack of {members} is {gain:.2f} times as fast",
    )


def speedup(configs: Sequence[RunConfig], rounds: int = ROUNDS) -> float:
    """Seconds of a step of each run alone, over those of the same steps taken as one.

    New trainers take steps spread over the training, in turns.
    Errors: what making or stacking them raises.
    """
    heap.keep()
    alone, stacked = ([start(config) for config in configs] for _ in range(2))
    stack, device = Stack(stacked), configs[0].device
    last = configs[0].train.steps - 1  # has the longest lengths, and warms up
    steps = [last, *(round(last * (i + 1) / (rounds + 1)) for i in range(rounds))]
    left = {"alone": iter(steps), "stacked": iter(steps)}

    def turn(name: str, trainers: list[Trainer]) -> dict[str, float]:
        step = next(left[name])
        for trainer in trainers:
            trainer.step = step
        call = stack.advance if name == "stacked" else lambda: [t.advance() for t in trainers]
        return {"step": clock(call, device)[0]}

    turns = {"alone": partial(turn, "alone", alone), "stacked": partial(turn, "stacked", stacked)}
    seconds = interleave(turns, rounds, warmup=1)
    return ratio(seconds["alone"]["step"], seconds["stacked"]["step"])
