"""The positional relation function of an encoding, as pictures."""

from __future__ import annotations

import torch
from torch import Tensor

from harness.model.transformer import Transformer
from harness.show.examples import Example
from pezoo.base import Encoding
from pezoo.pictures import Axis, Picture

RANKS = 3
CAPTION = (
    "phi of every query (row) and key (column): pairs of one colour are treated alike, whatever "
    "their tokens. The numbers themselves mean nothing beyond that, unless they are distances."
)
LEARNED = (
    " It is learned: its most probable value, the next and the third, as in Figure 4 of Chen et "
    "al. (2026)."
)


def relation_picture(model: Transformer, example: Example) -> list[Picture]:
    """The values of phi; of a distribution, the most probable ones by rank, layer by layer.

    Nothing where the encoding has no such function.
    """
    encoding, tokens = model.encoding, example.inputs.shape[1]
    if type(encoding).prf is Encoding.prf:
        return []
    scale = example.length if encoding.needs_scale else None
    every = [
        encoding.prf(tokens, scale=scale, relation=model.relation, layer=layer)
        for layer in range(len(model.blocks))
    ]
    found = [phi for phi in every if phi is not None]
    if not found:
        return []
    learned = found[0].is_floating_point()
    panels = [
        (f"layer {layer}, rank {rank}", values)
        for layer, phi in enumerate(found if learned else found[:1])
        for rank, values in enumerate(_ranked(phi), 1)
    ]
    names = tuple(name for name, _ in panels) if learned else ("all layers",)
    values = torch.stack([values for _, values in panels])
    if model.track == "decoder":
        values = values.masked_fill(torch.ones(tokens, tokens).triu(1).bool(), torch.nan)
    caption = CAPTION + (LEARNED if learned else "")
    axes = Axis("query"), Axis("key")
    return [
        Picture(
            "Positional relation",
            caption,
            names,
            values,
            *axes,
            group=len(panels) // len(found) if learned else 1,
        )
    ]


def _ranked(phi: Tensor) -> list[Tensor]:
    """(n, n) each: the values themselves, or the most probable ones."""
    if not phi.is_floating_point():
        return [phi.float()]
    top = phi.topk(min(RANKS, phi.shape[-1]), -1).indices
    return [ranked.float() for ranked in top.unbind(-1)]
