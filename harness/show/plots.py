"""Panels as SVG, drawn by matplotlib: heat maps, bars, learning curves and colour bars."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from io import StringIO
from typing import NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator
from matplotlib.transforms import Bbox
from torch import Tensor

from harness.show.examples import Example
from pezoo.pictures import Axis

INK, GREY, GRID, EMPTY = "#1a1f25", "#56616c", "#dde2e7", "#e2e6ea"
BLUE, ORANGE = "#2d76b5", "#d95f02"
STYLE = {
    "svg.fonttype": "none",  # text stays text
    "text.parse_math": False,  # "$" is a token like any other
    "font.family": "monospace", "font.monospace": ["DejaVu Sans Mono"],
    "font.sans-serif": ["DejaVu Sans"], "font.size": 11.0,
    "text.color": INK, "xtick.color": INK, "ytick.color": INK, "axes.labelcolor": GREY,
    "axes.edgecolor": GRID, "grid.color": GRID, "axes.linewidth": 0.8, "axes.axisbelow": True,
    "axes.facecolor": "none", "xtick.bottom": False, "ytick.left": False,
}  # fmt: skip
LABEL = {"family": "sans-serif", "color": GREY}
DASHED = {"color": GREY, "linewidth": 1, "linestyle": (0, (3, 2))}
DPI = 72  # of matplotlib's SVG, so that one of its units is a pixel
LETTER = 6.7  # pixels, the width of a letter of 11 px
MOST_WORDS = 54  # places on an axis that have room for a letter each
TOOLTIP = "tooltip:"  # starts the id of a shape with one


class Scale(NamedTuple):
    """A colour map of matplotlib and the values at its two ends."""

    low: float
    high: float
    colours: str


def scale_of(values: Tensor, limits: tuple[float, float] | None) -> Scale:
    """Without limits, 0 is white: at one end, or in the middle of values of both signs."""
    if limits is not None:
        return Scale(*limits, "Blues")
    low, high = finite_range(values)
    if low >= 0:
        return Scale(0.0, high or 1.0, "Blues")
    if high <= 0:
        return Scale(low, 0.0, "Blues_r")
    return Scale(-max(-low, high), max(-low, high), "RdBu_r")


def finite_range(values: Tensor) -> tuple[float, float]:
    """The smallest and the largest finite value; (0, 1) where there is none."""
    finite = values[values.isfinite()]
    return (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)


def heat_maps(
    names: Sequence[str],
    values: Tensor,
    rows: Axis,
    columns: Axis,
    scale: Scale,
    example: Example,
    lines: Tensor | None = None,
) -> list[str]:
    """values (panel, row, column) as heat maps with equal axes; grey where they are not finite.

    lines (panel, column) hold a row for each column and are drawn as a step line.
    """
    finite, panels = np.ma.masked_invalid(values.detach().double().numpy()), []
    height, width = finite.shape[1:]
    down = _cell(height, 8.0 if rows.ticks is None else 9.0)
    with _axes(width * _cell(width), height * down) as axes:
        colours = matplotlib.colormaps[scale.colours].with_extremes(bad=EMPTY)
        image = axes.imshow(finite[0], colours, aspect="auto", interpolation="none")
        image.set_clim(scale.low, scale.high)
        step_line = axes.stairs(np.zeros(width), np.arange(width + 1) - 0.5, baseline=None)
        step_line.set(color=ORANGE, linewidth=1.4, visible=lines is not None)
        _label_rows(axes, rows, example)
        _label_columns(axes, *_words(columns, example))
        if columns.ticks is None:
            axes.axvline(example.prompt - 0.5, **DASHED)
        box = _box(axes)
        for i, name in enumerate(names):
            image.set_data(finite[i])
            if lines is not None:
                step_line.set_data(lines[i].numpy())
            panels.append(_svg(axes, name, box))
    return panels


def bars(
    name: str,
    values: Sequence[float],
    before: Sequence[float],
    label: str,
    columns: Axis,
    limits: tuple[float, float],
) -> str:
    """values (column,) as bars from 0, each with a line at its value before training."""
    words, count = columns.ticks or (), len(values)
    named = LETTER * max(map(len, words)) + 5 if count <= 24 else 0.0
    with _axes(count * max(_cell(count) + 2, named), 110) as axes:
        for bar in axes.bar(range(count), values, 0.7, color=BLUE):
            bar.set_gid(f"{TOOLTIP}{bar.get_height():.4g}")
        places = np.arange(count)
        axes.hlines(before, places - 0.5, places + 0.5, color=ORANGE, linewidth=2)
        axes.set(xlim=(-0.5, count - 0.5), ylim=limits)
        _label_columns(axes, words, columns.label)
        _label_height(axes, label)
        return _svg(axes, name, _box(axes))


def curve(name: str, points: Sequence[tuple[int, float]], label: str, top: float | None) -> str:
    """(step, value) as a line from 0; `top` ends the axis of the values, None: the largest."""
    with _axes(270, 110) as axes:
        axes.plot(*zip(*points, strict=True), color=BLUE, marker="o", markersize=5, clip_on=False)
        axes.set(xlim=(0, max(step for step, _ in points) or 1), ylim=(0, top))
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.set_xlabel("step", LABEL)
        _label_height(axes, label)
        return _svg(axes, name, _box(axes))


def histograms(name: str, shares: Mapping[str, Sequence[float]], label: str, log: bool) -> str:
    """Shares by whole number, from 0: the first filled, a second one as an outline."""
    with _axes(270, 110) as axes:
        for (what, values), colour in zip(shares.items(), (BLUE, ORANGE), strict=True):
            edges, fill = np.arange(len(values) + 1) - 0.5, colour == BLUE
            axes.stairs(values, edges, fill=fill, color=colour, linewidth=1.4, label=what)
        first = min(next(i for i, x in enumerate(values) if x) for values in shares.values())
        axes.set_xlim(first - 1, max(map(len, shares.values())))
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.set_xlabel(label, LABEL)
        _label_height(axes, "share, logarithmic" if log else "share")
        if log:
            some = [x for values in shares.values() for x in values if x]
            axes.set_yscale("log")
            axes.set_ylim(min(min(some) / 2, max(some) / 20), 2 * max(some))
            axes.yaxis.set_major_locator(LogLocator(numticks=5))
            axes.yaxis.set_major_formatter("{x:g}")
            axes.yaxis.set_minor_locator(NullLocator())
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False, fontsize=10)
        return _svg(axes, name, _box(axes))


def scatter(name: str, points: Mapping[str, Tensor]) -> str:
    """Points (N, 2) of two kinds, with equal units on both axes.

    The first kind is small dots on top of the second kind's pale discs: both show where they meet.
    """
    with _axes(225, 225) as axes:
        marks = (BLUE, 2.5, 0.6, 2), (ORANGE, 14, 0.12, 1)
        for (what, xy), (colour, size, alpha, order) in zip(points.items(), marks, strict=True):
            x, y = xy.detach().double().T.numpy()
            style = {"alpha": alpha, "linewidths": 0, "rasterized": True, "zorder": order}
            axes.scatter(x, y, size, colour, label=what, **style)
        axes.set_aspect("equal", "datalim")
        axes.set(xticks=[], yticks=[])
        place = {"loc": "lower left", "bbox_to_anchor": (0, 1), "ncols": 2}
        for dot in axes.legend(**place, frameon=False, fontsize=10).legend_handles:
            dot.set(alpha=1, sizes=[30])
        return _svg(axes, name, _box(axes))


def colour_bar(name: str, scale: Scale) -> str:
    with _axes(120, 10) as axes:
        ramp = np.linspace(scale.low, scale.high, 128)[None]
        ends = (scale.low, scale.high, 0.0, 1.0)
        axes.imshow(ramp, scale.colours, aspect="auto", interpolation="none", extent=ends)
        ticks = [scale.low, (scale.low + scale.high) / 2, scale.high]
        axes.set_xticks(ticks, [f"{tick:.3g}" for tick in ticks])
        axes.set_yticks([])
        return _svg(axes, name, _box(axes))


def standalone(svg: str) -> str:
    """The same panel as a file of its own, on white."""
    return svg.replace("<svg ", '<svg style="background:#fff" ', 1) + "\n"


def _cell(count: int, least: float = 8.0) -> float:
    """Pixels per row or column of so many; at least `least` if each has room for a letter."""
    return min(14.0, max(least, 225 // count)) if count <= MOST_WORDS else max(2.0, 450 / count)


def _words(axis: Axis, example: Example) -> tuple[Sequence[str], str]:
    """A word for each place on an axis, and its label."""
    tokens = example.reads
    if axis.ticks is not None or len(tokens) <= MOST_WORDS:
        return axis.ticks or tokens, axis.label
    return [str(i) for i in range(len(tokens))], f"{axis.label}, by number"


def _places(words: Sequence[str], cell: float, room: float) -> list[int]:
    """Where words are shown: all, or "0" and others at distances of at least `room` pixels."""
    if len(words) <= MOST_WORDS:
        return list(range(len(words)))
    every = next(m * 10**k for k in range(9) for m in (1, 2, 5) if m * 10**k * cell >= room)
    zero = words.index("0") if "0" in words else 0
    return list(range(zero % every, len(words), every))


# Texts and not ticks beside rows and columns: ticks take twice as long to draw.
def _label_rows(axes: Axes, rows: Axis, example: Example) -> None:
    """On the left; on the right, beside a query of the answer, the token that it writes."""
    words, label = _words(rows, example)
    cell, space = axes.bbox.height / len(words), 5 / axes.bbox.width
    beside = {"transform": axes.get_yaxis_transform(), "va": "center"}
    for i in _places(words, cell, 13.0):
        size = max(8.5, min(11.0, cell + 0.5))
        axes.text(-space, i, words[i], ha="right", fontsize=size, **beside)
    axes.set_yticks([])
    axes.set_ylabel(label, LABEL, labelpad=LETTER * max(map(len, words)) + 8)
    if rows.ticks is not None:
        return
    axes.axhline(example.prompt - 0.5, **DASHED)
    if len(words) <= MOST_WORDS:
        axes.text(1 + space, example.first - 14 / cell, "writes", LABEL, fontsize=10, **beside)
        for i in range(example.first, len(words)):
            axes.text(1 + space, i, example.writes[i], fontsize=min(11.0, cell + 0.5), **beside)


def _label_columns(axes: Axes, words: Sequence[str], label: str) -> None:
    """Below, upright where there is no room for the words side by side."""
    width, cell = LETTER * max(map(len, words)), axes.bbox.width / len(words)
    places = _places(words, cell, width + 5)
    apart = cell * (places[1] - places[0] if len(places) > 1 else 1)
    size = min(11.0, apart + 0.5)
    upright = width * size / 11 > apart + 1.5
    below = {"transform": axes.get_xaxis_transform(), "va": "top", "ha": "center"}
    for i in places:
        y, turn = -5 / axes.bbox.height, 90 if upright else 0
        axes.text(i, y, words[i], fontsize=size, rotation=turn, **below)
    axes.set_xticks([])
    axes.set_xlabel(label, LABEL, labelpad=(width if upright else 11) + 8)


def _label_height(axes: Axes, label: str) -> None:
    axes.set_ylabel(label, LABEL)
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.grid(axis="y")
    axes.spines[:].set_visible(False)


@contextmanager
def _axes(width: float, height: float) -> Iterator[Axes]:
    """Axes of that many pixels; their labels lie around them."""
    with matplotlib.rc_context(STYLE):
        figure = Figure((width / DPI, height / DPI), dpi=DPI, facecolor="none")
        yield figure.add_axes((0, 0, 1, 1))


def _box(axes: Axes) -> Bbox:
    """What the axes and their labels cover, in inches."""
    return axes.get_figure().get_tightbbox().padded(2 / DPI)


def _svg(axes: Axes, name: str, box: Bbox) -> str:
    """The figure of the axes as one SVG element that can stand beside others in a page."""
    file = StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name}):  # ids that only this name gives
        axes.get_figure().savefig(file, format="svg", bbox_inches=box)
    body = file.getvalue()
    body = body[body.index("<defs>") :]  # without matplotlib's head, which has the date
    body = re.sub(f'<g id="{TOOLTIP}([^"]*)">', r"<g><title>\1</title>", body)
    body = re.sub('<g id="[^"]*"', "<g", body)  # ids that every figure has
    width, height = f"{box.width * DPI:.1f}", f"{box.height * DPI:.1f}"
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'class="plot" role="img" aria-label="{escape(name)}" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}">{body}'
    )
