"""Grids of shaded cells as SVG: exact match over two lengths, and positional relation functions."""

from collections.abc import Mapping, Sequence

from leaderboard.catalog import PRFMaps
from leaderboard.charts.drawing import draw


def heat_map(
    title: str, shares: Mapping[tuple[int, int], float], trained: int, notes: Sequence[str]
) -> str:
    """Return the SVG text: a row per first length, a column per second, shares (0..1) as percent.

    Pairs of lengths in training have a frame. `notes` are lines of small text below.
    """
    rows, columns = (sorted({pair[at] for pair in shares}) for at in range(2))
    cells = [
        [_percent(shares.get((one, two)), max(one, two) <= trained) for two in columns]
        for one in rows
    ]
    axes = ("first length", rows), ("second length", columns)
    more = {"note": "exact match, %; framed: lengths in training", "notes": notes}
    return draw("grid.svg", title=title, cells=cells, axes=axes, size=56, id="", **more)


def _percent(share: float | None, framed: bool) -> tuple[str, float, bool] | None:
    """Return text, shade and frame of a cell; None without a share."""
    return None if share is None else (f"{100 * share:.0f}", share, framed)


def prf_grids(maps: PRFMaps, name: str) -> list[str]:
    """Return the SVG text of every panel; larger values have deeper colours.

    The description of each panel holds its numbers, row by row.
    """
    values = [value for _, matrix in maps.panels for row in matrix for value in row]
    low, span = min(values), (max(values) - min(values)) or 1
    found = []
    for at, (head, matrix) in enumerate(maps.panels):
        cells = [[(str(value), (value - low) / span, False) for value in row] for row in matrix]
        axes = ("query i", range(len(matrix))), ("key j", range(len(matrix)))
        title = f"Positional relation function of {name}{head and f', {head}'}"
        more = {"note": head, "id": f"prf-{name}-{at}", "size": 22, "notes": ()}
        found.append(draw("grid.svg", title=title, cells=cells, axes=axes, **more))
    return found
