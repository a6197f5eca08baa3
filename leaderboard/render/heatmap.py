"""Exact match over two lengths as a self-contained SVG."""

from __future__ import annotations

from collections.abc import Mapping

from leaderboard.render.templating import render

CELL, LEFT, TOP = 56, 72, 60  # pixels


def heat_map(title: str, shares: Mapping[tuple[int, int], float], trained: int) -> str:
    """Return the SVG text: a row per first length, a column per second, shares (0..1) as percent.

    Pairs of which neither is longer than `trained` have a frame.
    """
    rows, columns = (sorted({pair[at] for pair in shares}) for at in range(2))
    cells = [
        {
            "x": LEFT + CELL * columns.index(second),
            "y": TOP + CELL * rows.index(first),
            "share": share,
            "text": f"{100 * share:.0f}",
            "seen": max(first, second) <= trained,
        }
        for (first, second), share in sorted(shares.items())
    ]
    return render(
        "heatmap.svg",
        title=title,
        cells=cells,
        rows=[(TOP + CELL * at, length) for at, length in enumerate(rows)],
        columns=[(LEFT + CELL * at, length) for at, length in enumerate(columns)],
        size=CELL,
        left=LEFT,
        top=TOP,
        width=max(LEFT + CELL * len(columns) + 16, 24 + 9 * len(title)),  # 9: of a letter, about
        height=TOP + CELL * len(rows) + 64,
    )
