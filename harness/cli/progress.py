"""One line per run while it trains: live on a terminal, plain lines elsewhere (on stderr)."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from harness.settings.config import RunConfig

_PLAIN_SECONDS = 15


class Progress:
    """Feed it a sweep's events; `failed` tells whether a run ended without a good record."""

    def __init__(self, configs: Sequence[RunConfig], finished: int) -> None:
        self.configs, self.finished = configs, finished
        self.names = names(configs)
        self.lines: dict[int, str] = {}
        self.failed = False
        self.done = 0
        self.recorded = finished
        self.console = Console(stderr=True)
        self.live = Live(console=self.console, refresh_per_second=4, transient=True)
        self.told: dict[int, float] = {}

    def __enter__(self) -> Progress:
        if self.finished:
            self.console.print(f"{self.finished} runs are finished already", highlight=False)
        if self.console.is_terminal and self.configs:
            self.live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.live.stop()
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            total = self.finished + len(self.configs)
            self.console.print(
                f"{self.recorded} of {total} runs done, "
                f"{total - self.recorded} stopped or not started",
                highlight=False,
            )

    def update(self, index: int, event: dict[str, Any]) -> None:
        """Show one event of one run."""
        final = bool(event.keys() & {"record", "error", "busy"})
        line = self._line(self.names[index], self.configs[index], event)
        if final:
            self.lines.pop(index, None)
            self.done += 1
            self.recorded += "record" in event
            bad = "error" in event or event.get("record", {}).get("status") == "failed"
            self.failed = self.failed or bad
            self.console.print(
                f"[{self.done}/{len(self.configs)}] {line}", markup=False, highlight=False
            )
        elif event.keys() & {"again", "note"}:
            self.lines.pop(index, None)
            self.console.print(line, markup=False, highlight=False)
        else:
            self.lines[index] = line
        if self.live.is_started:
            table = Table.grid()
            for key in sorted(self.lines):
                table.add_row(self.lines[key])
            self.live.update(table)
        elif index in self.lines and time.monotonic() - self.told.get(index, 0) > _PLAIN_SECONDS:
            self.told[index] = time.monotonic()
            print(line, file=sys.stderr, flush=True)

    def _line(self, name: str, config: RunConfig, event: dict[str, Any]) -> str:
        if "busy" in event:
            return f"{name}: skipped: {event['busy']}"
        if "error" in event:
            return f"{name}: failed: {event['error']}"
        if "record" in event:
            record = event["record"]
            if record["status"] == "failed":
                return f"{name}: failed: {record['reason']}"
            return f"{name}: {_summary(record)}"
        if "note" in event:
            return f"{config.label} · {config.task}: {event['note']}"
        for key in ("phase", "again"):
            if key in event:
                return f"{name}: {event[key]}"
        left = (config.train.steps - event["step"]) / max(event["rate"], 1e-9)
        exact = "-" if event["exact"] is None else f"{event['exact']:.2f}"
        return (
            f"{name}: step {event['step']}/{config.train.steps}, loss {event['loss']:.3f}, "
            f"exact {exact}, {event['rate']:.0f} steps/s, {left:.0f} s left"
        )


def names(configs: Sequence[RunConfig]) -> list[str]:
    """What each run is called: encoding, task, seed, and the settings that a sweep varies."""
    settings = [config.train.model_dump() for config in configs]
    varied = [
        key for key in (settings or [{}])[0] if len({str(one.get(key)) for one in settings}) > 1
    ]
    return [
        " · ".join(
            [
                config.label,
                config.task,
                f"seed {config.seed}",
                *(f"{k} {own.get(k)}" for k in varied),
            ]
        )
        for config, own in zip(configs, settings, strict=True)
    ]


def _summary(record: dict[str, Any]) -> str:
    cells = (
        f"{row['length']}: {row['exact']:.2f}"
        if row["exact"] is not None
        else f"{row['length']}: -"
        for row in record["scores"]["last"]
    )
    return f"exact match {'  '.join(cells)} ({record['cost']['train_seconds']:.0f} s)"
