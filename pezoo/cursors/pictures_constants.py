"""Pictures of what cursors have learned once for all tokens: mu, alpha, gamma, steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pezoo.cursors.gates import steps_of
from pezoo.cursors.layer import CursorLayer
from pezoo.pictures import Axis, Picture

if TYPE_CHECKING:
    from pezoo.cursors.encoding import CursorEncoding
    from pezoo.cursors.pictures import Seen


def constants(encoding: CursorEncoding) -> list[Picture]:
    """The share of content, and the weight of each cursor (Equation 9)."""
    layers = tuple(f"layer {i}" for i in range(encoding.shape.n_layers))
    heads, cursors = range(encoding.shape.n_heads), encoding.options.cursors
    one = [str(c) for c in range(cursors)] + ["abs"] * encoding.options.absolute
    names = [f"{head}.{c}" if len(one) > 1 else str(head) for head in heads for c in one]
    mu = encoding.mu.sigmoid()
    alpha = encoding.alpha.abs()
    return [
        Picture(
            "Content against position: mu",
            "The share mu of content in each head's score, 1 - mu is that of position.",
            layers, mu[:, None], Axis("mu", ("",)), Axis("head", tuple(map(str, heads))),
            "bars", (0.0, 1.0),
        ),
        Picture(
            "Weights of the cursors: (1 - mu) |alpha|",
            "What the score of each cursor is multiplied by (Equation 9).",
            layers, (alpha * (1 - mu)[..., None]).flatten(1)[:, None],
            Axis("(1 - mu) |alpha|", ("",)),
            Axis("head.cursor" if len(one) > 1 else "head", tuple(names)), "bars",
        ),
        Picture(
            "Weights of the cursors: |alpha|",
            "The learned weight of each cursor within its head.",
            layers, alpha.flatten(1)[:, None], Axis("|alpha|", ("",)),
            Axis("head.cursor" if len(one) > 1 else "head", tuple(names)), "bars",
        ),
    ]  # fmt: skip


def learned(seen: Seen, encoding: CursorEncoding, group: int) -> list[Picture]:
    """What the scans themselves have learned: sharpness and steps, where they do."""
    layer = encoding.layers[group]
    assert isinstance(layer, CursorLayer)
    scans = [layer.copy_scan, layer.scan] if layer.copying else [layer.scan]
    found = []
    gamma = [scan.gamma for scan in scans]
    if all(g is not None for g in gamma):
        order = torch.tensor(layer.order).argsort()
        values = torch.cat([g for g in gamma if g is not None])[order.to(encoding.mu.device)]
        found.append(
            Picture(
                f"Sharpness of the cursors: gamma{seen.suffix}",
                "After each move a histogram is raised to this power. 1 is the floor: nothing is "
                "sharpened.",
                ("queries", "keys"),
                values.view(2, 1, -1),
                Axis("gamma", ("",)),
                Axis(seen.unit, tuple(seen.names())),
                "bars",
            )
        )
    steps = [scan.learned_steps for scan in scans]
    if all(s is not None for s in steps):
        found.append(
            Picture(
                f"Learned steps{seen.suffix}",
                "How far each move goes, by the step that it started as.",
                ("cursors that copy", "other cursors")[-len(steps) :],
                torch.stack([s for s in steps if s is not None])[:, None],
                Axis("step", ("",)),
                Axis("move", tuple(f"{s:+d}" for s in steps_of(encoding.options.stride))),
                "bars",
            )
        )
    return found
