"""What becomes of runs, in words that travel from a worker to its sweep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.settings.protocol import RunConfig

if TYPE_CHECKING:
    from harness.training.trainer import Trainer

Tell = Callable[[int, dict[str, Any]], None]  # the place of a run among those of a job, an event


def outcomes(
    configs: Sequence[RunConfig],
    root: Path,
    command: str,
    tell: Tell,
    stop: Callable[[], bool],
    measure: bool,
) -> None:
    """Execute the runs of one job: one alone, several as a stack.

    With `measure`, runs that no checkpoint says were begun are stacked only where that is faster on
    this machine; otherwise each ends with {"apart": why}. Other last events as of `outcome`.
    """
    if len(configs) == 1:
        tell(0, outcome(*configs, root, command, partial(tell, 0), stop))
        return
    from harness.runs.execute_stack import execute_together
    from harness.training.stack_plan import begun
    from harness.training.stack_speed import advice

    if measure and not any(begun(root / config.hash) for config in configs):
        faster, words = advice(configs)
        if not faster:
            for place in range(len(configs)):
                tell(place, {"apart": words})
            return
        tell(0, {"note": words})
    execute_together(configs, root, command, tell, stop)


def outcome(
    config: RunConfig,
    root: Path,
    command: str,
    report: Callable[[dict[str, Any]], None],
    stop: Callable[[], bool],
    begin: Callable[[RunConfig], Trainer] | None = None,
) -> dict[str, Any]:
    """Execute a run, with a trainer that `begin` makes; its last event.

    {"record": ...}; {"busy": text} where another process has the run, or `stop` ended it;
    {"error": text}, with "halt" where other runs would end the same way.
    """
    from harness.runs.execute import execute
    from harness.training.trainer import start

    try:
        return {"record": execute(config, root, command, report, stop, begin or start)}
    except Exception as error:
        return ended(error)


def ended(error: Exception) -> dict[str, Any]:
    """The last event of a run that an error ended without a record."""
    from filelock import Timeout

    from harness.runs.execute import Stopped
    from harness.runs.files import WriteError

    if isinstance(error, Timeout):
        return {"busy": "another process is training it"}
    if isinstance(error, Stopped):
        return {"busy": f"stopped at {error}, checkpoint saved"}
    if isinstance(error, OSError):  # a run's own errors are in its record
        words = error.strerror if isinstance(error, WriteError) else None
        return {"error": words or str(error), "halt": True}
    return {"error": f"{type(error).__name__}: {error}"}
