"""Accuracy against length as a self-contained SVG.

Every curve has its name beside its end. Curves that coincide show in turn, the highest in rank on
top. The drawing itself is templates/curves.svg; static/chart.js draws the same on a page.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count, pairwise
from math import ceil, floor, log
from typing import Any

from leaderboard.charts.drawing import draw
from leaderboard.charts.styles import Style, after_the_curve, apart, needs_log, styles
from leaderboard.stats.rows import BITS, EXACT, Point, Points, Row
from leaderboard.text import shortened

LEFT, TOP, WIDTH, HEIGHT = 56, 44, 540, 300  # the plotted area, in pixels
LABELS, LINE = 240, 17  # room for names beside it, and between two of them
ROOM, DASH = 30, 8  # left and right of the first and last length; of curves that coincide

Curve = list[list[tuple[float, float]]]  # pixels, in stretches without a gap


def curves(
    title: str,
    rows: Sequence[Row] | Sequence[Points],
    look: Mapping[str, Style] | None = None,
    axis: str = "test length",
    names: Mapping[str, str] | None = None,
    inline: bool = False,
    notes: Sequence[str] = (),
    band: float = 0.0,
) -> str:
    """Return the SVG text. `look` keeps styles equal across pictures.

    `names` are short names of labels. `inline`: for a page, in the page's colours. `notes` are
    lines of small text below the picture. `band` is a share to shade above and below each curve.
    """
    look, names = look or styles(rows), names or {}
    looks = apart([look[row.label] for row in rows])
    plot = _Plot(rows)
    ends, places = plot.ends, plot.label_places
    drawn = [
        plot.line(at)
        | {
            "style": looks[at],
            "label": shortened(names.get(row.label, row.label), 32),
            "words": after_the_curve(row.cells),
            "end": ends[at],
            "y": places[at],
            "bands": [_band(part, band) for part in plot.lines[at] if band],
            "marks": [point for part in plot.lines[at] for point in part],
        }
        for at, row in enumerate(rows)
    ]
    return draw(
        "curves.svg",
        **plot.axes,
        title=title,
        metric=rows[0].metric if rows else EXACT,
        axis=axis,
        farthest=max((end for end, _ in ends), default=0.0),
        curves=drawn,
        labels=LABELS,
        inline=inline,
        notes=notes,
    )


class _Plot:
    """The axes of rows, and their points in pixels."""

    def __init__(self, rows: Sequence[Row] | Sequence[Points]) -> None:
        self.bits = any(row.metric == BITS for row in rows)
        shares = {share / 100: str(share) for share in (0, 25, 50, 75, 100)}
        self.levels = _bits(rows) if self.bits else shares
        self.lengths = sorted({cell.length for row in rows for cell in row.cells})
        self.trained = sorted({row.train_length for row in rows if row.train_length is not None})
        self.x = _axis([*self.lengths, *self.trained])
        self.lines: list[Curve] = [
            [[self.pixel(cell) for cell in part if cell.main] for part in _stretches(row.cells)]
            for row in rows
        ]
        self.height = max(TOP + HEIGHT + 56, TOP + LINE * len(rows) + 20)
        self.owners: dict[Any, list[int]] = defaultdict(list)
        for at, parts in enumerate(self.lines):
            for segment in (pair for part in parts for pair in pairwise(part)):
                self.owners[segment].append(at)

    def y(self, value: float) -> float:
        low, high = min(self.levels), max(self.levels)
        return TOP + HEIGHT * (1 - (value - low) / (high - low))

    def pixel(self, point: Point) -> tuple[float, float]:
        return self.x(point.length), self.y(point.main.mean if point.main else 0.0)

    def line(self, at: int) -> dict[str, Any]:
        return _line(at, self.lines[at], self.owners)

    @property
    def ends(self) -> list[tuple[float, float]]:
        """The end of each curve; bottom left for one without points."""
        corner = float(LEFT), float(TOP + HEIGHT)
        return [parts[-1][-1] if parts else corner for parts in self.lines]

    @property
    def label_places(self) -> list[float]:
        return spread([y for _, y in self.ends], LINE, TOP + 4, self.height - 16)

    @property
    def axes(self) -> dict[str, Any]:
        """The fields of the template that place the axes."""
        return {
            "unit": "lower is better" if self.bits else "%",
            "levels": [(self.y(at), text) for at, text in self.levels.items()],
            "height": self.height,
            "ticks": list(_ticks(self.lengths, self.x)),
            "log": needs_log(self.lengths + self.trained),
            "trained": [self.x(length) for length in self.trained],
            "left": LEFT,
            "top": TOP,
            "wide": WIDTH,
            "high": HEIGHT,
        }


def _bits(rows: Sequence[Row] | Sequence[Points]) -> dict[float, str]:
    """Return at most twelve whole numbers, from below the lowest to above the highest point."""
    values = [c.main.mean for row in rows for c in row.cells if c.main] or [0.0]
    low, high = min(values), max(values)
    steps = (n * 10**power for power in count() for n in (1, 2, 5))
    step = next(one for one in steps if high - low <= 10 * one)
    first, last = floor(low / step), ceil(high / step)
    return {float(step * n): f"{step * n:,}" for n in range(first, max(last, first + 1) + 1)}


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move values as little as possible so that they are `gap` apart, and keep their order.

    >>> spread([10, 10, 50], 15, 0, 55)
    [10.0, 25.0, 50.0]
    """
    order = sorted(range(len(wanted)), key=lambda at: (wanted[at], at))
    places, floor = [0.0] * len(wanted), float(low)
    for at in order:
        places[at] = max(floor, float(wanted[at]))
        floor = places[at] + gap
    ceiling = float(high)
    for at in reversed(order):
        places[at] = min(places[at], ceiling)
        ceiling = places[at] - gap
    return places


