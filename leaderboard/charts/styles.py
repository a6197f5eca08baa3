"""Styles of curves: an encoding has one colour, dash and marker.

In a picture where another curve has that colour already, it gets a free one.
"""

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from importlib.resources import files

from leaderboard.stats.rows import NOT_LEARNED, Point, Points, Row
from pezoo.spec import bare

# Dark enough on a white page, light enough on a black one, and no grey, which is the axes'.
COLOURS = (
    "#1f78c1", "#d9541e", "#12925f", "#9a5fc0", "#c28a00",
    "#d6457e", "#1d9bb3", "#7d8b00", "#a0652f", "#c23b3b",
)  # fmt: skip
DASHES = (
    *("solid", "dash", "dashdot", "longdash", "longdashdot", "shortdash", "dashdotdot"),
    *("widedash", "dashdots"),
)
MARKERS = ("circle", "square", "diamond", "triangle-up", "triangle-down")
MOST = 8  # curves in one picture
SETTINGS = tomllib.loads((files("leaderboard") / "readme.toml").read_text("utf-8"))


@dataclass(frozen=True)
class Style:
    """Colour, dash and marker of a curve."""

    colour: str
    dash: str
    marker: str


def styles(rows: Iterable[Row] | Iterable[Points]) -> dict[str, Style]:
    """Return one style per label.

    A row's follows from its encoding's name alone, whatever else is drawn: the place in
    colours.txt, or the name's hash. Options keep the colour; a mode, and seeds apart, are dotted
    with a cross. Curves of other kinds differ by their order, unless their labels are names of
    colours.txt.
    """
    found = list(rows)
    points = sorted({one.label for one in found if isinstance(one, Points)})
    own = {label: at for at, label in enumerate(points)}
    places = _order() if own.keys() <= _order().keys() else own
    return {one.label: _of(one) for one in found if isinstance(one, Row)} | {
        label: _style(places[label]) for label in points
    }


def shown(rows: Iterable[Row]) -> list[Row]:
    """Return the rows of a picture: the best without custom options, of one mode, of
    the seeds that count, and the usual baselines."""
    plain = [row for row in rows if not row.aside and any(cell.main for cell in row.cells)]
    own = [row for row in plain if not row.custom] or plain
    return usual(own, own)


def usual(wanted: Sequence[Row], rows: Sequence[Row]) -> list[Row]:
    """Return at most MOST of the wanted rows and the usual baselines, in the order of `rows`."""
    always = [row for row in rows if row.label in SETTINGS["baselines"] and row.competes]
    first = [row for row in wanted if row not in always][: MOST - len(always)]
    return [row for row in rows if row in always or row in first]


def apart(wanted: Sequence[Style]) -> list[Style]:
    """Return the styles of the curves of one picture: a colour that another curve has is replaced
    by one that none has. Solid curves, the first to have each colour, keep theirs, and so do dotted
    ones, the modes of another curve."""
    found = [*wanted]
    used: set[str] = set()
    for at in sorted(range(len(found)), key=lambda at: found[at].dash != "solid"):
        free = [colour for colour in COLOURS if colour not in used]
        if found[at].colour in used and found[at].dash != "dot" and free:
            found[at] = replace(found[at], colour=free[0])
        used.add(found[at].colour)
    return found


def _of(row: Row) -> Style:
    name = bare(row.encoding)
    order = _order()
    own = _style(order[name] if name in order else _digest(name))
    if row.encoding != name:
        dash, marker = divmod(_digest(row.plain), len(MARKERS))
        own = replace(own, dash=DASHES[1 + dash % 2], marker=MARKERS[marker])
    return replace(own, dash="dot", marker="cross") if row.aside else own


def distinct(at: int) -> Style:
    """Return the style of a curve by its number, for pictures with at most ten curves."""
    return Style(COLOURS[at % len(COLOURS)], DASHES[0], MARKERS[at % len(MARKERS)])


def _style(at: int) -> Style:
    more = at // len(COLOURS)
    dash, marker = DASHES[more % len(DASHES)], MARKERS[(at + more) % len(MARKERS)]
    return Style(COLOURS[at % len(COLOURS)], dash, marker)


def _digest(text: str) -> int:
    return int(sha256(text.encode()).hexdigest()[:6], 16)


@lru_cache(1)
def _order() -> dict[str, int]:
    """Return the index of each encoding. New ones are appended, so that colours stay."""
    text = (files("leaderboard.charts") / "colours.txt").read_text(encoding="utf-8")
    return {name: at for at, name in enumerate(text.split())}


def needs_log(lengths: Iterable[int]) -> bool:
    """Return whether lengths need a logarithmic axis."""
    positive = [length for length in lengths if length > 0]
    return bool(positive) and max(positive) >= 8 * min(positive)


def after_the_curve(cells: Iterable[Point]) -> str:
    """Return the status where a curve ends early, as " (cannot represent from 15)"; else ""."""
    for cell in cells:
        if cell.status not in ("ok", "no instance"):
            whole = cell.status in ("failed", NOT_LEARNED)
            where = "" if whole else f" from {cell.length}"
            return f" ({cell.status}{where})"
    return ""
