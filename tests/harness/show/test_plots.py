"""Panels: what is drawn is what was given, every text is escaped, nothing depends on the time."""

import base64
import io
import math
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import pairwise

import matplotlib
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from harness.show import plots
from harness.show.plots import MOST_WORDS, Scale
from pezoo.pictures import Axis

SVG = "{http://www.w3.org/2000/svg}"
HREF = "{http://www.w3.org/1999/xlink}href"
TITLE = "{http://purl.org/dc/elements/1.1/}title"
TOKENS = Axis("query"), Axis("key")
BLUES = Scale(0, 1, "Blues")


def parsed(svg):
    """The SVG as a tree, and its texts."""
    root = ET.fromstring(svg)
    return root, [element.text for element in root.iter(f"{SVG}text")]


def heat_map(values, scale, one, rows=TOKENS[0], columns=TOKENS[1], lines=None):
    lines = None if lines is None else lines[None]
    (svg,) = plots.heat_maps(["name"], values[None], rows, columns, scale, one, lines)
    return svg


def points(path):
    """(x, y) of each point of a path."""
    return [tuple(map(float, p)) for p in re.findall(r"([-\d.]+) ([-\d.]+)", path.get("d"))]


def paths(root, colour):
    return [p for p in root.iter(f"{SVG}path") if colour in p.get("style", "")]


@settings(max_examples=10)
@given(
    st.lists(
        st.lists(st.floats(-2, 2) | st.sampled_from([math.nan, math.inf]), min_size=3, max_size=3),
        min_size=1,
        max_size=4,
    )
)
def test_a_pixel_is_a_value(example, values):
    rows = Axis("row", tuple("abcd"[: len(values)]))
    columns = Axis("column", ("a", "b", "c"))
    scale = Scale(-1.0, 1.0, "Blues")
    root, _ = parsed(heat_map(torch.tensor(values), scale, example("1="), rows, columns))
    (image,) = root.iter(f"{SVG}image")
    content = base64.b64decode(image.get(HREF).removeprefix("data:image/png;base64,"))
    pixels = np.asarray(Image.open(io.BytesIO(content)).convert("RGBA"))
    for row, line in zip(pixels, values, strict=True):
        for pixel, value in zip(row, line, strict=True):
            if math.isfinite(value):
                expected = np.array(matplotlib.colormaps["Blues"]((value + 1) / 2)) * 255
                assert np.abs(pixel - expected).max() <= 3
            else:
                assert "#" + bytes(pixel[:3]).hex() == plots.NOTHING


@pytest.mark.parametrize(
    ("values", "limits", "expected"),
    [
        ([-3.0, math.nan, -1.0, -math.inf], None, (-3.0, 0.0, "Blues_r")),
        ([-3.0, 1.0], None, (-3.0, 3.0, "RdBu_r")),
        ([2.0, 5.0], None, (0.0, 5.0, "Blues")),
        ([math.nan], None, (0.0, 1.0, "Blues")),
        ([0.0], None, (0.0, 1.0, "Blues")),
        ([7.0], (0.0, 1.0), (0.0, 1.0, "Blues")),
    ],
)
def test_zero_is_white(values, limits, expected):
    low, high, colours = plots.scale_of(torch.tensor(values), limits)
    assert (low, high, colours) == expected
    assert min(matplotlib.colormaps[colours](-low / (high - low))) > 0.96


words = st.sampled_from(["<b>", "&", '"x"', "1", "]]>", "walk", "$x^2$", "\\n", "_"])


