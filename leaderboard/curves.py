"""One table as a picture: exact match against length, as SVG that needs nothing else.

White ground, so that it reads on a light and on a dark page. Text is escaped; nothing in a record
can add an element or an attribute. Curves that coincide show in turn, the highest in rank on top.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import pairwise
from math import log

from leaderboard.overlaps import ROOM, Curve, Overlaps, Point
from leaderboard.rows import Cell, Row
from leaderboard.styles import Style, after_the_curve, needs_log, styles

LEFT, TOP, WIDTH, HEIGHT = 64, 48, 560, 300  # the plotted area, in pixels
LEGEND = 340
_DASH = {"solid": "", "dash": "7 4", "dot": "2 3", "dashdot": "8 3 2 3"}
_MARK = {
    "circle": "M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0z",
    "square": "M-3 -3h6v6h-6z",
    "diamond": "M0 -4.5l4.5 4.5l-4.5 4.5l-4.5 -4.5z",
    "triangle-up": "M0 -4l4 7h-8z",
    "triangle-down": "M0 4l4 -7h-8z",
    "cross": "M-1.2 -4h2.4v2.8h2.8v2.4h-2.8v2.8h-2.4v-2.8h-2.8v-2.4h2.8z",
}
_STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#222}.t{font-size:15px;font-weight:600}"
    ".s{font-size:12px;fill:#555}.m{text-anchor:middle}.e{text-anchor:end}"
    ".g{stroke:#ddd}.a{stroke:#555}.c{fill:none;stroke-width:2}"
)


class Axis:
    """Length to pixel, linear, or logarithmic where the lengths spread far."""

    def __init__(self, lengths: Sequence[int]) -> None:
        self.log = needs_log(lengths)
        ends = [self._scale(n) for n in (min(lengths, default=0), max(lengths, default=1))]
        self.start, self.span = ends[0], (ends[1] - ends[0]) or 1.0
        self.inner = WIDTH - 2 * ROOM

    def _scale(self, length: int) -> float:
        return log(max(length, 1)) if self.log else float(length)

    def x(self, length: int) -> float:
        return LEFT + ROOM + self.inner * (self._scale(length) - self.start) / self.span


def curves(title: str, rows: Sequence[Row], look: Mapping[str, Style] | None = None) -> str:
    """The SVG text. `look` keeps styles equal across pictures; else they follow from `rows`."""
    look = look or styles(rows)
    cells = sorted({cell.length for row in rows for cell in row.cells})
    axis = Axis(cells + [row.train_length for row in rows])
    height = max(TOP + HEIGHT + 76, TOP + 22 * len(rows) + 40)
    body = [
        f"<title>{escape(title)}: exact match against length</title>",
        f"<style>{_STYLE}</style>",
        f'<rect width="100%" height="100%" fill="#fff"/>{_text(LEFT, 26, title, "t")}',
        *_frame(cells, axis),
    ]
    for length in sorted({row.train_length for row in rows}):
        body += _training(axis.x(length))
    body += [_band(row, axis, look[row.label]) for row in rows]
    lines = [_points(row, axis) for row in rows]
    overlaps = Overlaps(lines)
    body += [
        _line(at, lines[at], look[rows[at].label], overlaps) for at in reversed(range(len(rows)))
    ]
    if overlaps:
        words = "where curves coincide, markers stand side by side and dashes take turns"
        body.append(_text(LEFT + WIDTH / 2, TOP + HEIGHT + 64, words, "s m"))
    body += [_legend(at, row, look[row.label]) for at, row in enumerate(rows)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + LEGEND} {height}" '
        f'width="{LEFT + WIDTH + LEGEND}" height="{height}" role="img">\n'
        + "\n".join(body)
        + "\n</svg>\n"
    )


def _y(share: float) -> float:
    return TOP + HEIGHT * (1 - share)


def _text(x: float, y: float, text: str, css: str = "", more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{css}"{more}>{escape(text)}</text>'


def _frame(lengths: Sequence[int], axis: Axis) -> Iterable[str]:
    for share in (0, 0.25, 0.5, 0.75, 1):
        yield f'<path class="g" d="M{LEFT} {_y(share):.1f}h{WIDTH}"/>'
        yield _text(LEFT - 8, _y(share) + 4, f"{100 * share:.0f}", "s e")
    yield f'<path class="a" d="M{LEFT} {TOP + HEIGHT}h{WIDTH}"/>'
    last = -100.0
    for length in lengths:
        x = axis.x(length)
        yield f'<path class="a" d="M{x:.1f} {TOP + HEIGHT}v5"/>'
        if x - last >= 9 + 7 * len(str(length)):
            yield _text(x, TOP + HEIGHT + 20, str(length), "s m")
            last = x
    scale = ", logarithmic scale" if axis.log else ""
    yield _text(LEFT + WIDTH / 2, TOP + HEIGHT + 44, f"test length{scale}", "m")
    middle = TOP + HEIGHT / 2
    turn = f' transform="rotate(-90 18 {middle:.1f})"'
    yield _text(18, middle, "exact match, %", "m", turn)


def _training(x: float) -> list[str]:
    line = f'<path d="M{x:.1f} {TOP}v{HEIGHT}" stroke="#555" stroke-dasharray="5 4"/>'
    return [line, _text(max(x, LEFT + 10), TOP - 6, "longest length in training", "s")]


def _runs_of_numbers(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Stretches without a gap: a length with words instead of a number ends a stretch."""
    parts: list[list[Cell]] = [[]]
    for cell in cells:
        if cell.exact is not None:
            parts[-1].append(cell)
        elif cell.status != "no instance":
            parts.append([])
    return [part for part in parts if part]


