"""The results of `pezoo extend` as text, a picture, a page and data."""

import json
import re
from collections.abc import Sequence
from math import log2
from typing import Any

from jinja2 import Environment, PackageLoader
from tabulate import tabulate

from harness.extend.measure import Study
from harness.extend.rows import Row, advice, rows
from harness.extend.texts import DEPTHS
from harness.extend.ways import paste
from leaderboard.charts.curves import curves
from leaderboard.charts.styles import distinct
from leaderboard.stats.intervals import Stat
from leaderboard.stats.rows import BITS, Point, Points
from leaderboard.text import as_csv

HIGH, FLOOR = 12, 1e-3  # lines of the picture; the fewest bits in it
MARKS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
KEYS = "bits", "tokens", "hits", "seconds", "peak_mb"  # of a result
Grid = list[list[str]]  # heads, then lines


def head(study: Study) -> str:
    """Say what the numbers are."""
    n, last = len(study.texts.ends), study.texts.last
    many = f"{n} texts, ± 95 %" if n > 1 else "one text"
    short = "" if study.texts.depths else "; L/2 has no room for the questions of passkeys"
    return (
        f"{study.subject.name}: {BITS} of the same last {last} tokens by tokens read, {many}\n"
        f"L = {study.subject.trained:,} tokens; gain: bits saved against the own last L tokens"
        f"{short}"
    )


def table(study: Study) -> Grid:
    """Return all ways with their bits, passkeys, speed and memory."""
    last, asked = study.lengths[-1], study.lengths[1:] if study.texts.depths else ()
    heads = ["way", *(f"{n:,}" for n in study.lengths), f"gain at {last:,}", "cost up to L"]
    heads += [*(f"passkeys {n:,}" for n in asked), "tokens/s", "peak MB", "cache"]
    return [heads, *([row.label, *_cells(row, asked)] for row in rows(study))]


def _cells(row: Row, asked: Sequence[int]) -> list[str]:
    study, last, cost = row.study, row.study.lengths[-1], row.cost()
    cells = [_stat(row.bits(n)) if row.bits(n) else _why(row, n) for n in study.lengths]
    cells += [_stat(row.gain(last), "+"), "-" if cost is None else f"{round(cost, 3) + 0.0:+.3f}"]
    for hits in map(row.hits, asked):
        cells.append(f"{sum(hits)}/{len(hits) * len(study.texts.ends)}" if hits else "-")
    taken, peaks = row.values(last, "seconds"), row.values(last, "peak_mb")
    cells.append(f"{last * len(taken) / sum(taken):,.0f}" if taken else "-")
    cells.append(f"{max(peaks):,.0f}" if peaks else "-")
    return [*cells, "valid" if study.stable[row.way] else "recomputed"]


def _why(row: Row, length: int) -> str:
    return row.study.notes.get((row.way, row.tuned, length), "-").partition(":")[0]


def _stat(stat: Stat | None, sign: str = "") -> str:
    if stat is None:
        return "-"
    half = "" if stat.high is None else f" ±{stat.high - stat.mean:.3f}"
    return f"{round(stat.mean, 3) + 0.0:{sign}.3f}{half}"


def depths(study: Study) -> Grid:
    """Return how many passkeys each way retrieved, by depth and length."""
    own = [(row, n, row.hits(n)) for row in rows(study) for n in study.lengths]
    lines = [[row.label, f"{n:,}", *map(str, hits)] for row, n, hits in own if hits]
    return [["passkeys by depth", "tokens", *(f"{depth:.0%}" for depth in DEPTHS)], *lines]


def picture(study: Study) -> str:
    """Return bits against length as text, logarithmic: a column per length, a letter per way."""
    drawn = [*zip(MARKS, rows(study), strict=False)]
    every = ((mark, n, row.bits(n)) for mark, row in drawn for n in study.lengths)
    logs = {(mark, n): log2(max(stat.mean, FLOOR)) for mark, n, stat in every if stat}
    if not logs:
        return ""
    low, wide = min(logs.values()), len(drawn) + 3
    step = (max(logs.values()) - low) / (HIGH - 1) or 1.0
    places = {key: round((value - low) / step) for key, value in logs.items()}
    lines = []
    for at in reversed(range(max(places.values()) + 1)):
        columns = ("".join(m for m, _ in drawn if places.get((m, n)) == at) for n in study.lengths)
        lines.append(f"{2 ** (low + at * step):7.3f} |" + "".join(f"{x:^{wide}}" for x in columns))
    lines.append(" " * 9 + "".join(f"{n:^{wide},}" for n in study.lengths))
    return "\n".join([*lines, *(f"{mark} {row.label}" for mark, row in drawn)])


def svg(study: Study) -> str:
    """Return the picture of bits against length."""
    found, trained = [], study.subject.trained
    for row in rows(study):
        stats = ((n, row.bits(n)) for n in study.lengths)
        points = (Point(length=n, seen=n <= trained, main=stat) for n, stat in stats if stat)
        name = re.sub(r"^rope\(rope_parameters=(.*)\)(, tuned)?$", r"\1\2", row.label)
        found.append(Points(name, tuple(points), BITS, trained))
    look = {one.label: distinct(at) for at, one in enumerate(found)}
    return curves(f"Reading on with {study.subject.name}", found, look, "tokens read")


def data(study: Study, settings: dict[str, Any]) -> dict[str, Any]:
    """Return all results as plain data."""
    found = [
        {"way": row.way, "tuned": row.tuned, "cache": study.stable[row.way]}
        | {"lengths": {str(n): {k: row.values(n, k) for k in KEYS} for n in study.lengths}}
        for row in rows(study)
    ]
    told = {way: paste(way, study.subject, study.lengths[-1]) for way in study.ways}
    return {"settings": settings, "rows": found, "advice": advice(study), "paste": told}


def text(study: Study, settings: dict[str, Any], form: str) -> str:
    """Return the results as "table", "json", "csv" (a line for each text) or "markdown"."""
    if form == "json":
        return json.dumps(data(study, settings), indent=1)
    if form == "csv":
        every = sorted(study.cells.items())
        lines = [[*at, *(c[k] if k != "hits" else sum(c[k]) for k in KEYS)] for at, c in every]
        return as_csv(["way", "tuned", "length", "text", *KEYS], lines).removesuffix("\n")
    style = {"disable_numparse": True, "tablefmt": "github" if form == "markdown" else "simple"}
    parts = [head(study)]
    for heads, *rest in (table(study), depths(study)):
        align = ["left", *["right"] * (len(heads) - 1)]
        parts.append(tabulate(rest, heads, colalign=align, **style) if rest else "")
    parts.append(picture(study) if form == "table" else "")
    parts += [f"{w}{', tuned' * t}, {n:,} tokens: {x}" for (w, t, n), x in study.notes.items()]
    return "\n\n".join(filter(None, [*parts, "\n".join(advice(study))]))


def page(study: Study, settings: dict[str, Any]) -> str:
    """Return one HTML file that loads nothing else."""
    environment = Environment(loader=PackageLoader("harness", "extend"), autoescape=True)
    own = {"study": study, "settings": settings, "advice": advice(study), "picture": svg(study)}
    tables = [table(study), depths(study)]
    return environment.get_template("page.html").render(**own, tables=tables)
