"""Pictures of forward passes on several examples, before and after training, in equal colours."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from einops import rearrange
from torch import Tensor

from harness.model.transformer import Transformer
from harness.show import plots
from harness.show.examples import EMPTY, Example, positions
from harness.show.prf import prf_picture
from pezoo.adapters.layer import Cache
from pezoo.base import Pass
from pezoo.pictures import Axis, Picture

MOST = 64  # panels of a section
PAIRS = 8  # of a query and a key that are drawn together
MEETING = """Blue: the key cursor at each token of the prompt, with that token in its cell. Orange:
the query cursor, with the token that is written. A query attends to keys in its own row,
or as many rows away as the pair's learned lead."""

Panel = tuple[str, str]  # a name and an SVG


@dataclass(frozen=True)
class Section:
    """Panels under one heading, the most important first.

    `group` neighbours are read together. `omitted` panels are not drawn.
    """

    heading: str
    panels: list[Panel]
    caption: str = ""
    colour_bar: str = ""  # an SVG
    group: int = 1
    omitted: int = 0


@dataclass(frozen=True)
class Figure:
    title: str
    caption: str
    sections: list[Section]


@dataclass(frozen=True)
class Activations:
    """A model on one example: attention and bias (layers, H, T, T), the encoding's pictures.

    bias holds the layers that have one; None if no layer has.
    """

    example: Example
    attention: Tensor
    bias: Tensor | None
    pictures: list[Picture]
    causal: bool = True


@torch.no_grad()
def activations(model: Transformer, example: Example, mode: str | None = None) -> Activations:
    """Run the model on the example, recording what its encoding's hooks read and return.

    Errors: PositionError if the encoding cannot represent the example.
    """
    encoding, backend, ids = model.encoding, model.attention, example.inputs
    transform, bias, weights = encoding.transform, encoding.bias, encoding.weights
    contexts: list[Pass] = []
    biases: list[Tensor] = []
    attention: list[Tensor] = []

    def record_transform(q: Tensor, k: Tensor, ctx: Pass) -> tuple[Tensor, Tensor]:
        contexts.append(ctx)
        return transform(q, k, ctx)

    def record_bias(*args: Any) -> Tensor | None:
        if (found := bias(*args)) is not None:
            biases.append(found)
        return found

    def record_weights(logits: Tensor, ctx: Pass) -> Tensor:
        own = weights(logits, ctx)
        attention.append(logits.softmax(-1) if own is None else own)
        return attention[-1]

    hooks = {"transform": record_transform, "bias": record_bias, "weights": record_weights}
    vars(encoding).update(hooks)  # of this object, in front of those of its class
    model.attention = "eager"
    try:
        model.eval()(
            ids,
            torch.arange(ids.shape[1])[None],
            scale=torch.tensor([example.length]),
            generator=positions(example.length),
            cache=Cache(length=example.planned),
            mode=mode,
        )
    finally:
        model.attention = backend
        for name in hooks:
            del vars(encoding)[name]
    pictures = [*prf_picture(model, example), *encoding.pictures(contexts)]
    every = torch.cat(attention)
    added = torch.cat([one.expand_as(every[:1]) for one in biases]) if biases else None
    return Activations(example, every, added, pictures, model.track == "decoder")


def figures(trained: Sequence[Activations], untrained: Activations) -> list[Figure]:
    """Draw attention, bias and the encoding's pictures on each example, at least one.

    Of the model before training, draw the encoding's pictures alone, on the first example.
    """
    shown = [("Before training", untrained.example, p) for p in untrained.pictures]
    after = [[*_attention(one), *one.pictures] for one in trained]
    for one, pictures in zip(trained, after, strict=True):
        shown += [("After training", one.example, p) for p in pictures]
    found, constants = [], []
    for title in [picture.title for picture in after[0]]:
        same = [one for one in shown if one[2].title == title]
        if not same[0][2].of_tokens:  # equal for all examples
            same = list({when: (when, example, p) for when, example, p in same}.values())
        if same[0][2].kind == "bars":
            constants.append(_bars(same[0][2], same[-1][2]))
        else:
            found.append(_heat_maps(same))
    if constants:
        caption = "The orange lines are the values before training."
        found.append(Figure("Learned constants", caption, constants))
    return found