def _band(row: Row, axis: Axis, style: Style) -> str:
    shapes = []
    for part in _runs_of_numbers(row.cells):
        ends = [(axis.x(c.length), c.exact.low, c.exact.high) for c in part if c.exact]
        there = [f"{x:.1f} {_y(high):.1f}" for x, _, high in ends if high is not None]
        back = [f"{x:.1f} {_y(low):.1f}" for x, low, _ in reversed(ends) if low is not None]
        shapes.append("M" + "L".join(there + back) + "z")
    return f'<path d="{"".join(shapes)}" fill="{style.colour}" fill-opacity=".13"/>'


def _points(row: Row, axis: Axis) -> list[list[Point]]:
    return [
        [(axis.x(cell.length), _y(cell.exact.mean)) for cell in part if cell.exact]
        for part in _runs_of_numbers(row.cells)
    ]


def _line(at: int, parts: Curve, style: Style, overlaps: Overlaps) -> str:
    alone, shared, last = "", [], None
    for start, end in (pair for part in parts for pair in pairwise(part)):
        dash = overlaps.dash(at, start, end)
        path = f"L{end[0]:.1f} {end[1]:.1f}"
        moved = f"M{start[0]:.1f} {start[1]:.1f}"
        if dash is None:
            alone += path if start == last else moved + path
            last = end
        else:
            shared.append(f'<path class="c" d="{moved}{path}" stroke="{style.colour}" {dash}/>')
    line = (
        f'<path class="c" d="{alone}" stroke="{style.colour}" '
        f'stroke-dasharray="{_DASH[style.dash]}"/>'
    )
    marks = (_mark(p[0] + overlaps.aside(at, p), p[1], style) for part in parts for p in part)
    return "".join([line if alone else "", *shared, *marks])


def _mark(x: float, y: float, style: Style) -> str:
    return (
        f'<path d="{_MARK[style.marker]}" transform="translate({x:.1f} {y:.1f})" '
        f'fill="{style.colour}" stroke="#fff" stroke-width=".7"/>'
    )


def _shortened(label: str, room: int) -> str:
    """At most `room` letters, without the middle: labels of one encoding differ at their ends.

    >>> _shortened("prism_spectral(cursors=2,stride=2) (snapped)", 30)
    'prism_spect…tride=2) (snapped)'
    """
    if len(label) <= room:
        return label
    head = (room - 1) * 2 // 5
    return f"{label[:head]}…{label[head + 1 - room :]}"


def _legend(at: int, row: Row, style: Style) -> str:
    x, y = LEFT + WIDTH + 20, TOP + 10 + 22 * at
    words = after_the_curve(row.cells)
    label = _shortened(row.label, max(12, 38 - len(words)))
    line = (
        f'<path class="c" d="M{x} {y}h28" stroke="{style.colour}" '
        f'stroke-dasharray="{_DASH[style.dash]}"/>'
    )
    return line + _mark(x + 14, y, style) + _text(x + 36, y + 4, label + words)
