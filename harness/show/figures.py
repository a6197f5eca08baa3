"""Figures: the same picture of several passes, side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from harness.show import svg
from harness.show.axes import Tokens
from harness.show.watch import View
from pezoo.pictures import Axis, Picture

MOST = 8  # panels of a picture that are open at once
FOLDED = 56  # further ones, behind a fold

Group = list[tuple[str, str]]  # panels that are read together, each a name and an SVG


@dataclass(frozen=True)
class Part:
    """Panels under one heading, in groups; `folded` are further ones that matter less."""

    heading: str
    caption: str
    legend: str
    panels: list[Group]
    folded: list[Group]
    left_out: int  # panels


@dataclass(frozen=True)
class Figure:
    title: str
    caption: str
    parts: list[Part]


def figures(trained: Sequence[View], untrained: Sequence[View]) -> list[Figure]:
    """What there is to see of the trained model, and of the same model before its first step.

    `trained` holds a view of each example, at least one.
    """
    general = [_attention(view) for view in trained]
    found = [
        _figure([("After", view, p) for view, p in zip(trained, same, strict=True)])
        for same in zip(*general, strict=True)
    ]
    for picture in trained[0].pictures:
        if picture.kind == "heat":
            start, end = _same(picture, untrained), _same(picture, trained)
            if not picture.of_tokens:
                start, end = start[:1], end[:1]
            passes = [("Before", *one) for one in start] + [("After", *one) for one in end]
            found.append(_figure(passes))
    constants = [p for p in trained[0].pictures if p.kind == "bars"]
    if constants:
        starts = [_same(p, untrained) for p in constants]
        parts = [_bars(p, s[0][1] if s else p) for p, s in zip(constants, starts, strict=True)]
        caption = "The orange lines are the values before training."
        found.append(Figure("Learned constants", caption, parts))
    return found


def _same(picture: Picture, views: Sequence[View]) -> list[tuple[View, Picture]]:
    """The picture of that title in each view."""
    return [(view, p) for view in views for p in view.pictures if p.title == picture.title]


def _heading(when: str, view: View, picture: Picture) -> str:
    return f"{when} training, {view.example.title}" if picture.of_tokens else f"{when} training"


def _attention(view: View) -> list[Picture]:
    """Attention and bias, which every encoding has or may have."""
    attention = view.attention
    future = torch.ones(attention.shape[-2:], dtype=torch.bool).triu(1)
    layers, heads = range(attention.shape[0]), range(attention.shape[1])
    each = tuple(f"layer {i}, head {j}" for i in layers for j in heads)
    axes = Axis("query"), Axis("key")
    shown = attention.masked_fill(future, math.nan)
    found = [
        Picture(
            "Attention: maximum over heads",
            "How much the head that looks there most looks there. A row is a query, a column a "
            "key. A query of the answer reads the token on its left and writes the one on its "
            "right. Dashes part the prompt from the answer.",
            tuple(f"layer {i}" for i in layers), shown.amax(1), *axes, span=(0.0, 1.0),
        ),
        Picture(
            "Attention of every head",
            "The attention weights; each row sums to 1, or to less without softmax.",
            each, shown.flatten(0, 1), *axes, span=(0.0, 1.0),
        ),
    ]  # fmt: skip
    if view.bias is not None:
        bias = view.bias.masked_fill(future | view.bias.isinf(), math.nan)
        caption = "What the encoding adds to the logits, before the softmax; only differences "
        caption += "within a row count. Empty: no query may look there."
        same = len(bias) == len(layers) and bool((view.bias == view.bias[:1]).all())
        bias = bias[:1] if same else bias
        where = ["all layers"] if same else [f"layer {i}" for i in range(len(bias))]
        names = tuple(f"{layer}, head {j}" for layer in where for j in heads)
        found.append(Picture("Bias", caption, names, bias.flatten(0, 1), *axes))
    return found


def _figure(passes: Sequence[tuple[str, View, Picture]]) -> Figure:
    """One picture of several passes, each Before or After training, in the same colours; all of
    them show the panels that matter in the last."""
    last = passes[-1][2]
    order = list(range(len(last.panels)))
    if last.weights is not None:
        order = last.weights.argsort(descending=True, stable=True).tolist()
    scale = svg.scale_of(torch.cat([p.values.flatten() for _, _, p in passes]), last.span)
    parts = [_part(_heading(when, view, p), view, p, order, scale) for when, view, p in passes]
    return Figure(last.title, last.caption, parts)


def _part(heading: str, view: View, picture: Picture, order: list[int], scale: svg.Scale) -> Part:
    words = view.example.tokens
    tokens = Tokens(words[:-1], words[1:], view.example.prompt)
    drawn = []
    for i in [i for i in order if i < len(picture.panels)][: MOST + FOLDED]:
        marks = None if picture.marks is None else picture.marks[i]
        name = f"{picture.title}, {heading}: {picture.panels[i]}"
        axes = picture.rows, picture.columns
        panel = svg.heat(name, picture.values[i], *axes, scale, tokens, marks)
        drawn.append((picture.panels[i], panel))
    return _laid_out(heading, "", svg.colour_bar(scale), drawn, picture)


def _laid_out(heading: str, caption: str, legend: str, drawn: Group, picture: Picture) -> Part:
    groups = [drawn[i : i + picture.group] for i in range(0, len(drawn), picture.group)]
    most = MOST // picture.group
    left_out = max(0, len(picture.panels) - len(drawn))
    return Part(heading, caption, legend, groups[:most], groups[most:], left_out)


def _bars(picture: Picture, before: Picture) -> Part:
    """What the weights are now, and where each of them started."""
    both = torch.cat([picture.values, before.values])
    span = picture.span or (min(0.0, float(both.min())), max(0.0, float(both.max())))
    axes = picture.rows.label, picture.columns
    drawn = [
        (panel, svg.bars(f"{picture.title}: {panel}", now[0], *axes, span, old[0]))
        for panel, now, old in zip(picture.panels, picture.values, before.values, strict=True)
    ]
    return _laid_out(picture.title, picture.caption, "", drawn[: MOST + FOLDED], picture)
