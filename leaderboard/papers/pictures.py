"""Pictures of filled figures."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Literal

from experiment.files import slug, write
from experiment.protocol import base
from leaderboard.catalog import Catalog
from leaderboard.charts.curves import curves
from leaderboard.charts.grids import heat_map
from leaderboard.charts.styles import styles
from leaderboard.papers.caption import budgets, selection
from leaderboard.papers.cells import Cell, Filled, filled_by_first, pairs_of
from leaderboard.papers.paper import PaperFigure, names, read
from leaderboard.record.schema import Record
from leaderboard.stats.intervals import over_seeds
from leaderboard.stats.rows import EXACT, TOKENS, Point, Points


@dataclass(frozen=True)
class PaperPicture:
    """One picture of a figure: of one task, or of all tasks for the task ""."""

    file: str
    task: str
    svg: str
    filled: Filled  # the rows that it shows
    figure: PaperFigure

    def shows(self, task: str) -> bool:
        """Return whether the task is in the picture."""
        return task == self.task or (not self.task and task in self.figure.tasks)

    @property
    def name(self) -> str:
        """The paper and the figure."""
        paper = self.filled.paper
        return f"{paper.authors} ({paper.year}), {self.figure.label}: {self.figure.title}"

    @property
    def notes(self) -> list[str]:
        """Remarks, how evaluations were selected, and budgets."""
        return [*self.figure.remarks, *selection(self.filled), *budgets(self.filled)]


def draw(filled: Filled, folder: Path) -> list[Path]:
    """Write the pictures of a figure that have numbers, and return their paths."""
    return [write(folder / one.file, one.svg) for one in pictures(filled)]


def figures_of(records: Sequence[Record], catalog: Catalog) -> list[PaperPicture]:
    """Return the pictures that have runs, each by the first protocol of its paper with runs."""
    found = (pictures(filled, alone=False) for filled in filled_of(records, catalog, "figures"))
    return [picture for some in found for picture in some]


def filled_of(
    records: Sequence[Record], catalog: Catalog, kind: Literal["tables", "figures"]
) -> Iterator[Filled]:
    """Yield the tables or figures of all papers that runs fill."""
    ran = {record.protocol for record in records}
    some = {base(name) for name in ran}
    current = {name: known.versions[0] for name, known in catalog.protocols.items()}
    for paper in map(read, names()):
        for part in getattr(paper, kind).values():
            own = [current[name] for name in part.protocols if name in current and name in some]
            if ran & {one.name for one in own}:
                full = current.get(part.protocols[0])
                yield filled_by_first(paper, part, records, own, reference=full)


def pictures(filled: Filled, *, alone: bool = True) -> list[PaperPicture]:
    """Return every picture of a figure that has numbers.

    Pictures that stand `alone` have the budgets of the paper and of the runs below.
    """
    figure = filled.part
    if not isinstance(figure, PaperFigure):
        raise ValueError(f"{figure.label} is not a figure")
    name = f"{filled.paper.name}.{figure.label.replace(' ', '-').lower()}"
    drawn = points_of(filled, figure)
    look = styles(curve for some in drawn.values() for curve in some)
    about = f"{figure.label}, {filled.protocol.name}"
    found = []
    for task, some in drawn.items():
        own = filled.of(task)
        notes = budgets(own) if alone else ()
        if figure.kind == "pairs":
            svg = _heat_map(own, about, notes)
        else:
            title = f"{task} ({about})" if task else f"{filled.paper.name}, {about}"
            svg = curves(title, some, look, figure.axis, notes=notes, band=figure.band)
        file = f"{name}.{slug(task)}.svg" if task else f"{name}.svg"
        found.append(PaperPicture(file, task, svg, own, figure))
    return found


def points_of(filled: Filled, figure: PaperFigure) -> dict[str, list[Points]]:
    """Return the curves of each picture by its task; "" for one picture of all tasks."""
    found: dict[str, dict[str, Points]] = defaultdict(dict)
    for cell in filled.cells:
        for task, label, runs in _groups(cell, figure):
            before = found[task].get(label)
            found[task][label] = _points(label, cell, runs, figure, before.cells if before else ())
    return {task: [*drawn.values()] for task, drawn in found.items()}


def _groups(cell: Cell, figure: PaperFigure) -> Iterator[tuple[str, str, Sequence[Record]]]:
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
    label: str, cell: Cell, runs: Sequence[Record], figure: PaperFigure, before: tuple[Point, ...]
) -> Points:
    """Return the means over runs, with intervals, along the axis of the figure."""
    trained = None
    values: dict[tuple[int, bool], list[float]] = defaultdict(list)
    measure = "exact" if figure.kind == "pairs" else figure.measure
    if figure.kind == "sweep" and cell.ours:
        values[int(cell.column), False] = [cell.ours.value / 100]
    elif figure.kind in ("time", "steps"):
        for step in sorted({lesson.step for run in runs for lesson in run.learning}):
            lessons = [one for run in runs for one in run.learning if one.step == step]
            seconds = round(fmean(one.seconds or 0.0 for one in lessons))
            own_values = [getattr(one, measure) or 0.0 for one in lessons]
            values[step if figure.kind == "steps" else seconds, False] += own_values
    else:
        trained = runs[0].train_length
        for score in (one for run in runs for one in getattr(run.scores, cell.checkpoint)):
            if (value := getattr(score, measure)) is not None:
                values[score.length, score.seen].append(value)
    points = [
        Point(length=length, seen=seen, main=over_seeds(own))
        for (length, seen), own in sorted(values.items())
    ]
    metric = EXACT if measure in ("exact", "test_exact") else TOKENS
    return Points(label, (*before, *points), metric, trained)


def _heat_map(filled: Filled, about: str, notes: Sequence[str]) -> str:
    """Return the heat map of the first column with runs, averaged over runs."""
    cell = next(cell for cell in filled.cells if cell.used)
    values = defaultdict(list)
    for pair, score in ((p, s) for run in cell.used for p, s in pairs_of(run).items()):
        if score.exact is not None:
            values[pair].append(score.exact)
    shares = {pair: fmean(own) for pair, own in values.items()}
    title = f"{cell.task}, {cell.column} ({about})"
    return heat_map(title, shares, cell.used[0].train_length, notes)
