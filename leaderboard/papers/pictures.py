"""A filled figure as pictures: accuracy over test lengths, training, or what was swept."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from html import escape
from itertools import groupby
from pathlib import Path
from statistics import fmean
from textwrap import wrap

from experiment.files import slug
from leaderboard.papers.budget import budgets
from leaderboard.papers.cells import Cell, Filled, pairs_of
from leaderboard.papers.paper import Figure
from leaderboard.record.schema import Record
from leaderboard.record.scores import Lesson
from leaderboard.render.curves import curves
from leaderboard.render.heatmap import heat_map
from leaderboard.render.styles import styles
from leaderboard.stats.intervals import over_seeds
from leaderboard.stats.rows import EXACT, TOKENS, Points
from leaderboard.stats.rows import Cell as Point


def draw(filled: Filled, folder: Path) -> list[Path]:
    """Write the pictures of a figure for which there are numbers; their paths."""
    paths = []
    for name, _, picture in pictures(filled):
        folder.mkdir(parents=True, exist_ok=True)
        paths.append(folder / name)
        paths[-1].write_text(picture, encoding="utf-8")
    return paths


def pictures(filled: Filled, *, alone: bool = True) -> list[tuple[str, str, str]]:
    """File name, task ("" for all of the figure's) and SVG of every picture that has numbers.

    Below each that stands `alone`, beside no text, are the paper's budget and ours.
    """
    figure = filled.part
    if not isinstance(figure, Figure):
        raise ValueError(f"{figure.label} is no figure")
    name = f"{filled.paper.name}.{figure.label.replace(' ', '-').lower()}"
    kinds = {
        "curves": _curves,
        "time": _curves,
        "steps": _curves,
        "seeds": _curves,
        "sweep": _sweep,
    }
    kinds |= {"tasks": _tasks, "pairs": _pairs}
    drawn = kinds[figure.kind](filled, figure)
    return [
        (
            f"{name}.{slug(task)}.svg" if task else f"{name}.svg",
            task,
            _with_lines(svg, budgets(filled.of(task))) if alone else svg,
        )
        for task, svg in drawn.items()
    ]


def _with_lines(svg: str, lines: Sequence[str]) -> str:
    """The picture with lines of small text below it, wrapped to its width."""
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


def _curves(filled: Filled, figure: Figure) -> dict[str, str]:
    """A picture per task, a curve per column, each in the same style everywhere."""
    found: dict[str, list[Points]] = {}
    for task, cells in groupby(filled.cells, lambda cell: cell.task):
        used = [cell for cell in cells if cell.used]
        if figure.kind == "seeds":
            alone = [(cell, run) for cell in used for run in cell.used]
            one = [replace(cell, used=(run,), column=_of_seed(cell, run)) for cell, run in alone]
            used = sorted(one, key=lambda cell: cell.used[0].seed)
        curve = _over_training if figure.kind in ("time", "steps") else _curve
        found[task] = [curve(cell, figure) for cell in used]
    look = styles(curve for drawn in found.values() for curve in drawn)
    title = f"{figure.label}, {filled.protocol.name}"
    return {
        task: curves(f"{task} ({title})", drawn, look, figure.axis)
        for task, drawn in found.items()
        if drawn
    }


def _curve(cell: Cell, figure: Figure) -> Points:
    """The mean of a cell's runs at every length, with the interval over their seeds."""
    values: dict[tuple[int, bool], list[float]] = defaultdict(list)
    for run in cell.used:
        for score in getattr(run.scores, cell.checkpoint):
            if (value := getattr(score, figure.measure)) is not None:
                values[score.length, score.seen].append(value)
    points = [
        Point(length=length, seen=seen, main=over_seeds(own))
        for (length, seen), own in sorted(values.items())
    ]
    return Points(cell.column, tuple(points), _metric(figure), cell.used[0].train_length)


def _over_training(cell: Cell, figure: Figure) -> Points:
    """The mean of a cell's runs at every evaluation, at its step or the mean of their seconds."""
    points: dict[int, list[Lesson]] = defaultdict(list)
    for run in cell.used:
        for lesson in run.learning:
            points[lesson.step].append(lesson)
    cells = [
        Point(
            length=step
            if figure.kind == "steps"
            else round(fmean(one.seconds or 0.0 for one in own)),
            seen=False,
            main=over_seeds([getattr(one, figure.measure) or 0.0 for one in own]),
        )
        for step, own in sorted(points.items())
    ]
    return Points(cell.column, tuple(cells), _metric(figure), None)


def _of_seed(cell: Cell, run: Record) -> str:
    return f"{cell.column}, seed {run.seed}"


def _tasks(filled: Filled, figure: Figure) -> dict[str, str]:
    """One picture, a curve per task and column."""
    several = len(figure.columns) > 1
    drawn = [
        _curve(
            replace(cell, column=f"{cell.task}, {cell.column}" if several else cell.task), figure
        )
        for cell in filled.cells
        if cell.used
    ]
    title = f"{filled.paper.name}, {figure.label}, {filled.protocol.name}"
    return {"": curves(title, drawn, axis=figure.axis)} if drawn else {}


def _pairs(filled: Filled, figure: Figure) -> dict[str, str]:
    """A heat map per task, the first column's, averaged over its runs."""
    found = {}
    for cell in filled.cells:
        values = defaultdict(list)
        for pair, score in ((p, s) for run in cell.used for p, s in pairs_of(run).items()):
            if score.exact is not None:
                values[pair].append(score.exact)
        if values and cell.task not in found:
            title = f"{cell.task}, {cell.column} ({figure.label}, {filled.protocol.name})"
            shares = {pair: fmean(own) for pair, own in values.items()}
            found[cell.task] = heat_map(title, shares, cell.used[0].train_length)
    return found


def _sweep(filled: Filled, figure: Figure) -> dict[str, str]:
    """One picture, of no single task: a curve per task over the numbers that name the columns."""
    drawn = []
    for task, cells in groupby(filled.cells, lambda cell: cell.task):
        points = [
            Point(length=int(cell.column), seen=False, main=over_seeds([cell.ours.value / 100]))
            for cell in cells
            if cell.ours
        ]
        drawn += [Points(task, tuple(points), _metric(figure), None)] if points else []
    title = f"{filled.paper.name}, {figure.label}, {filled.protocol.name}"
    return {"": curves(title, drawn, axis=figure.axis)} if drawn else {}


def _metric(figure: Figure) -> str:
    return EXACT if figure.measure in ("exact", "test_exact", "pairs") else TOKENS
