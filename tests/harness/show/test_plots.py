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
TOKENS = Axis("query"), Axis("key")


def parsed(svg):
    """The SVG as a tree, and its texts."""
    root = ET.fromstring(svg)
    kinds = {element.tag.removeprefix(SVG) for element in root.iter()}
    assert kinds <= {
        "svg", "g", "path", "rect", "image", "text", "title", "use", "defs", "clipPath", "style",
    }  # fmt: skip
    return root, [element.text for element in root.iter(f"{SVG}text")]


def pixels(root):
    """(rows, columns, RGBA) of the only image, as bytes."""
    (image,) = root.iter(f"{SVG}image")
    content = base64.b64decode(image.get(HREF).removeprefix("data:image/png;base64,"))
    return np.asarray(Image.open(io.BytesIO(content)).convert("RGBA"))


def heat_map(values, scale, one, rows=TOKENS[0], columns=TOKENS[1], lines=None):
    lines = None if lines is None else lines[None]
    (svg,) = plots.heat_maps(["name"], values[None], rows, columns, scale, one, lines)
    return svg


def points(path):
    """(x, y) of each point of a path."""
    return [tuple(map(float, p)) for p in re.findall(r"([-\d.]+) ([-\d.]+)", path.get("d"))]


def paths(root, colour):
    return [p for p in root.iter(f"{SVG}path") if colour in p.get("style", "")]


@settings(max_examples=10, deadline=None)
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
    svg = heat_map(torch.tensor(values), Scale(-1.0, 1.0, "Blues"), example("1="), rows, columns)
    colours = matplotlib.colormaps["Blues"]
    for row, line in zip(pixels(parsed(svg)[0]), values, strict=True):
        for pixel, value in zip(row, line, strict=True):
            if math.isfinite(value):
                expected = np.array(colours((value + 1) / 2)) * 255
                assert np.abs(pixel - expected).max() <= 3
            else:
                assert "#" + bytes(pixel[:3]).hex() == plots.EMPTY


def test_colours_of_a_scale():
    below = torch.tensor([[-3.0, math.nan], [-1.0, -math.inf]])
    assert plots.scale_of(below, None) == (-3.0, 0.0, "Blues_r")
    assert plots.scale_of(torch.tensor([-3.0, 1.0]), None) == (-3.0, 3.0, "RdBu_r")
    assert plots.scale_of(torch.tensor([2.0, 5.0]), None) == (0.0, 5.0, "Blues")
    assert plots.scale_of(torch.full((2, 2), math.nan), None) == (0.0, 1.0, "Blues")
    assert plots.scale_of(torch.zeros(2), None) == (0.0, 1.0, "Blues")
    assert plots.scale_of(torch.tensor([7.0]), (0.0, 1.0)) == (0.0, 1.0, "Blues")
    for name, zero in (("Blues", 0.0), ("Blues_r", 1.0), ("RdBu_r", 0.5)):
        assert min(matplotlib.colormaps[name](zero)) > 0.96  # white


words = st.sampled_from(["<b>", "&", '"x"', "1", "]]>", "walk", "$x^2$", "\\n", "_"])


