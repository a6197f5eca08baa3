"""A report: what was measured, where, and one row per candidate; as table, JSON, CSV, Markdown."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from harness.runs.machine import processor

_UNITS = {"peak_bytes": ("peak MiB", 2**20, ".2f"), "state_bytes": ("state KiB", 2**10, ".2f")}


@dataclass(frozen=True)
class Report:
    """Flat rows; `phases` have the columns that `harness.perf.timing.columns` makes.

    `key` is the column that names a row; `status` is "ok" where a row was measured.
    """

    key: str
    phases: Sequence[str]
    settings: dict[str, Any]
    rows: list[dict[str, Any]]

    def render(self, form: str) -> str:
        """The report as "table", "json", "csv" or "markdown", without a newline at the end."""
        if form == "json":
            return json.dumps({"settings": self.settings, "rows": self.rows}, indent=1)
        if form == "csv":
            return as_csv(self.rows, self.settings)
        from tabulate import tabulate

        kind = "github" if form == "markdown" else "simple"
        right = ["left", *["right"] * (len(self._headers()) - 1)]
        table = tabulate(
            [self._cells(row) for row in self.rows],
            self._headers(),
            tablefmt=kind,
            colalign=right,
            disable_numparse=True,
        )
        notes = [f"{r[self.key]}: {r['note']}" for r in self.rows if r["note"]]
        where = ", ".join(f"{k} {_plain(v)}" for k, v in self.settings.items() if v is not None)
        return "\n\n".join([where, table, *notes])

    def _others(self) -> list[str]:
        """The columns of a table that are neither names nor times."""
        timed = tuple(f"{phase}_" for phase in self.phases)
        names = dict.fromkeys(name for row in self.rows for name in row)
        hidden = {self.key, "status", "note", "options"}
        return [n for n in names if n not in hidden and not n.startswith(timed)]

    def _headers(self) -> list[str]:
        times = [head for phase in self.phases for head in self._heads(phase)]
        return [self.key, *times, *(_UNITS[n][0] if n in _UNITS else n for n in self._others())]

    def _heads(self, phase: str) -> list[str]:
        return [f"{phase} ms (q1-q3)", f"x {self.settings['baseline']}"]

    def _cells(self, row: dict[str, Any]) -> list[str]:
        cells = [row[self.key]]
        for phase in self.phases:
            cells.extend(self._phase(row, phase))
        if row["status"] != "ok":
            cells[1] = row["status"]
        for name in self._others():
            value = row.get(name)
            if name in _UNITS and value is not None:
                _, size, style = _UNITS[name]
                cells.append(format(value / size, style))
            else:
                cells.append("" if value is None else _plain(value))
        return cells

    def _phase(self, row: dict[str, Any], phase: str) -> list[str]:
        ratio = row.get(f"{phase}_ratio")
        shown = "" if ratio is None else f"{ratio:.3g}"
        if f"{phase}_ms" not in row:
            return ["", shown]
        median, q1, q3 = (row[f"{phase}{part}_ms"] for part in ("", "_q1", "_q3"))
        return [f"{_short(median)} ({_short(q1)}-{_short(q3)})", shown]


def as_csv(rows: Sequence[dict[str, Any]], common: Mapping[str, Any] | None = None) -> str:
    """Rows below a line of names, each with what they have in common; no newline at the end."""
    names = dict.fromkeys(name for row in (*rows, common or {}) for name in row)
    out = io.StringIO()
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows({**row, **(common or {})} for row in rows)
    return out.getvalue().removesuffix("\n")


def machine(device: str) -> dict[str, Any]:
    """What decides how long the same work takes: device, threads, torch."""
    return {
        "device": device,
        "processor": torch.cuda.get_device_name(device) if "cuda" in device else processor(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }


def _short(milliseconds: float) -> str:
    """Three digits or all before the point: 0.123, 1.23, 12.3, 1234."""
    digits = max(0, 2 - math.floor(math.log10(max(milliseconds, 1e-3))))
    return f"{milliseconds:.{digits}f}"


def _plain(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
