"""Panels as SVG: a heat map, bars, a curve. Every text is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from torch import Tensor, linspace

from harness.show.axes import (
    LETTER,
    Tokens,
    bottom_axis,
    column_size,
    left_axis,
    right_axis,
    round_numbers,
    row_size,
    text,
    turned,
)
from harness.show.png import DIVERGING, SEQUENTIAL, Colour, data_uri
from pezoo.pictures import Axis

LIGHT = "--ink:#1a1f25;--soft:#56616c;--line:#dde2e7;--empty:#eceff2;--mark:#d95f02;--bar:#2d76b5"
STYLE = (
    ".plot text{font:11px ui-monospace,Menlo,Consolas,monospace;fill:var(--ink)}"
    ".plot .s{font-family:system-ui,sans-serif;fill:var(--soft)}"
    ".plot .m{text-anchor:middle}.plot .e{text-anchor:end}"
    ".plot image{image-rendering:pixelated}.plot .empty{fill:var(--empty)}"
    ".plot .frame,.plot .grid{fill:none;stroke:var(--line)}"
    ".plot .divide{stroke:var(--soft);stroke-dasharray:3 2}"
    ".plot .mark{fill:none;stroke:var(--mark)}"
    ".plot .bar{fill:var(--bar)}.plot .before{stroke:var(--mark);stroke-width:2}"
    ".plot .curve{fill:none;stroke:var(--bar);stroke-width:2}"
)


@dataclass(frozen=True)
class Scale:
    """Values to colours."""

    low: float
    high: float
    colours: tuple[Colour, ...]


def scale_of(values: Tensor, span: tuple[float, float] | None) -> Scale:
    """White is 0 where that lies between the ends, else the lowest value."""
    if span is not None:
        return Scale(*span, SEQUENTIAL)
    finite = values[values.isfinite()]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    if low >= 0:
        return Scale(0.0, high or 1.0, SEQUENTIAL)
    if high <= 0:
        return Scale(low, 0.0, SEQUENTIAL[::-1])
    far = max(-low, high)
    return Scale(-far, far, DIVERGING)


def heat(
    name: str,
    values: Tensor,
    rows: Axis,
    columns: Axis,
    scale: Scale,
    tokens: Tokens,
    marks: Tensor | None = None,
) -> str:
    """values (rows, columns) as a heat map with its axes."""
    count, across = values.shape[1], column_size(values.shape[1])
    down = across if rows.ticks is None and columns.ticks is None else row_size(values.shape[0])
    width, height = count * across, values.shape[0] * down
    uri = data_uri(values, scale.low, scale.high, scale.colours)
    box = f'x="0" y="0" width="{width:g}" height="{height:g}"'
    body = [
        f'<rect class="empty" {box}/>',
        f'<image {box} preserveAspectRatio="none" href="{uri}"/>',
    ]
    if columns.ticks is None:
        body.append(f'<path class="divide" d="M{tokens.prompt * across:g} 0v{height:g}"/>')
    if rows.ticks is None:
        body.append(f'<path class="divide" d="M0 {tokens.prompt * down:g}h{width:g}"/>')
    if marks is not None:
        body.append(_marks(marks, across, down))
    body.append(f'<rect class="frame" {box}/>')
    side, left = left_axis(rows, tokens, down, height)
    other, right = right_axis(rows, tokens, down, width)
    foot, below = bottom_axis(columns, tokens, across, width, height)
    body += [*side, *other, *foot]
    return _svg(name, body, left, 8.0, width + right, height + below)


def bars(
    name: str,
    values: Tensor,
    label: str,
    columns: Axis,
    span: tuple[float, float],
    before: Tensor,
) -> str:
    """values (columns,) as bars over a common ground; `before` marks where each one started."""
    across = column_size(len(values)) + (6 if len(values) <= 24 else 2)
    if len(values) <= 24:  # every bar has its name below it
        across = max(across, 7.0 * max(map(len, columns.ticks or ("",))) + 5)
    width, height = len(values) * across, 110.0
    low, high = span

    def y(value: float) -> float:
        return height * (1 - (value - low) / (high - low or 1.0))

    body = []
    for tick in round_numbers(low, high, 4):
        body.append(f'<path class="grid" d="M0 {y(tick):.1f}h{width:g}"/>')
        body.append(text(-5, y(tick) + 4, f"{tick:g}", "e"))
    ground = y(min(max(0.0, low), high))
    for i, value in enumerate(values.tolist()):
        top, bottom = sorted((y(value), ground))
        box = f'x="{(i + 0.15) * across:.1f}" y="{top:.1f}" width="{0.7 * across:.1f}"'
        hint = f"<title>{escape(f'{value:.4g}')}</title>"
        body.append(f'<rect class="bar" {box} height="{max(bottom - top, 0.5):.1f}">{hint}</rect>')
        start = y(float(before[i]))
        body.append(f'<path class="before" d="M{i * across:.1f} {start:.1f}h{across:g}"/>')
    foot, below = bottom_axis(columns, None, across, width, height)
    body.append(turned(-44, height / 2, label))
    return _svg(name, body + foot, 56.0, 8.0, width + 8, height + below)


def curve(
    name: str, points: Sequence[tuple[float, float]], x_label: str, y_label: str, high: float
) -> str:
    """Points as a line, both axes from 0; `high` is the upper end of y."""
    width, height = 270.0, 110.0
    far = max(x for x, _ in points) or 1.0
    places = [(width * x / far, height * (1 - y / high)) for x, y in points]
    body = []
    for tick in round_numbers(0.0, high, 4):
        y = height * (1 - tick / high)
        body += [
            f'<path class="grid" d="M0 {y:.1f}h{width:g}"/>',
            text(-5, y + 4, f"{tick:g}", "e"),
        ]
    for tick in round_numbers(0.0, far, 5):
        body.append(text(width * tick / far, height + 15, f"{tick:g}", "m"))
    line = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    body.append(f'<path class="curve" d="M{line}"/>')
    body += [f'<circle class="bar" cx="{x:.1f}" cy="{y:.1f}" r="2.5"/>' for x, y in places]
    body.append(text(width / 2, height + 31, x_label, "s m"))
    body.append(turned(-44, height / 2, y_label))
    return _svg(name, body, 56.0, 10.0, width + 20, height + 36)


def colour_bar(scale: Scale) -> str:
    """The colours from the lowest to the highest value."""
    ramp = linspace(scale.low, scale.high, 128)[None]
    uri = data_uri(ramp, scale.low, scale.high, scale.colours)
    low, high = f"{scale.low:.3g}", f"{scale.high:.3g}"
    left = 4 + LETTER * len(low)
    body = [
        text(-4, 10, low, "e"),
        f'<image x="0" y="1" width="120" height="10" preserveAspectRatio="none" href="{uri}"/>',
        '<rect class="frame" x="0" y="1" width="120" height="10"/>',
        text(124, 10, high),
    ]
    return _svg(f"colours from {low} to {high}", body, left, 2.0, 128 + LETTER * len(high), 14.0)


def standalone(svg: str) -> str:
    """The same picture as a file of its own, on white ground."""
    style = f"<style>:root{{{LIGHT}}}{STYLE}</style>"
    start = svg.index(">") + 1
    ground = '<rect x="-500" y="-500" width="9999" height="9999" fill="#fff"/>'
    return svg[:start] + style + ground + svg[start:] + "\n"


def _marks(rows: Tensor, across: float, down: float) -> str:
    """A step in each column through the middle of its row."""
    levels = [(row + 0.5) * down for row in rows.tolist()]
    steps = "".join(f"V{y:g}h{across:g}" for y in levels)
    thin = max(0.6, min(1.4, 0.3 * down))
    return f'<path class="mark" style="stroke-width:{thin:.1f}" d="M0 {levels[0]:g}{steps}"/>'


def _svg(
    name: str, body: Sequence[str], left: float, above: float, right: float, below: float
) -> str:
    """A picture whose content has its origin `left` and `above` inside of it."""
    width, height = left + right, above + below
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="plot" role="img" '
        f'aria-label="{escape(name)}" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="{-left:.1f} {-above:.1f} {width:.1f} {height:.1f}">' + "".join(body) + "</svg>"
    )
