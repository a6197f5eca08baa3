"""How a row is drawn: the same colour, dash and marker for it in every picture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

# Okabe and Ito's colours, which colour-blind readers can tell apart, without yellow and black,
# which vanish on a light and on a dark page.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f")
DASHES = ("solid", "dash", "dot", "dashdot")
MARKERS = ("circle", "square", "diamond", "triangle-up", "triangle-down")


@dataclass(frozen=True)
class Look:
    """Names as Plotly spells them."""

    colour: str
    dash: str
    marker: str


def looks(labels: Iterable[str], modes: Mapping[str, str] | None = None) -> dict[str, Look]:
    """One look per label. The first 140 differ; colour first, then dash, always with a marker.

    `modes` leads from the label of an evaluation mode to the label of the encoding that was
    trained: it keeps the colour, dotted and with a cross.
    """
    modes = modes or {}
    plain = sorted(set(labels) - modes.keys() | set(modes.values()))
    found = {
        label: Look(
            COLOURS[at % len(COLOURS)],
            DASHES[at // len(COLOURS) % len(DASHES)],
            MARKERS[at % len(MARKERS)],
        )
        for at, label in enumerate(plain)
    }
    return found | {
        mode: replace(found[label], dash="dot", marker="cross") for mode, label in modes.items()
    }


def wide(lengths: Iterable[int]) -> bool:
    """Whether lengths spread so far that a logarithmic axis shows them better."""
    positive = [length for length in lengths if length > 0]
    return bool(positive) and max(positive) >= 8 * min(positive)


def last_words(cells: Iterable[tuple[int, str]]) -> str:
    """What a curve cannot show: ` (cannot represent from 15)`, or nothing.

    >>> last_words([(10, "ok"), (15, "cannot represent")])
    ' (cannot represent from 15)'
    """
    for length, status in cells:
        if status not in ("ok", "no instance"):
            return " (failed)" if status == "failed" else f" ({status} from {length})"
    return ""
