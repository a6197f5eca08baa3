"""What the pages' scripts read: tables, rows and runs as plain data."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean
from typing import Any

from leaderboard.catalog import Catalog
from leaderboard.files import slug
from leaderboard.groups import CHANGED, EARLIER, PROTOCOL, TUNED, Group, grouped
from leaderboard.intervals import LEVEL, Stat, quantile
from leaderboard.looks import Look, last_words, looks, wide
from leaderboard.records import Record, Score
from leaderboard.summary import Cell, Row, bare


def script_json(value: Any) -> str:
    """JSON that ends no script element and no line of JavaScript, whatever texts it holds.

    >>> script_json("</script>")
    '"\\\\u003c/script\\\\u003e"'
    """
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, sort_keys=True)
    return text.translate({ord(char): f"\\u{ord(char):04x}" for char in "<>&"})


def script(name: str, value: Any) -> str:
    """A script that sets window.NAME. The value is parsed as JSON, where "__proto__" is a key like
    any other; in an object literal it is not."""
    return f"window.{name} = JSON.parse({script_json(script_json(value))});\n"


def all_looks(groups: Iterable[Group]) -> dict[str, Look]:
    """One look per label over all tables."""
    rows = [row for group in groups for row in group.rows]
    modes = {row.label: row.label.removesuffix(f" ({row.mode})") for row in rows if row.mode}
    return looks((row.label for row in rows), modes)


def site_data(groups: Sequence[Group], catalog: Catalog) -> dict[str, Any]:
    """Everything but the runs. Names lead to file names; numbers have six digits."""
    rows = [row for group in groups for row in group.rows]
    encodings = {bare(row.encoding) for row in rows} | set(catalog.encodings)
    tasks = {group.first.task for group in groups} | set(catalog.tasks)
    return {
        "tables": _tables(groups, catalog),
        "looks": {
            label: [look.colour, look.dash, look.marker]
            for label, look in all_looks(groups).items()
        },
        "encodings": {name: _encoding(name, catalog) for name in encodings},
        "tasks": {name: _task(name, catalog) for name in tasks},
        "protocols": _protocols(groups, catalog),
        "level": _short(1 - LEVEL),
        "t": [_short(quantile(freedom)) for freedom in range(1, 61)],
    }


def runs_data(records: Iterable[Record]) -> list[list[Any]]:
    """One line per run, in the order that runs.js names."""
    return [
        [
            r.run, r.protocol, r.task, r.encoding, r.seed, r.status, *_run_unseen(r),
            r.env.device, _short(r.cost.steps_per_second), _short(r.cost.train_seconds),
            r.provenance.finished[:10], bare(r.encoding),
        ]
        for r in records
    ]  # fmt: skip


def unseen_of(scores: Sequence[Score]) -> tuple[float | None, str]:
    """One run's mean over the unseen lengths, or the words that stand instead of it."""
    unseen = [score for score in scores if not score.seen and score.status != "no instance"]
    if any(score.status != "ok" for score in unseen):
        return None, "cannot represent"
    if not unseen:
        return None, "no unseen length"
    return fmean(score.exact or 0.0 for score in unseen), ""


def devices(records: Iterable[Record]) -> list[str]:
    return sorted({record.env.device for record in records})


def _run_unseen(record: Record) -> tuple[float | None, str]:
    if record.status == "failed":
        return None, "failed"
    mean, words = unseen_of(record.scores.last)
    return _short(mean), words


def _tables(groups: Sequence[Group], catalog: Catalog) -> list[dict[str, Any]]:
    """The tables, and for one with runs on several devices a table for each of them."""
    tables, seen = [], Counter[tuple[str, str, str]]()
    for group in groups:
        tuning = _tuning(group)
        seen[group.base, group.first.task, tuning] += 1
        if (again := seen[group.base, group.first.task, tuning]) > 1:
            tuning = f"{tuning}.{again}"
        found = devices(group.records)
        tables.append(_table(group, group, tuning, catalog) | {"device": "", "devices": found})
        if len(found) > 1:
            tables += [
                _table(part, group, tuning, catalog) | {"device": device, "devices": [device]}
                for device in found
                for part in grouped([r for r in group.records if r.env.device == device])
            ]
    return tables


def _tuning(group: Group) -> str:
    return {
        PROTOCOL: "protocol",
        CHANGED: group.first.protocol,
        TUNED: group.first.protocol,
        EARLIER: f"earlier.{group.first.shared_hash}",
    }[group.policy]