def _attention(activations: Activations) -> list[Picture]:
    """Picture attention, and the bias of an encoding that adds one."""
    layers, heads = map(range, activations.attention.shape[:2])
    names = tuple(f"layer {i}, head {j}" for i in layers for j in heads)
    axes, flat = (Axis("query"), Axis("key")), "layer head q k -> (layer head) q k"
    future = torch.ones(activations.attention.shape[-2:], dtype=torch.bool).triu(1)
    future &= activations.causal
    attention = activations.attention.masked_fill(future, math.nan)
    found = [
        Picture(
            "Attention: maximum over heads",
            "The largest attention weight of all heads. A row is a query, a column a key. A query "
            "of the answer is labelled with the token that it reads (· is an encoder's empty one) "
            "and the one that it writes. Dashed lines separate the prompt from the answer.",
            tuple(f"layer {i}" for i in layers), attention.amax(1), *axes, limits=(0.0, 1.0),
        ),
        Picture(
            "Attention of every head",
            "The attention weights; each row sums to 1, or to less without softmax.",
            names, rearrange(attention, flat), *axes, limits=(0.0, 1.0),
        ),
    ]  # fmt: skip
    if activations.bias is not None:
        bias = activations.bias.masked_fill(future | activations.bias.isinf(), math.nan)
        if len(bias) == len(layers) and bool((activations.bias == activations.bias[:1]).all()):
            bias, names = bias[:1], tuple(f"all layers, head {j}" for j in heads)
        caption = "What the encoding adds to the logits before the softmax; only differences "
        caption += "within a row matter. Grey: the query does not attend to the key."
        names = names[: bias.shape[0] * len(heads)]
        found.append(Picture("Bias", caption, names, rearrange(bias, flat), *axes))
    return found


def _heat_maps(same: Sequence[tuple[str, Example, Picture]]) -> Figure:
    """Draw the panels that matter most in the last section, in the same colours in all."""
    last = same[-1][2]
    order = list(range(len(last.panels)))
    if last.importance is not None:
        order = last.importance.argsort(descending=True, stable=True).tolist()
    scale = plots.scale_of(torch.cat([p.values.flatten() for _, _, p in same]), last.limits)
    sections = []
    for when, example, p in same:
        heading = f"{when}, {example.title}" if p.of_tokens else when
        drawn = [i for i in order if i < len(p.panels)][:MOST]
        names = [p.panels[i] for i in drawn]
        lines = None if p.lines is None else p.lines[drawn]
        svgs = plots.heat_maps(names, p.values[drawn], p.rows, p.columns, scale, example, lines)
        panels = list(zip(names, svgs, strict=True))
        bar, omitted = plots.colour_bar("colours", scale), len(p.panels) - len(drawn)
        sections.append(Section(heading, panels, "", bar, p.group, omitted))
        if p.meets and when == "After training" and EMPTY not in example.reads:
            sections.append(_meetings(heading, example, p, order))
    return Figure(last.title, last.caption, sections)


def _meetings(heading: str, example: Example, picture: Picture, order: Sequence[int]) -> Section:
    """Draw pairs of a query and a key panel together, the most important first."""
    panels = []
    for i in order[: 2 * PAIRS : 2]:
        pair = picture.values[[i, i + 1]]
        name = picture.panels[i].removesuffix(": query")
        panels.append((name, plots.meeting(name, *pair, picture.rows, example)))
    return Section(f"{heading}, query and key in one picture", panels, MEETING)


def _bars(before: Picture, after: Picture) -> Section:
    low, high = plots.finite_range(torch.cat([before.values, after.values]))
    limits = after.limits or (min(0.0, low), max(0.0, high))
    axes, panels = (after.rows.label, after.columns), []
    for i, name in enumerate(after.panels[:MOST]):
        now, start = (picture.values[i, 0].tolist() for picture in (after, before))
        panels.append((name, plots.bars(name, now, start, *axes, limits)))
    omitted = len(after.panels) - len(panels)
    return Section(after.title, panels, after.caption, "", after.group, omitted)
