"""Where curves coincide, each shows in turn: none hides another, and no value is moved."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import dist
from typing import Any

Point = tuple[float, float]  # in pixels
Curve = Sequence[Sequence[Point]]  # stretches without a gap

_STEP, _DASH = 7.0, 8.0  # between markers, and length of a dash, at most
ROOM = 30.0  # markers reach no farther than this to either side


class Overlaps:
    """Which curves share points, and which of their segments run along the same pixels."""

    def __init__(self, curves: Sequence[Curve]) -> None:
        self._points = _owners(([_pixel(p) for part in c for p in part]) for c in curves)
        self._segments = _owners(
            ([(_pixel(a), _pixel(b)) for part in c for a, b in pairwise(part)]) for c in curves
        )
        at = sorted({x for x, _ in self._points})
        self._gap = min((b - a for a, b in pairwise(at)), default=1e3)

    def aside(self, curve: int, point: Point) -> float:
        """How far the marker stands beside its point, in pixels: markers of one point in a row."""
        owners = self._points[_pixel(point)]
        step = min(_STEP, 0.8 * self._gap / len(owners), 2 * ROOM / (len(owners) + 1))
        return step * (owners.index(curve) - (len(owners) - 1) / 2)

    def dash(self, curve: int, start: Point, end: Point) -> tuple[float, float, float] | None:
        """Length of dash and gap, and offset, that show a curve in its turn along a segment; None
        where it is alone."""
        owners = self._segments[_pixel(start), _pixel(end)]
        if len(owners) == 1:
            return None
        on = min(_DASH, dist(start, end) / len(owners))
        return on, on * (len(owners) - 1), -on * owners.index(curve)


def _pixel(point: Point) -> tuple[int, int]:
    return round(point[0]), round(point[1])


def _owners(curves: Iterable[Iterable[Any]]) -> dict[Any, list[int]]:
    found: dict[Any, list[int]] = defaultdict(list)
    for number, keys in enumerate(curves):
        for key in keys:
            found[key].append(number)
    return found
