"""A report of measurements: settings, and one row per candidate; as table, JSON, CSV, Markdown."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from harness.runs.record import processor
from leaderboard.text import as_csv

UNITS = {"peak_bytes": ("peak MiB", 2**20), "state_bytes": ("state KiB", 2**10)}


@dataclass(frozen=True)
class Report:
    """Flat rows, in which each of the `phases` has the columns of `harness.perf.timing.columns`.

    `key` is the column that names a row; `status` is "ok" if a row was measured.
    """

    key: str
    phases: Sequence[str]
    settings: dict[str, Any]
    rows: list[dict[str, Any]]

    def render(self, form: str) -> str:
        """Format as "table", "json", "csv" or "markdown", without a newline at the end."""
        if form == "json":
            return json.dumps({"settings": self.settings, "rows": self.rows}, indent=1)
        if form == "csv":
            names = dict.fromkeys(name for row in (*self.rows, self.settings) for name in row)
            lines = [[(row | self.settings).get(name) for name in names] for row in self.rows]
            return as_csv([*names], lines).removesuffix("\n")
        from tabulate import tabulate

        lines = [self._line(row) for row in self.rows]
        heads = dict.fromkeys(head for line in lines for head in line)
        table = tabulate(
            [[line.get(head, "") for head in heads] for line in lines],
            [head.partition(" ")[2] if " x " in head else head for head in heads],
            tablefmt="github" if form == "markdown" else "simple",
            colalign=["left", *["right"] * (len(heads) - 1)],
            disable_numparse=True,
        )
        notes = [f"{r[self.key]}: {r['note']}" for r in self.rows if r["note"]]
        where = ", ".join(f"{k} {_plain(v)}" for k, v in self.settings.items() if v is not None)
        return "\n\n".join([where, table, *notes])

    def _line(self, row: dict[str, Any]) -> dict[str, str]:
        """Return the cells of a table's line by their heads."""
        cells, baseline = {self.key: row[self.key]}, self.settings["baseline"]
        for phase in self.phases:
            times = [_short(row.get(f"{phase}{part}_ms")) for part in ("", "_q1", "_q3")]
            times_head, ratio_head = f"{phase} ms (q1-q3)", f"{phase} x {baseline}"
            cells[times_head] = "{} ({}-{})".format(*times) if times[0] else ""
            ratio = row.get(f"{phase}_ratio")
            cells[ratio_head] = "" if ratio is None else f"{ratio:.3g}"
        if row["status"] != "ok":
            cells[f"{self.phases[0]} ms (q1-q3)"] = row["status"]
        timed = tuple(f"{phase}_" for phase in self.phases)
        for name, value in row.items():
            if name in UNITS:
                head, size = UNITS[name]
                cells[head] = f"{value / size:.2f}"
            elif name not in (self.key, "status", "note", "spec") and not name.startswith(timed):
                cells[name] = "" if value is None else _plain(value)
        return cells


def machine(device: str) -> dict[str, Any]:
    """Describe the device, threads and torch."""
    return {
        "device": device,
        "processor": torch.cuda.get_device_name(device) if "cuda" in device else processor(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }


def _short(milliseconds: float | None) -> str:
    """Format three digits, or all before the point: 0.123, 1.23, 12.3, 1234."""
    if milliseconds is None:
        return ""
    digits = max(0, 2 - math.floor(math.log10(max(milliseconds, 1e-3))))
    return f"{milliseconds:.{digits}f}"


def _plain(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