@settings(max_examples=10)
@given(st.lists(words, min_size=3, max_size=70))
def test_a_heat_map_shows_every_token_as_it_is(example, words):
    count = len(words) - 1
    prompt = max(1, count // 2)
    writes = ("",) * (prompt - 1) + tuple(words[prompt:])
    read = {"reads": tuple(words[:-1]), "writes": writes, "prompt": prompt}
    one = replace(example("1="), tokens=tuple(words), **read)
    _, found = parsed(heat_map(torch.rand(count, count), BLUES, one))
    if count > MOST_WORDS:
        assert {"query, by number", "key, by number", "0"} <= set(found)
        return
    answers = [f"{a} → {b}" for a, b in pairwise(words[prompt - 1 :])]
    shown = words[: prompt - 1] + answers + words[:-1] + ["query", "key"]
    assert sorted(found) == sorted(shown)


@pytest.mark.parametrize("tall", [76, 300])
def test_offsets_without_room_for_all_keep_zero(example, tall):
    offsets = Axis("offset", tuple(str(i) for i in range(tall - 9, -9, -1)))
    _, found = parsed(heat_map(torch.rand(tall, 2), BLUES, example("1="), offsets))
    shown = [int(text) for text in found if re.fullmatch(r"-?\d+", text) and text != "1"]
    assert 0 in shown
    assert {a - b for a, b in pairwise(shown)} == {10}


def test_a_line_runs_through_the_middle_of_its_rows(example):
    offsets, lines = Axis("offset", ("3", "2", "1", "0")), torch.tensor([0, 3, 1])
    root, _ = parsed(heat_map(torch.rand(4, 3), BLUES, example("12="), offsets, lines=lines))
    box = next(root.iter(f"{SVG}clipPath"))[0]
    (line,) = paths(root, plots.ORANGE)
    levels = [(y - float(box.get("y"))) / float(box.get("height")) for _, y in points(line)]
    assert levels[1:-1] == pytest.approx([1 / 8, 1 / 8, 7 / 8, 7 / 8, 3 / 8, 3 / 8])


def test_bars_are_as_high_as_their_values_and_show_them():
    svg = plots.bars("x", [0.0, 0.5, 1.0], [0.5] * 3, "mu", Axis("head", tuple("abc")), (0.0, 1.0))
    root, words = parsed(svg)
    found = [[y for _, y in points(path)] for path in paths(root, plots.BLUE)]
    heights = [max(ys) - min(ys) for ys in found]
    assert heights == pytest.approx([0, heights[2] / 2, heights[2]])
    assert heights[2] > 0
    (before,) = [p for p in root.iter(f"{SVG}g") if len(list(p)) and paths(p, plots.ORANGE)][-1:]
    starts = [y for path in paths(before, plots.ORANGE) for _, y in points(path)]
    assert starts == pytest.approx([max(found[0]) - heights[1]] * 6)
    assert {"mu", "head", "a", "b", "c", "0.5", "1"} <= set(words)


def test_a_curve_ends_at_its_last_point():
    root, words = parsed(plots.curve("x", [(0, 0.0), (50, 0.25), (100, 1.0)], "exact match", 1.0))
    line = max(
        paths(root, plots.BLUE), key=lambda p: len(points(p)) if "none" in p.get("style") else 0
    )
    (x0, y0), (x1, y1), (x2, y2) = points(line)
    assert x2 - x0 == pytest.approx(2 * (x1 - x0))
    assert y0 - y2 == pytest.approx(4 * (y0 - y1))
    assert {"exact match", "step", "0", "100"} <= set(words)


@pytest.mark.parametrize("log", [False, True])
def test_histograms_name_their_kinds(log):
    shares = {"training": [0, 0, 0.5, 0.5], "test": [0, 0, 0, 0, 0.9, 0.1]}
    _, words = parsed(plots.histograms("x", shares, "tokens of the prompt", log))
    assert {"training", "test", "tokens of the prompt"} <= set(words)
    assert ("share, logarithmic" in words) == log
    assert not [word for word in words if "$" in word]


def test_a_scatter_names_its_kinds_and_a_colour_bar_its_values():
    svg = plots.scatter("x", {"seen": torch.randn(5, 2), "longer": torch.randn(7, 2)})
    assert parsed(svg)[1] == ["seen", "longer"]
    assert parsed(plots.colour_bar("x", Scale(-2, 1, "RdBu_r")))[1] == ["-2", "-0.5", "1"]


def test_a_panel_has_its_name_and_is_the_same_every_time(example):
    name = '<b> "a" & b'
    first, second = (
        plots.heat_maps([name], torch.eye(9)[None], *TOKENS, BLUES, example())[0] for _ in range(2)
    )
    assert first == second
    assert next(parsed(first)[0].iter(TITLE)).text == name


def counting(example, shift=0):
    """Cursors that count: the key from 0 in the prompt, the query from `shift` in the answer."""
    size, first = len(example.reads), example.prompt - 1
    rows = Axis("offset", tuple(str(d) for d in range(size - 1, -1, -1)))
    key, query = torch.zeros(2, size, size)
    for t in range(size):
        key[size - 1 - t, t] = 1.0
        query[size - 1 - max(0, t - first + shift), t] = 1.0
    return query, key, rows


@pytest.mark.parametrize(("shift", "joined"), [(0, 4), (2, 2), (4, 0)])
def test_a_line_joins_each_query_to_the_key_that_holds_its_offset(example, shift, joined):
    one = example("4711=4711")
    root, texts = parsed(plots.meeting("name", *counting(one, shift), one))
    lines = [points(p) for p in paths(root, plots.ORANGE) if len(points(p)) == 2]
    assert len(lines) == joined
    assert all(a[1] == b[1] and a[0] < b[0] for a, b in lines)
    written = [*"4711", *one.writes[one.prompt - 1 :]]  # in cells
    ticks = [str(d) for d in range(max(4, 5 + shift))]
    assert sorted(texts) == sorted([*written, *one.reads, *ticks, "offset", "token read"])
