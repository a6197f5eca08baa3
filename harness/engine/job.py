"""What a worker does with the runs of one job: train one alone, or several as a stack."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.engine.stack_plan import stack_size
from harness.runs.events import ReportOf, Stop
from harness.settings.config import RunConfig


def execute_job(
    configs: Sequence[RunConfig],
    root: Path,
    command: str,
    report: ReportOf,
    stop: Stop,
    measure: bool,
) -> None:
    """Execute the runs of one job; `harness.runs.events` lists what each reports.

    With `measure`, runs without a checkpoint are stacked only where that is faster on this machine;
    otherwise each ends with {"unstack": why}.
    """
    from harness.engine.stack_speed import faster_stacked  # imports torch
    from harness.runs.execute import execute_all

    new = not any(stack_size(root / config.hash) for config in configs)
    if measure and new and len(configs) > 1:
        faster, words = faster_stacked(configs)
        if not faster:
            for place in range(len(configs)):
                report(place, {"unstack": words})
            return
        report(0, {"note": words})
    execute_all(configs, root, command, report, stop)
