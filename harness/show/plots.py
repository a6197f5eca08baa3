"""Panels as SVG, drawn by matplotlib: heat maps, bars, curves, histograms, scatter plots."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import StringIO
from typing import NamedTuple

import matplotlib
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.axis import Axis as Ruler
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize, to_rgb
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox
from torch import Tensor

from harness.show.examples import Example
from pezoo.pictures import Axis

GRID, NOTHING, BLUE, ORANGE = "#dde2e7", "#e2e6ea", "#2d76b5", "#d95f02"
STYLE = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "pezoo",  # equal panels are equal bytes
    "text.parse_math": False,  # "$" is a token like any other
    "font.size": 8.0,
    "axes.edgecolor": GRID,
    "grid.color": GRID,
    "axes.axisbelow": True,
    "xtick.bottom": False,
    "ytick.left": False,
    "legend.frameon": False,
    "savefig.pad_inches": 0.03,
}
INCH, POINT = 96, 4 / 3  # pixels
LETTER = 6.2  # pixels per letter of a tick label
CELL = 17  # pixels of a cell with a letter in it
VISIBLE, HALF = 0.01, 0.5
MOST_WORDS = 54  # an axis with more tokens numbers every tenth


class Scale(NamedTuple):
    """A colour map of matplotlib and the values at its two ends."""

    low: float
    high: float
    colours: str


def scale_of(values: Tensor, limits: tuple[float, float] | None) -> Scale:
    """Choose colours. Without limits, 0 is white: at one end, or between both signs."""
    if limits is not None:
        return Scale(*limits, "Blues")
    low, high = finite_range(values)
    if low >= 0:
        return Scale(0.0, high or 1.0, "Blues")
    if high <= 0:
        return Scale(low, 0.0, "Blues_r")
    return Scale(-max(-low, high), max(-low, high), "RdBu_r")


def finite_range(values: Tensor) -> tuple[float, float]:
    """Return the smallest and the largest finite value; (0, 1) without finite values."""
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
    """Draw values (panel, row, column) with equal axes; grey where they are not finite.

    lines (panel, column) hold a row for each column and are drawn as a step line.
    """
    finite = np.ma.masked_invalid(values.detach().double().numpy())
    height, width = finite.shape[1:]
    with _axes(width * _cell(width), height * _cell(height)) as axes:
        colours = matplotlib.colormaps[scale.colours].with_extremes(bad=NOTHING)
        limits = {"vmin": scale.low, "vmax": scale.high}
        image = axes.imshow(finite[0], colours, aspect="auto", interpolation="none", **limits)
        step_line = axes.stairs(np.zeros(width), np.arange(width + 1) - 0.5, baseline=None)
        step_line.set(color=ORANGE, linewidth=1.4, visible=lines is not None)
        words = rows.ticks or tuple(
            f"{read} → {write}" if write else read
            for read, write in zip(example.reads, example.writes, strict=True)
        )
        _words(axes.yaxis, words, rows, _cell(height))
        _words(axes.xaxis, columns.ticks or example.reads, columns, _cell(width))
        border = {"color": "grey", "linewidth": 1, "linestyle": (0, (3, 2))}
        if columns.ticks is None:
            axes.axvline(example.prompt - 0.5, **border)
        if rows.ticks is None:
            axes.axhline(example.prompt - 0.5, **border)
        box = axes.get_figure().get_tightbbox().padded(0.03)  # slow, and the same for all
        panels = []
        for i, name in enumerate(names):
            image.set_data(finite[i])
            if lines is not None:
                step_line.set_data(lines[i].numpy())
            panels.append(_svg(axes, name, box))
    return panels


def meeting(name: str, query: Tensor, key: Tensor, rows: Axis, example: Example) -> str:
    """Draw key (row, token) in the prompt and query (row, token) after it, in one map.

    The likeliest row of each key names its token, that of each query the token that it writes; a
    line joins a query to the last key of its row.
    """
    first = example.prompt - 1  # the first query of the answer reads the prompt's last token
    shown = torch.cat([key[:, :first], query[:, first:]], 1).clamp(0, 1)  # (row, token)
    used = (shown > VISIBLE).any(1).nonzero()[:, 0]
    top, end = int(used.min()), int(used.max()) + 1
    shown, best = shown[top:end], shown.argmax(0) - top
    with _axes(shown.shape[1] * CELL, len(shown) * CELL) as axes:
        paint = np.ones((*shown.shape, 4))
        for columns, colour in ((slice(None, first), BLUE), (slice(first, None), ORANGE)):
            paint[:, columns, :3] = to_rgb(colour)
        paint[..., 3] = shown.double().numpy()
        axes.imshow(paint, aspect="auto", interpolation="none")
        words = example.reads[:first] + example.writes[first:]
        for column, (row, word) in enumerate(zip(best.tolist(), words, strict=True)):
            sure = float(shown[row, column])
            ink, size = "white" if sure > HALF else "black", min(8.0, 1.5 * CELL / len(word))
            axes.text(column, row, word, ha="center", va="center", color=ink, fontsize=size)
            keys = (shown[row, :first] > HALF).nonzero()[:, 0].tolist()
            if column >= first and sure > HALF and keys:
                axes.plot((max(keys) + 0.5, column - 0.5), (row, row), color=ORANGE, linewidth=0.7)
        axes.axvline(first - 0.5, color="grey", linewidth=1, linestyle=(0, (3, 2)))
        ticks = (rows.ticks or ())[top:end]
        _words(axes.yaxis, ticks, Axis(rows.label, ticks), CELL)
        _words(axes.xaxis, example.reads, Axis("token read"), CELL)
        return _svg(axes, name)


def bars(
    name: str,
    values: Sequence[float],
    before: Sequence[float],
    label: str,
    columns: Axis,
    limits: tuple[float, float],
) -> str:
    """Draw values (column,) as bars from 0, with an orange line at each value before training."""
    places = np.arange(len(values))
    with _axes(len(values) * max(_cell(len(values)), 28.0), 110) as axes:
        drawn = axes.bar(places, values, 0.7, color=BLUE)
        axes.bar_label(drawn, fmt="%.2g", fontsize=6.5)
        axes.hlines(before, places - 0.5, places + 0.5, color=ORANGE, linewidth=2)
        axes.set(xlim=(-0.5, len(values) - 0.5), ylim=limits, ylabel=label)
        _words(axes.xaxis, columns.ticks or (), columns, max(_cell(len(values)), 28.0))
        return _svg(axes, name, grid=True)


def curve(name: str, points: Sequence[tuple[int, float]], label: str, top: float | None) -> str:
    """Draw (step, value) as a line above 0; the axis ends at `top`, or at the largest value."""
    with _axes(270, 110) as axes:
        axes.plot(*zip(*points, strict=True), color=BLUE, marker="o", markersize=5, clip_on=False)
        last = max(step for step, _ in points) or 1
        axes.set(xlim=(0, last), ylim=(0, top), xlabel="step", ylabel=label)
        return _svg(axes, name, grid=True)


def histograms(name: str, shares: Mapping[str, Sequence[float]], label: str, log: bool) -> str:
    """Draw shares by whole number, from 0: the first filled, the second as an outline."""
    with _axes(270, 110) as axes:
        for (what, values), colour in zip(shares.items(), (BLUE, ORANGE), strict=True):
            edges, fill = np.arange(len(values) + 1) - 0.5, colour == BLUE
            axes.stairs(values, edges, fill=fill, color=colour, linewidth=1.4, label=what)
        first = min(np.flatnonzero(values)[0] for values in shares.values())
        axes.set(xlim=(first - 1, max(map(len, shares.values()))), xlabel=label)
        axes.set_ylabel("share, logarithmic" if log else "share")
        if log:
            axes.set_yscale("log")
            some = [x for values in shares.values() for x in values if x]
            axes.set_ylim(min(some) / 2, 2 * max(some))
            axes.minorticks_off()
            axes.yaxis.set_major_formatter("{x:g}")
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
        return _svg(axes, name, grid=True)


def scatter(name: str, points: Mapping[str, Tensor]) -> str:
    """Draw points (N, 2) of two kinds: small dots on top of the second kind's pale discs."""
    with _axes(225, 225) as axes:
        marks = (BLUE, 2.5, 0.6, 2), (ORANGE, 14, 0.12, 1)
        for (what, xy), (colour, size, alpha, order) in zip(points.items(), marks, strict=True):
            style = {"alpha": alpha, "linewidths": 0, "rasterized": True, "zorder": order}
            axes.scatter(*xy.detach().double().T.numpy(), size, colour, label=what, **style)
        axes.set_aspect("equal", "datalim")
        axes.set(xticks=[], yticks=[])
        legend = axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
        for dot in legend.legend_handles:
            dot.set(alpha=1, sizes=[30])
        return _svg(axes, name)


