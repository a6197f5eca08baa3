"""Progress of runs on stderr: live on a terminal, a line every 15 s elsewhere."""

import signal
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

from rich.console import Console
from rich.live import Live
from rich.progress import track
from rich.table import Table

from experiment.config import RunConfig
from harness.runs.events import Event
from leaderboard.record.schema import Record
from leaderboard.stats.rows import PASS

_PLAIN_SECONDS = 15
_NEAR_END = 0.9  # of the steps


class Progress:
    """Shows events. `failed` is set when a run ends without a good record.

    Inside, Ctrl-C raises KeyboardInterrupt.
    """

    def __init__(self, configs: Sequence[RunConfig], finished: int) -> None:
        self.configs, self.finished = configs, finished
        self.names = names(configs)
        self.lines: dict[int, str] = {}  # of running runs
        self.printed: dict[int, float] = {}  # time of the last plain line
        self.warned: set[int] = set()
        self.failed = False
        self.ended: set[int] = set()  # or skipped
        self.recorded = finished
        self.console = Console(stderr=True)
        self.live = Live(console=self.console, refresh_per_second=4, transient=True)

    def __enter__(self) -> Self:
        self.handler = signal.getsignal(signal.SIGINT)
        if self.handler is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if self.finished:
            self._print(f"{self.finished} runs are finished already")
        if self.console.is_terminal and self.configs:
            self.live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.live.stop()
        signal.signal(signal.SIGINT, self.handler)
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            total = self.finished + len(self.configs)
            left = total - self.recorded
            self._print(f"{self.recorded} of {total} runs done, {left} stopped or not started")

    def update(self, run: int, event: Event) -> None:
        """Show one event of one run."""
        line = f"{self.names[run]}: {_text(event)}"
        if event.keys() & {"record", "error", "busy"}:
            self.lines.pop(run, None)
            new = run not in self.ended or "busy" not in event
            self.ended.add(run)
            self.recorded += "record" in event
            record: Record | None = event.get("record")
            self.failed |= "error" in event or (record is not None and record.status == "failed")
            if new:
                self._print(f"[{len(self.ended)}/{len(self.configs)}] {line}")
        elif "again" in event:
            self.lines.pop(run, None)
            self._print(line)
        else:
            self.lines[run] = line
            if run not in self.warned and (warning := _warning(event, self.configs[run])):
                self.warned.add(run)
                self._print(f"{self.names[run]}: {warning}")
        if self.live.is_started:
            table = Table.grid()
            for key in sorted(self.lines):
                table.add_row(self.lines[key])
            self.live.update(table)
        elif run in self.lines and time.monotonic() - self.printed.get(run, 0) > _PLAIN_SECONDS:
            self.printed[run] = time.monotonic()
            print(line, file=sys.stderr, flush=True)

    def _print(self, line: str) -> None:
        self.console.print(line, markup=False, highlight=False)


def _text(event: Event) -> str:
    if "busy" in event:
        return f"skipped: {event['busy']}"
    if "error" in event:
        return f"failed: {event['error']}"
    if "record" in event:
        return _summary(event["record"])
    for key in ("phase", "again"):
        if key in event:
            return str(event[key])
    left = (event["of"] - event["step"]) / max(event["rate"], 1e-9)
    exact = "" if event["exact"] is None else f"validation {event['exact']:.2f}, "
    return (
        f"step {event['step']}/{event['of']}, loss {event['loss']:.3f}, {exact}"
        f"{event['rate']:.0f} steps/s, {left:.0f} s left"
    )


def _warning(event: Event, config: RunConfig) -> str:
    """Say near the end of training that the training lengths are not learned yet; "" before.

    Exact match is not what encoders and text are compared by.
    """
    steps, exact = config.train.steps, event.get("exact")
    late = event.get("step", 0) >= _NEAR_END * steps
    if not late or exact is None or exact >= PASS - 1e-9 or config.track != "decoder":
        return ""
    return (
        f"not learned yet: validation {exact:.2f}, below {PASS:g}, at step {event['step']} of "
        f"{steps}; try --set train.steps={2 * steps}"
    )


def _summary(record: Record) -> str:
    if record.status == "failed":
        return f"failed: {record.reason}"
    rows, track = record.scores.last, record.config.track
    none = not any(row.exact for row in rows)  # after a short training
    if track == "text":
        words, form, values = "bits", ".3f", [row.bits for row in rows]
    elif track == "encoder" or none:
        words, form, values = "token accuracy", ".2f", [row.token for row in rows]
        words = words if track == "encoder" else f"exact match 0; {words}"
    else:
        words, form, values = "exact match", ".2f", [row.exact for row in rows]
    shown = ("-" if value is None else f"{value:{form}}" for value in values)
    cells = (f"{row.length}: {value}" for row, value in zip(rows, shown, strict=True))
    return f"{words} {'  '.join(cells)} ({record.cost.train_seconds:.0f} s, run {record.run})"


def names(configs: Sequence[RunConfig]) -> list[str]:
    """Name each run: encoding, task, seed, and the settings that vary on one task."""
    values: dict[tuple[str, str], set[str]] = {}
    settings = [config.train.model_dump() for config in configs]
    for config, own in zip(configs, settings, strict=True):
        for key, value in own.items():
            values.setdefault((key, config.task), set()).add(str(value))
    varied = dict.fromkeys(key for (key, _), found in values.items() if len(found) > 1)
    return [
        " · ".join(
            [c.encoding, c.task, f"seed {c.seed}", *(_setting(k, own.get(k)) for k in varied)]
        )
        for c, own in zip(configs, settings, strict=True)
    ]


def _setting(key: str, value: Any) -> str:
    """
    >>> _setting("lengths", (1, 10)), _setting("curriculum", ({"until": 0.15, "max": 2},))
    ('lengths 1 to 10', 'curriculum 2 until 15 %')
    """
    if key == "lengths":
        value = f"{value[0]} to {value[1]}"
    elif key == "curriculum":
        value = ", ".join(f"{one['max']} until {100 * one['until']:g} %" for one in value) or "none"
    return f"{key} {value}"


def watched(files: list[Path]) -> Iterable[Path]:
    """Yield files, with a bar on a terminal."""
    console = Console(stderr=True)
    return track(files, "checking", console=console, disable=not console.is_terminal)
