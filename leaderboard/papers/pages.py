"""Figures of papers for the pages of their tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from leaderboard.catalog import Catalog
from leaderboard.papers.caption import budgets
from leaderboard.papers.cells import filled_by_first
from leaderboard.papers.paper import Paper, names, read
from leaderboard.papers.pictures import pictures
from leaderboard.record.schema import Record


@dataclass(frozen=True)
class PageFigure:
    """A picture with its tasks, title, budget and command."""

    file: str
    svg: str
    tasks: tuple[str, ...]
    title: str
    words: str
    made: str
    command: str


def figures_of(records: Sequence[Record], catalog: Catalog) -> list[PageFigure]:
    """Return the pictures that have runs, each by the first protocol of its paper with runs."""
    found = []
    for paper in map(read, names()):
        there = {record.protocol for record in records} & set(paper.protocols)
        for number in paper.figures if there & catalog.protocols.keys() else ():
            found += _pictures(paper, number, records, catalog)
    return found


def _pictures(
    paper: Paper, number: str, records: Sequence[Record], catalog: Catalog
) -> list[PageFigure]:
    figure = paper.figure(number)
    known = [catalog.protocols[name] for name in paper.protocols if name in catalog.protocols]
    first = catalog.protocols.get(paper.protocols[0])
    full = first.versions[0] if first else None
    own = [one.versions[0] for one in known]
    filled = filled_by_first(paper, figure, records, own, reference=full)
    return [
        PageFigure(
            file=file,
            svg=svg,
            tasks=(task,) if task else figure.tasks,
            title=f"{paper.authors} ({paper.year}), {figure.label}",
            words=f"{figure.title}.",
            made=" ".join([*figure.remarks, *budgets(filled.of(task))]),
            command=f"pezoo table {paper.name} --figure {number}",
        )
        for file, task, svg in pictures(filled, alone=False)
    ]