def colour_bar(name: str, scale: Scale) -> str:
    with _axes(120, 10) as axes:
        shown = ScalarMappable(Normalize(scale.low, scale.high), scale.colours)
        ticks = [scale.low, (scale.low + scale.high) / 2, scale.high]
        bar = axes.get_figure().colorbar(shown, cax=axes, orientation="horizontal")
        bar.set_ticks(ticks, labels=[f"{tick:.3g}" for tick in ticks])
        return _svg(axes, name)


def _cell(count: int) -> float:
    """Pixels per row or column: enough for a letter up to MOST_WORDS of them."""
    return min(14.0, max(9.0, 225 // count)) if count <= MOST_WORDS else max(2.0, 450 / count)


def _words(ruler: Ruler, words: Sequence[str], axis: Axis, cell: float) -> None:
    """Label an axis with all words or, where they do not fit, with every tenth, "0" among them."""
    every, label = 1, axis.label
    if len(words) > MOST_WORDS:
        every = 10
        if axis.ticks is None:
            words, label = [str(i) for i in range(len(words))], f"{label}, by number"
    places = range(words.index("0") % every if every > 1 and "0" in words else 0, len(words), every)
    ruler.set_ticks(places, [words[i] for i in places], fontsize=min(8.0, cell * every / POINT))
    ruler.set_label_text(label)
    wide = LETTER * max(map(len, words)) > cell * every
    if wide and ruler.axis_name == "x":
        ruler.set_tick_params(rotation=90)


@contextmanager
def _axes(width: float, height: float) -> Iterator[Axes]:
    """Yield axes of that many pixels; their labels lie around them."""
    with matplotlib.rc_context(STYLE):
        yield Figure((width / INCH, height / INCH)).add_axes((0, 0, 1, 1))


def _svg(axes: Axes, name: str, box: Bbox | str = "tight", grid: bool = False) -> str:
    """Return the SVG; with a grid, it has horizontal lines in place of a frame."""
    if grid:
        axes.grid(axis="y")
        axes.spines[:].set_visible(False)
    file = StringIO()
    about = {"Title": name, "Date": None}
    axes.get_figure().savefig(file, format="svg", bbox_inches=box, metadata=about)
    return file.getvalue()
