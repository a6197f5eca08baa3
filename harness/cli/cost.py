"""What `--dry-run` prints: time, memory and device-hours of a matrix."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

import click
from tabulate import tabulate

from harness.forecast import Compilation, Forecast, Line


def progress(text: str) -> None:
    """One line on stderr while measuring."""
    print(text, file=sys.stderr, flush=True)


def print_forecast(found: Forecast, form: str) -> None:
    """A table, or with the form "json" everything that was measured and predicted."""
    if form == "json":
        click.echo(json.dumps(as_data(found), indent=1))
        return
    phased = any(line.phase for line in found.lines)
    stacked = any(line.stacked > 1 for line in found.lines)
    heads = ["ms/step", "one run", "device-hours", "peak MB"]
    heads = ["encoding", "task", "runs", *["stacked"] * stacked, *heads]
    rows = [[line.phase] * phased + _row(line, stacked) for line in found.lines]
    click.echo(tabulate(rows, ["phase"] * phased + heads, disable_numparse=True))
    click.echo(
        f"\n{found.runs} runs, {found.device_hours:.2f} device-hours, {duration(found.wall)} with "
        f"{found.jobs} at a time, up to {found.memory_mb:.0f} MB together"
    )
    busy = found.total.seconds / max(found.total.cpu, 1e-9)
    if found.device == "cpu" and busy > 1.5:
        click.echo(
            f"this machine was busy with other work: the runs need {found.total.cpu / 3600:.2f} "
            f"hours of processor time, and would take {busy:.1f} times that at the pace measured"
        )
    if found.compilation.sizes:
        click.echo(
            f"of that, {duration(found.compilation.usage.seconds)} for each worker are "
            f"torch.compile at {len(found.compilation.sizes)} sizes, unless torch has kept them"
        )
    if stacked:
        click.echo("times of stacked runs are their shares; peak MB is that of the stack")
    click.echo("nothing was trained: measured here, on a few steps and scored chunks of each kind")
    if phased:
        click.echo("the comparison is counted with the sweep's costliest cell")


def as_data(found: Forecast) -> dict[str, object]:
    """Everything as plain values; times in seconds."""
    return {
        "runs": found.runs,
        "device_hours": found.device_hours,
        "wall_seconds": found.wall,
        "cpu_hours": found.total.cpu / 3600,
        "jobs": found.jobs,
        "device": found.device,
        "memory_mb": found.memory_mb,
        "compilation": _compilation(found.compilation),
        "lines": [_line(line) for line in found.lines],
    }


def _compilation(found: Compilation) -> dict[str, object]:
    return asdict(found) | {"sizes": sorted(found.sizes)}


def _line(line: Line) -> dict[str, object]:
    data = asdict(line)
    data["probe"]["compilation"] = _compilation(line.probe.compilation)
    return data


def duration(seconds: float) -> str:
    """
    >>> duration(42), duration(600), duration(9000), duration(864000)
    ('42 s', '10.0 min', '2.5 h', '10.0 days')
    """
    for unit, size, limit in (("min", 60, 3600), ("h", 3600, 172_800)):
        if seconds < size:
            break
        if seconds < limit:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s" if seconds < 60 else f"{seconds / 86400:.1f} days"


def _row(line: Line, stacked: bool) -> list[str]:
    memory = f"{line.probe.memory_mb:.0f}" + ("" if line.probe.whole else " or more")
    return [
        line.encoding,
        line.task,
        str(line.runs),
        *[str(line.stacked)] * stacked,
        f"{1000 * line.probe.step.seconds / line.stacked:.1f}",
        duration(line.run.seconds),
        f"{line.total.seconds / 3600:.2f}",
        memory,
    ]
