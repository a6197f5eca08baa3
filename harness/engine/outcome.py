"""What becomes of one run, in words that travel from a worker to its sweep."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.config import RunConfig

if TYPE_CHECKING:
    from harness.train import Trainer


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
    from harness.execute import execute
    from harness.train import start

    try:
        return {"record": execute(config, root, command, report, stop, begin or start)}
    except Exception as error:
        return ended(error)


def ended(error: Exception) -> dict[str, Any]:
    """The last event of a run that an error ended without a record."""
    from filelock import Timeout

    from harness.execute import Stopped

    if isinstance(error, Timeout):
        return {"busy": "another process is training it"}
    if isinstance(error, Stopped):
        return {"busy": f"stopped at {error}, checkpoint saved"}
    if isinstance(error, OSError):  # a run's own errors are in its record
        return {"error": str(error), "halt": True}
    return {"error": f"{type(error).__name__}: {error}"}
