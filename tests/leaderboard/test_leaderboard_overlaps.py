"""Curves that coincide in a picture all show."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from leaderboard.render.overlaps import ROOM, Overlaps

FLAT = [(100.0, 48.0), (200.0, 48.0), (300.0, 48.0)]
FALL = [(100.0, 48.0), (200.0, 148.0)]


def covered(dash, length):
    """The pixels of a segment that a dash pattern draws."""
    on, off, skip = dash
    return {x for x in range(int(length)) if (x + 0.5 + skip) % (on + off) < on}


def test_alone_nothing_changes():
    overlaps = Overlaps([[FLAT], [[(100.0, 60.0), (200.0, 60.0)]]])
    assert overlaps.dash(0, *FLAT[:2]) is None
    assert overlaps.aside(0, FLAT[0]) == 0


def test_only_what_coincides_takes_turns():
    overlaps = Overlaps([[FLAT], [FALL], [FLAT]])
    assert overlaps.dash(1, *FALL) is None
    assert overlaps.aside(1, FALL[1]) == 0
    assert [overlaps.aside(at, FLAT[0]) for at in range(3)] == [-7, 0, 7]
    assert [overlaps.aside(at, FLAT[2]) for at in (0, 2)] == [-3.5, 3.5]


@given(st.integers(2, 15))
def test_every_one_of_many_is_seen(number):
    overlaps = Overlaps([[FLAT]] * number)
    places = [overlaps.aside(at, FLAT[1]) for at in range(number)]
    assert places == sorted(set(places))
    assert -ROOM < places[0] <= 0 <= places[-1] < ROOM
    parts = [covered(overlaps.dash(at, *FLAT[:2]), 100) for at in range(number)]
    assert all(len(part) >= 4 for part in parts)
    assert all(len(a & b) <= 1 for a, b in combinations(parts, 2))  # the text has two digits
    assert len(set().union(*parts)) >= 95


def test_a_gap_ends_a_segment():
    overlaps = Overlaps([[FLAT[:1], FLAT[1:]], [FLAT]])
    assert overlaps.dash(1, *FLAT[:2]) is None
    assert overlaps.dash(1, *FLAT[1:]) is not None
