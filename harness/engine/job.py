"""What a worker does with the runs of one job: train one alone, or several as a stack."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
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
    # What imports torch is imported here: the parent of the workers does not need it.
    if len(configs) == 1:
        from harness.runs.execute import attempt

        report(0, attempt(*configs, root, command, partial(report, 0), stop))
        return
    from harness.engine.stack_speed import faster_stacked
    from harness.runs.execute_stack import execute_stack

    if measure and not any(stack_size(root / config.hash) for config in configs):
        faster, words = faster_stacked(configs)
        if not faster:
            for place in range(len(configs)):
                report(place, {"unstack": words})
            return
        report(0, {"note": words})
    execute_stack(configs, root, command, report, stop)
