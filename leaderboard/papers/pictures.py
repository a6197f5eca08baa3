"""Pictures of filled figures."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from statistics import fmean
from textwrap import wrap

from experiment.files import slug
from leaderboard.papers.caption import budgets
from leaderboard.papers.cells import Cell, Filled, pairs_of
from leaderboard.papers.paper import Figure
from leaderboard.record.schema import Record
from leaderboard.render.curves import curves
from leaderboard.render.grids import heat_map
from leaderboard.render.styles import styles
from leaderboard.stats.intervals import over_seeds
from leaderboard.stats.rows import EXACT, TOKENS, Point, Points


def draw(filled: Filled, folder: Path) -> list[Path]:
    """Write the pictures of a figure that have numbers, and return their paths."""
    paths = []
    for name, _, picture in pictures(filled):
        folder.mkdir(parents=True, exist_ok=True)
        paths.append(folder / name)
        paths[-1].write_text(picture, encoding="utf-8")
    return paths


def pictures(filled: Filled, *, alone: bool = True) -> list[tuple[str, str, str]]:
    """Return file name, task ("" for all tasks) and SVG of every picture that has numbers.

    Pictures that stand `alone` have the budgets of the paper and of the runs below.
    """
    figure = filled.part
    if not isinstance(figure, Figure):
        raise ValueError(f"{figure.label} is not a figure")
    name = f"{filled.paper.name}.{figure.label.replace(' ', '-').lower()}"
    drawn = _heat_maps(filled) if figure.kind == "pairs" else _curves(filled, figure)
    return [
        (
            f"{name}.{slug(task)}.svg" if task else f"{name}.svg",
            task,
            _with_lines(svg, budgets(filled.of(task))) if alone else svg,
        )
        for task, svg in drawn.items()
    ]


def _with_lines(svg: str, lines: Sequence[str]) -> str:
    """Add lines of small text below a picture, wrapped to its width."""
    size = re.search(r'viewBox="0 0 (\d+) (\d+)" width="\d+" height="\d+"', svg)
    if size is None:
        raise ValueError("expected a picture with its size in pixels")
    wide, high = int(size[1]), int(size[2])
    shown = [part for line in lines for part in wrap(line, wide // 7)]  # 7: of a letter, about
    more = "".join(
        f'<text x="12" y="{high + 16 * at}" class="s">{escape(text)}</text>\n'
        for at, text in enumerate(shown, 1)
    )
    high += 16 * len(shown) + 12
    grown = f'viewBox="0 0 {wide} {high}" width="{wide}" height="{high}"'
    head, end, tail = svg.replace(size[0], grown, 1).rpartition("</svg>")
    return head + more + end + tail


def points_of(filled: Filled, figure: Figure) -> dict[str, list[Points]]:
    """Return the curves of each picture by its task; "" for one picture of all tasks."""
    found: dict[str, dict[str, Points]] = defaultdict(dict)
    for cell in filled.cells:
        for task, label, runs in _groups(cell, figure):
            before = found[task].get(label)
            found[task][label] = _points(label, cell, runs, figure, before.cells if before else ())
    return {task: [*drawn.values()] for task, drawn in found.items()}


def _curves(filled: Filled, figure: Figure) -> dict[str, str]:
    """Return the pictures by task; a curve has one style in all of them."""
    found = points_of(filled, figure)
    look = styles(curve for drawn in found.values() for curve in drawn)
    about = f"{figure.label}, {filled.protocol.name}"
    return {
        task: curves(
            f"{task} ({about})" if task else f"{filled.paper.name}, {about}",
            drawn,
            look,
            figure.axis,
        )
        for task, drawn in found.items()
    }


def _groups(cell: Cell, figure: Figure) -> Iterator[tuple[str, str, Sequence[Record]]]:
    """Yield the picture, the curve and the runs of a cell."""
    if not cell.used:
        return
    if figure.kind == "seeds":
        for run in sorted(cell.used, key=lambda run: run.seed):
            yield cell.task, f"{cell.column}, seed {run.seed}", (run,)
    elif figure.kind == "sweep":
        yield "", cell.task, cell.used
    elif figure.kind == "tasks":
        several = len(figure.columns) > 1
        yield "", f"{cell.task}, {cell.column}" if several else cell.task, cell.used
    else:
        yield cell.task, cell.column, cell.used


def _points(
    label: str, cell: Cell, runs: Sequence[Record], figure: Figure, before: tuple[Point, ...]
) -> Points:
    """Return the means over runs, with intervals, along the axis of the figure."""
    trained = None
    values: dict[tuple[int, bool], list[float]] = defaultdict(list)
    if figure.kind == "sweep" and cell.ours:
        values[int(cell.column), False] = [cell.ours.value / 100]
    elif figure.kind in ("time", "steps"):
        for step in sorted({lesson.step for run in runs for lesson in run.learning}):
            lessons = [one for run in runs for one in run.learning if one.step == step]
            seconds = round(fmean(one.seconds or 0.0 for one in lessons))
            own_values = [getattr(one, figure.measure) or 0.0 for one in lessons]
            values[step if figure.kind == "steps" else seconds, False] += own_values
    else:
        trained = runs[0].train_length
        for score in (one for run in runs for one in getattr(run.scores, cell.checkpoint)):
            if (value := getattr(score, figure.measure)) is not None:
                values[score.length, score.seen].append(value)
    points = [
        Point(length=length, seen=seen, main=over_seeds(own))
        for (length, seen), own in sorted(values.items())
    ]
    metric = EXACT if figure.measure in ("exact", "test_exact") else TOKENS
    return Points(label, (*before, *points), metric, trained)


def _heat_maps(filled: Filled) -> dict[str, str]:
    """Return a heat map per task, of the first column, averaged over runs."""
    found: dict[str, str] = {}
    for cell in filled.cells:
        values = defaultdict(list)
        for pair, score in ((p, s) for run in cell.used for p, s in pairs_of(run).items()):
            if score.exact is not None:
                values[pair].append(score.exact)
        if values and cell.task not in found:
            title = f"{cell.task}, {cell.column} ({filled.part.label}, {filled.protocol.name})"
            shares = {pair: fmean(own) for pair, own in values.items()}
            found[cell.task] = heat_map(title, shares, cell.used[0].train_length)
    return found
