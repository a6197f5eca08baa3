"""Recompute what a record claims: its configuration from its command, its facts from building it.

`leaderboard.check` checks what needs neither torch nor the encodings and tasks. Nothing of a
record is trained: `harness.cli.rerun` does that.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from harness import tasks
from harness.cli.verify.build import different, size_of, task_of
from harness.cli.verify.command import config_faults, parse_command, sweep
from harness.cli.verify.facts import alike, facts
from leaderboard.record.schema import Record

__all__ = ["alike", "parse_command", "refusals"]
FAULTS = (ValueError, RuntimeError, MemoryError, OverflowError, TypeError, OSError)


def refusals(record: Record, protocols: Sequence[Path] = ()) -> Iterator[str]:
    """Yield each claim of a record that differs from what is recomputed; nothing for a good one.

    `protocols` are the files that `--protocol` may name beside the packaged ones.
    """
    command = record.provenance.command, tuple(protocols)
    try:
        asked = parse_command(*command)[0][0][0]
    except FAULTS as error:
        yield f"provenance.command: {error}"
        return
    faults = [
        f"{name} is {value}, but the command runs {', '.join(valid)}"
        for name, value, valid in (
            ("encoding", record.encoding, [*map(str, asked.encodings)]),
            ("task", record.task, [*map(tasks.canonical, asked.tasks)]),
        )
        if value not in valid
    ]
    try:
        yield from (faults := faults or [*config_faults(record.config, *command)])
        task = task_of(record.task)
        if not faults:
            cost, rest = record.cost, size_of(record.config.model)
            size = cost.parameters, rest + (cost.encoding_parameters or 0)
            yield from different({"cost.parameters": size} | sweep(record, *command))
        if not faults and task.version == record.config.task_version:
            yield from facts(record, task)
    except FAULTS as error:
        yield f"the run cannot be built: {error}"
