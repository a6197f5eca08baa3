"""Axes of panels: how large a place on them is, and which words stand beside it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from pezoo.pictures import Axis

LETTER = 6.7  # pixels, the width of a letter of 11 px
READABLE = 8.0  # pixels, a place that has room for a word of one letter


@dataclass(frozen=True)
class Tokens:
    """The words on a token axis; from `prompt` on they are the answer. `after` follow each word."""

    words: tuple[str, ...]
    after: tuple[str, ...]
    prompt: int


def column_size(count: int) -> float:
    """Pixels for a column: wide enough for a digit each, up to 48 of them."""
    if count <= 48:
        return float(max(8, min(14, 225 // count)))
    return max(2.0, round(430 / count, 1))


def numbered(count: int) -> bool:
    """Whether so many tokens leave no room for words, so that an axis counts them."""
    return column_size(count) < READABLE


def row_size(count: int) -> float:
    return float(max(9, min(12, 260 // count))) if count <= 36 else max(2.0, round(340 / count, 1))


def left_axis(rows: Axis, tokens: Tokens, size: float, height: float) -> tuple[list[str], float]:
    shown = _ticks(rows, tokens, size, 13.0)
    left = 24 + LETTER * max((len(word) for _, word in shown), default=0)
    font = _font(size)
    labels = [text(-5, (i + 0.5) * size + 3.6, word, "e", font) for i, word in shown]
    return [*labels, turned(-left + 11, height / 2, _label(rows, size))], left


def right_axis(rows: Axis, tokens: Tokens, size: float, width: float) -> tuple[list[str], float]:
    """Beside a query of the answer, the token that is written there."""
    if rows.ticks is not None or size < READABLE:
        return [], 12.0
    own = range(max(tokens.prompt - 1, 0), len(tokens.after))
    if not own:
        return [], 12.0
    font = _font(size)
    labels = [text(width + 5, (i + 0.5) * size + 3.6, tokens.after[i], "", font) for i in own]
    head = text(width + 4, (own.start - 0.4) * size, "writes", "s", 10)
    return [head, *labels], 8 + LETTER * max(5, *(len(tokens.after[i]) for i in own))


def bottom_axis(
    columns: Axis, tokens: Tokens | None, size: float, width: float, height: float
) -> tuple[list[str], float]:
    words = _words(columns, tokens)
    widest = str(len(words)) if columns.ticks is None else max(words, key=len, default="")
    shown = _ticks(columns, tokens, size, LETTER * len(widest) + 5)
    longest = max((len(word) for _, word in shown), default=0)
    apart = min((b[0] - a[0] for a, b in pairwise(shown)), default=1) * size
    font = _font(apart)
    labels = []
    if longest * LETTER * font / 11 <= apart + 1.5:
        labels = [text((i + 0.5) * size, height + 13, word, "m", font) for i, word in shown]
        below = 18.0
    else:
        below = 10 + LETTER * longest
        for i, word in shown:
            x = (i + 0.5) * size + 3.6
            turn = f' transform="rotate(-90 {x:.1f} {height + 5:.1f})"'
            labels.append(text(x, height + 5, word, "e", font, turn))
    return [*labels, text(width / 2, height + below + 10, _label(columns, size), "s m")], below + 15


def _ticks(axis: Axis, tokens: Tokens | None, size: float, room: float) -> list[tuple[int, str]]:
    """(place, text): all words, or those that have `room` pixels each; of tokens the numbers."""
    words = _words(axis, tokens)
    if size >= READABLE:
        return list(enumerate(words))
    steps = (step * 10**power for power in range(9) for step in (1, 2, 5))
    every = next(step for step in steps if step * size >= room)
    if axis.ticks is None:
        return [(i, str(i)) for i in range(0, len(words), every)]
    zero = words.index("0") if "0" in words else 0
    return [(i, word) for i, word in enumerate(words) if (i - zero) % every == 0]


def _words(axis: Axis, tokens: Tokens | None) -> tuple[str, ...]:
    return axis.ticks if axis.ticks is not None else tokens.words if tokens else ()


def _label(axis: Axis, size: float) -> str:
    numbered = axis.ticks is None and size < READABLE
    return f"{axis.label}, by number" if numbered else axis.label


def _font(room: float) -> float:
    return min(11.0, max(room + 0.5, 8.5))


def round_numbers(low: float, high: float, most: int) -> list[float]:
    """At most about `most` numbers with few digits between two others.

    >>> round_numbers(0.0, 1.0, 4)
    [0.0, 0.5, 1.0]
    """
    step = 10.0 ** math.floor(math.log10((high - low) / most or 1.0))
    step *= next(m for m in (1, 2, 5, 10) if (high - low) / (m * step) <= most)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 10) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def text(x: float, y: float, words: str, css: str = "", size: float = 11, more: str = "") -> str:
    font = "" if size == 11 else f' style="font-size:{size:g}px"'
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{css}"{font}{more}>{escape(words)}</text>'


def turned(x: float, y: float, words: str) -> str:
    return text(x, y, words, "s m", more=f' transform="rotate(-90 {x:.1f} {y:.1f})"')