def _axis(lengths: Sequence[int]) -> Callable[[int], float]:
    """Return a function from length to pixel, logarithmic for a wide range."""
    logarithmic = needs_log(lengths)

    def scale(length: int) -> float:
        return log(max(length, 1)) if logarithmic else float(length)

    start = scale(min(lengths, default=0))
    span = (scale(max(lengths, default=1)) - start) or 1.0
    return lambda length: LEFT + ROOM + (WIDTH - 2 * ROOM) * (scale(length) - start) / span


def _ticks(lengths: Sequence[int], x: Callable[[int], float]) -> Iterator[tuple[float, str]]:
    """(pixel, label); no label where it would touch the one before."""
    last = -100.0
    for length in lengths:
        shown = x(length) - last >= 9 + 7 * len(str(length))
        last = x(length) if shown else last
        yield x(length), str(length) if shown else ""


def _stretches(cells: Sequence[Point]) -> list[list[Point]]:
    """Split cells at lengths without a score."""
    parts: list[list[Point]] = [[]]
    for cell in cells:
        if cell.main is not None:
            parts[-1].append(cell)
        elif cell.status != "no instance":
            parts.append([])
    return [part for part in parts if part]


def _line(at: int, parts: Curve, owners: Mapping[Any, Sequence[int]]) -> dict[str, Any]:
    """Return the path of a curve, and its dashes where curves coincide and take turns."""
    alone, dashed, last = "", [], None
    for start, end in (pair for part in parts for pair in pairwise(part)):
        path = f"L{end[0]:.1f} {end[1]:.1f}"
        moved = f"M{start[0]:.1f} {start[1]:.1f}"
        here = owners[start, end]
        if len(here) == 1:
            alone += path if start == last else moved + path
            last = end
        else:
            turn = DASH, DASH * (len(here) - 1), -DASH * here.index(at)
            dashed.append((moved + path, *turn))
    return {"line": alone, "dashed": dashed}


def _band(points: Sequence[tuple[float, float]], share: float) -> str:
    """Return the outline of the band of a share above and below a curve, within the plot."""
    above = [(x, max(y - share * HEIGHT, TOP)) for x, y in points]
    below = [(x, min(y + share * HEIGHT, TOP + HEIGHT)) for x, y in reversed(points)]
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in (*above, *below)) + "Z"
