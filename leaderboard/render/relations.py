"""Pictures of positional relations as SVG in the colours of the page.

The caller computes the matrices; this package does not import torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from leaderboard.render.templating import render

CELL, LEFT, TOP = 22, 36, 52  # pixels
Matrix = tuple[tuple[int, ...], ...]  # a row for each query i, a column for each key j


@dataclass(frozen=True)
class Relation:
    """phi(i, j) of queries i and keys j from 0 on: panels of a title and a square matrix."""

    panels: tuple[tuple[str, Matrix], ...]
    words: str  # what the numbers are


Relations = Callable[[str], Relation | None]  # by the name of an encoding; None: it has none


def relation_maps(relation: Relation, name: str) -> list[str]:
    """Return the SVG text of every panel; larger values have deeper colours.

    The description of each holds its numbers, row by row.
    """
    values = [value for _, matrix in relation.panels for row in matrix for value in row]
    low, span = min(values), (max(values) - min(values)) or 1
    return [
        render(
            "relation.svg",
            id=f"phi-{name}-{at}",
            title=f"Positional relation of {name}{title and f', {title}'}",
            head=title,
            matrix=matrix,
            shares=[[(value - low) / span for value in row] for row in matrix],
            size=CELL,
            left=LEFT,
            top=TOP,
        )
        for at, (title, matrix) in enumerate(relation.panels)
    ]