def _table(group: Group, whole: Group, tuning: str, catalog: Catalog) -> dict[str, Any]:
    first = group.first
    cells = group.rows[0].cells if group.rows else ()
    protocol = catalog.protocols.get(whole.base)
    asked = protocol.seeds if protocol else 0
    return {
        "id": whole.slug,
        "protocol": first.protocol,
        "base": whole.base,
        "task": first.task,
        "policy": whole.policy,
        "tuning": tuning,
        "name": whole.settings_name,
        "train": first.train_length,
        "chance": _short(first.chance),
        "asked": asked,
        "lengths": [cell.length for cell in cells],
        "seen": [cell.seen for cell in cells],
        "log": wide(cell.length for cell in cells),
        "rows": [_row(row, asked, group, catalog) for row in group.rows],
    }


def _row(row: Row, asked: int, group: Group, catalog: Catalog) -> dict[str, Any]:
    current = catalog.version(bare(row.spec))
    seeds = {record.run: record.seed for record in group.records}
    tokens = [cell.token for cell in row.cells if not cell.seen and cell.token is not None]
    return {
        "label": row.label,
        "enc": bare(row.encoding),
        "spec": row.spec,
        "mode": row.mode,
        "typed": row.typed,
        "old": current is not None and str(current) != row.version,
        "version": row.version,
        "rank": row.rank,
        "ranks": row.ranks,
        "unseen": _stat(row.unseen),
        "note": row.unseen_note or "",
        "by": [[seed, _short(value)] for seed, value in row.by_seed],
        "step": _short(row.step),
        "token": _short(fmean(tokens)) if row.unseen and tokens else None,
        "reach": _short(row.reach),
        "open": row.reach_open,
        "parameters": row.parameters,
        "own_parameters": row.encoding_parameters,
        "speed": _short(row.steps_per_second),
        "seconds": _short(row.train_seconds),
        "cpu": _short(row.cpu_seconds),
        "memory": _short(row.peak_memory_mb),
        "seeds": list(row.seeds),
        "few": len(row.seeds) < asked,
        "failures": [[seed, reason[:200]] for seed, reason in row.failures],
        "words": last_words((cell.length, cell.status) for cell in row.cells),
        "cells": [_cell(cell) for cell in row.cells],
        "runs": list(row.runs),
        "all": [seeds[run] for run in row.runs],
        "notes": list(row.notes),
        "tried": list(row.tried),
        "chosen": row.chosen,
        "tuning": _short(row.tuning_seconds),
    }


def _cell(cell: Cell) -> list[Any]:
    """[words or "", mean, low, high, token accuracy, [[seed, exact match], ...], right, asked]"""
    if cell.exact is None:
        return [cell.status]
    stat = [_short(value) for value in (cell.exact.mean, cell.exact.low, cell.exact.high)]
    seeds = [[seed, _short(value)] for seed, value in cell.seeds]
    return ["", *stat, _short(cell.token), seeds, cell.correct, cell.count]


def _stat(stat: Stat | None) -> list[Any] | None:
    return stat and [_short(stat.mean), _short(stat.low), _short(stat.high), stat.method]


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")


def _encoding(name: str, catalog: Catalog) -> dict[str, str]:
    parts = catalog.parts(name)
    return {"page": f"encoding/{slug(name)}.html", "summary": parts[0].summary if parts else ""}


def _task(name: str, catalog: Catalog) -> dict[str, str]:
    known = catalog.tasks.get(name)
    return {
        "page": f"task/{slug(name)}.html",
        "summary": known.summary if known else "",
        "family": (known.family if known else "") or "other",
    }


def _protocols(groups: Sequence[Group], catalog: Catalog) -> dict[str, Any]:
    """The protocols that have runs; those with more runs first."""
    runs = Counter(g.base for g in groups for _ in g.records)
    return {
        name: {
            "runs": count,
            "seeds": catalog.protocols[name].seeds if name in catalog.protocols else 0,
            "text": catalog.protocols[name].description if name in catalog.protocols else "",
        }
        for name, count in runs.most_common()
    }


def own_lines(doc: str) -> Iterator[str]:
    """The lines of a text without the indent that they share."""
    lines = doc.split("\n")
    indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    yield from (line[indent:] for line in lines)
