"""Whether runs train faster as one stack here: measured, not guessed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from harness.perf.timing import clock, interleave, ratio
from harness.runs import heap
from harness.settings.config import RunConfig
from harness.training.stack import Stack
from harness.training.trainer import Trainer, start

ROUNDS = 4
ENOUGH = 1.1  # as much faster has to be what gives up, in the last bits, being the run alone


def advice(configs: Sequence[RunConfig]) -> tuple[bool, str]:
    """Whether to stack these runs, and why, in words for a user.

    All are measured only where two of them are faster as a stack: many large models need much
    memory, and gain nothing.
    """
    members = min(2, len(configs))
    try:
        ratio = gain(configs[:members])
        if ratio >= 1 and len(configs) > members:
            members = len(configs)
            ratio = gain(configs)
    except Exception as error:
        return False, f"seeds train apart: they cannot be stacked ({_short(error)})"
    faster = ratio >= ENOUGH and members == len(configs)
    how = "as one stack" if faster else "apart"
    return (
        faster,
        f"{len(configs)} runs train {how}: a stack of {members} is {ratio:.2f} times as fast",
    )


def stackable(configs: Sequence[RunConfig]) -> tuple[bool, str]:
    """Whether these runs can be stacked at all, and what bench does if not."""
    try:
        Stack([start(config) for config in configs]).advance()
    except Exception as error:
        return False, f"cannot train as one stack ({_short(error)})"
    return True, f"{len(configs)} runs train as one stack"


def _short(error: Exception) -> str:
    """What it is and what it says, on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def gain(configs: Sequence[RunConfig], rounds: int = ROUNDS) -> float:
    """Seconds of a step of each run alone, over those of the same steps taken as one.

    Some steps of all parts of the training are taken, in turns, with trainers made for that.
    Errors: what making or stacking them raises.
    """
    heap.keep()
    alone, stacked = ([start(config) for config in configs] for _ in range(2))
    stack, device = Stack(stacked), configs[0].device
    steps = {name: iter(_steps(configs[0], rounds)) for name in ("alone", "stacked")}

    def turn(name: str, trainers: list[Trainer]) -> dict[str, float]:
        step = next(steps[name])
        for trainer in trainers:
            trainer.step = step
        call = stack.advance if name == "stacked" else lambda: [t.advance() for t in trainers]
        return {"step": clock(call, device)[0]}

    turns = {"alone": partial(turn, "alone", alone), "stacked": partial(turn, "stacked", stacked)}
    seconds = interleave(turns, rounds, warmup=1)
    return ratio(seconds["alone"]["step"], seconds["stacked"]["step"])


def _steps(config: RunConfig, rounds: int) -> list[int]:
    """The last step, whose lengths are the longest, to warm up; then some spread over training."""
    last = config.train.steps - 1
    return [last, *(round(last * (i + 1) / (rounds + 1)) for i in range(rounds))]