@settings(max_examples=10, deadline=None)
@given(st.lists(words, min_size=3, max_size=70))
def test_a_heat_map_shows_every_token_as_it_is(example, words):
    count = len(words) - 1
    prompt = max(1, count // 2)
    read = {"reads": tuple(words[:-1]), "writes": tuple(words[1:]), "first": prompt - 1}
    one = replace(example("1="), tokens=tuple(words), prompt=prompt, **read)
    _, found = parsed(heat_map(torch.rand(count, count), Scale(0, 1, "Blues"), one))
    assert ("writes" in found) == (count <= MOST_WORDS)
    if count <= MOST_WORDS:
        for word in set(words):
            assert found.count(word) == words[:-1].count(word) * 2 + words[prompt:].count(word)
    else:
        assert {"query, by number", "key, by number", "0"} <= set(found)


def test_names_are_escaped(example):
    name = '<b> "a" & b'
    (svg,) = plots.heat_maps(
        [name], torch.rand(1, 1, 1), *TOKENS, Scale(0, 1, "Blues"), example("=")
    )
    assert parsed(svg)[0].get("aria-label") == name


def test_offsets_without_room_for_all_keep_zero(example):
    offsets = Axis("offset", tuple(map(str, range(67, -9, -1))))
    _, found = parsed(heat_map(torch.rand(76, 2), Scale(0, 1, "Blues"), example("1="), offsets))
    shown = [int(text) for text in found if re.fullmatch(r"-?\d+", text) and text != "1"]
    assert 0 in shown
    steps = {a - b for a, b in pairwise(shown)}
    assert len(steps) == 1
    assert steps <= {1, 2, 5, 10}


def test_a_line_runs_through_the_middle_of_its_rows(example):
    offsets, lines = Axis("offset", ("3", "2", "1", "0")), torch.tensor([0, 3, 1])
    svg = heat_map(torch.rand(4, 3), Scale(0, 1, "Blues"), example("12="), offsets, lines=lines)
    root, _ = parsed(svg)
    box = next(root.iter(f"{SVG}clipPath"))[0]
    (line,) = paths(root, plots.ORANGE)
    levels = [(y - float(box.get("y"))) / float(box.get("height")) for _, y in points(line)]
    assert levels[1:-1] == pytest.approx([1 / 8, 1 / 8, 7 / 8, 7 / 8, 3 / 8, 3 / 8])


def test_bars_are_as_high_as_their_values_and_show_them():
    svg = plots.bars("x", [0.0, 0.5, 1.0], [0.5] * 3, "mu", Axis("head", tuple("012")), (0.0, 1.0))
    root, words = parsed(svg)
    found = [[y for _, y in points(path)] for path in paths(root, plots.BLUE)]
    assert [max(ys) - min(ys) for ys in found] == pytest.approx([0, 55, 110])
    ground = max(found[0])
    (before,) = [p for p in root.iter(f"{SVG}g") if len(list(p)) and paths(p, plots.ORANGE)][-1:]
    starts = [y for path in paths(before, plots.ORANGE) for _, y in points(path)]
    assert starts == pytest.approx([ground - 55] * 6)
    assert {"mu", "head", "0", "1", "2"} <= set(words)
    assert [title.text for title in root.iter(f"{SVG}title")] == ["0", "0.5", "1"]


def test_a_curve_ends_at_its_last_point():
    root, words = parsed(plots.curve("x", [(0, 0.0), (50, 0.25), (100, 1.0)], "exact match", 1.0))
    line = max(
        paths(root, plots.BLUE), key=lambda p: len(points(p)) if "none" in p.get("style") else 0
    )
    (x0, y0), (x1, y1), (x2, y2) = points(line)
    assert (x1 - x0, x2 - x0) == pytest.approx((135, 270))
    assert (y0 - y1, y0 - y2) == pytest.approx((110 / 4, 110))
    assert {"exact match", "step", "0", "100"} <= set(words)


def test_a_standalone_file_is_white_and_says_its_colours():
    root, words = parsed(plots.standalone(plots.colour_bar("x", Scale(-2, 1, "RdBu_r"))))
    assert words == ["-2", "-0.5", "1"]
    assert root.get("style") == "background:#fff"


def test_a_panel_is_the_same_every_time_and_shares_no_id(example):
    def draw(name):
        values, lines = torch.eye(9), torch.arange(9)
        columns = Axis("token")
        rows = Axis("offset", tuple("876543210"))
        return plots.heat_maps(
            [name], values[None], rows, columns, Scale(0, 1, "Blues"), example(), lines[None]
        )[0]

    assert draw("one") == draw("one")
    ids = [set(re.findall(r' id="([^"]+)"', draw(name))) for name in ("one", "two")]
    assert all(ids)
    assert not ids[0] & ids[1]
