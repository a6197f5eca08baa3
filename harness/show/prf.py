"""The positional relation function of an encoding, as pictures.

    python -m harness.show.prf

writes those of all encodings for the leaderboard, whose pages are built without torch.
"""

import json

import torch
from torch import Tensor

from harness import tasks
from harness.model.transformer import Transformer
from harness.settings.catalog import PRF_MAPS
from harness.show.examples import Example
from leaderboard.catalog import PRFMaps
from pezoo.base import Shape
from pezoo.pictures import Axis, Picture
from pezoo.prf import prf_of
from pezoo.registry import make, typed_names

RANKS = ("most probable", "second", "third")
CAPTION = (
    "phi of every query (row) and key (column). Pairs of one colour are treated alike, whatever "
    "their tokens; the numbers mean nothing else, unless they are distances."
)
LEARNED = " phi is learned: its three most probable values, as in Figure 4 of Chen et al. (2026)."
SITE = (
    "phi(i, j) at the first positions. Pairs with the same number are treated alike, whatever "
    "their tokens."
)
UNTRAINED = (
    "phi(i, j) is learned: a distribution over kinds of pairs. Here are the most probable ones "
    "before training (seed 0), as in Figure 4 of Chen et al. (2026); pezoo show RUN draws what a "
    "run has learned."
)
DIGITS = 4
COPY = f'The task is copy: {DIGITS} digits, "=" and the answer.'
LINE = "A decoder does not see keys right of the line."


def prf_picture(model: Transformer, example: Example) -> list[Picture]:
    """Picture the values of the PRF, or the most probable ones of a learned PRF in each layer.

    Returns nothing if the encoding does not define a PRF.
    """
    encoding, tokens = model.encoding, example.inputs.shape[1]
    every = [
        prf_of(encoding, tokens, scale=example.length, task_prf=model.task_prf, layer=layer)
        for layer in range(len(model.blocks))
    ]
    found = [prf for prf in every if prf is not None]
    if not found:
        return []
    learned = found[0].is_floating_point()
    panels = [
        (f"layer {layer}, rank {rank}", values)
        for layer, prf in enumerate(found if learned else found[:1])
        for rank, values in enumerate(_ranked(prf), 1)
    ]
    names = tuple(name for name, _ in panels) if learned else ("all layers",)
    values = torch.stack([values for _, values in panels])
    if model.track == "decoder":
        values = values.masked_fill(torch.ones(tokens, tokens).triu(1).bool(), torch.nan)
    caption = CAPTION + (LEARNED if learned else "")
    axes, group = (Axis("query"), Axis("key")), len(panels) // len(found) if learned else 1
    return [Picture("Positional relation function", caption, names, values, *axes, group=group)]


def prf_maps(name: str) -> PRFMaps | None:
    """Return the PRF of an untrained encoding with default options, for its page on the site.

    None if the encoding does not define a PRF.

    >>> prf_maps("rope").panels[0][1][3][:4]
    (3, 2, 1, 0)
    """
    size = 2 * DIGITS + 1
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        encoding = make(name, Shape(16, 2, 8, 1, size))
    task_prf = tasks.make(f"copy(aligned={DIGITS})").prf
    prf = prf_of(encoding, size, scale=DIGITS, task_prf=task_prf)
    if prf is None:
        return None
    from_task = prf_of(encoding, size, scale=DIGITS) is None
    learned = prf.is_floating_point()
    words = [
        UNTRAINED if learned else SITE,
        COPY * from_task,
        f"The scale n is {DIGITS}." * encoding.needs_scale,
    ]
    panels = [
        (title, tuple(map(tuple, values.long().tolist())))
        for title, values in zip(RANKS if learned else [""], _ranked(prf), strict=True)
    ]
    return PRFMaps(tuple(panels), " ".join(filter(None, [*words, LINE])))


def _ranked(prf: Tensor) -> list[Tensor]:
    """Return the values (n, n), or those of each rank if the PRF is learned."""
    if not prf.is_floating_point():
        return [prf.float()]
    top = prf.topk(min(len(RANKS), prf.shape[-1]), -1).indices
    return [ranked.float() for ranked in top.unbind(-1)]


if __name__ == "__main__":
    found = {name: (one.panels, one.words) for name in typed_names() if (one := prf_maps(name))}
    lines = (f"{json.dumps(name)}: {json.dumps(found[name])}" for name in found)
    PRF_MAPS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
