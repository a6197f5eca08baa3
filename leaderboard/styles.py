"""How a row is drawn: the same colour, dash and marker for it in every picture."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from leaderboard.rows import Cell, Points, Row

# Okabe and Ito's colours, which colour-blind readers can tell apart, without yellow and black,
# which vanish on a light and on a dark page.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f")
DASHES = ("solid", "dash", "dot", "dashdot")
MARKERS = ("circle", "square", "diamond", "triangle-up", "triangle-down")


@dataclass(frozen=True)
class Style:
    """Names as Plotly spells them."""

    colour: str
    dash: str
    marker: str


def styles(rows: Iterable[Row | Points]) -> dict[str, Style]:
    """One style per label. The first 140 differ; colour first, then dash, always with a marker.

    An evaluation mode keeps its encoding's colour, dotted and with a cross.
    """
    modes = {
        row.label: row.label.removesuffix(f" ({row.mode})") if row.mode else "" for row in rows
    }
    plain = sorted({encoding or label for label, encoding in modes.items()})
    found = {
        label: Style(
            COLOURS[at % len(COLOURS)],
            DASHES[at // len(COLOURS) % len(DASHES)],
            MARKERS[at % len(MARKERS)],
        )
        for at, label in enumerate(plain)
    }
    return found | {
        label: replace(found[encoding], dash="dot", marker="cross")
        for label, encoding in modes.items()
        if encoding
    }


def needs_log(lengths: Iterable[int]) -> bool:
    """Whether lengths spread so far that a logarithmic axis shows them better."""
    positive = [length for length in lengths if length > 0]
    return bool(positive) and max(positive) >= 8 * min(positive)


def after_the_curve(cells: Iterable[Cell]) -> str:
    """What a curve cannot show, as in " (cannot represent from 15)"; "" where it shows all."""
    for cell in cells:
        if cell.status not in ("ok", "no instance"):
            where = "" if cell.status == "failed" else f" from {cell.length}"
            return f" ({cell.status}{where})"
    return ""
