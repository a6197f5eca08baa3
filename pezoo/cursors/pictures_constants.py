"""Pictures of the parameters of cursors: mu, alpha, leads and gamma."""

from __future__ import annotations

import torch
from einops import rearrange

from pezoo.cursors.encoding import CursorEncoding
from pezoo.cursors.layer import CursorLayer
from pezoo.pictures import Axis, Picture


def constants(encoding: CursorEncoding) -> list[Picture]:
    """Return pictures of content's share, of each cursor's weight (Eq. 9), and of sharpness."""
    layers = tuple(f"layer {i}" for i in range(encoding.shape.n_layers))
    heads, one = range(encoding.shape.n_heads), [str(c) for c in range(encoding.options.cursors)]
    one += ["abs"] * encoding.options.absolute
    names = [f"{head}.{c}" if len(one) > 1 else str(head) for head in heads for c in one]
    cursors = Axis("head.cursor" if len(one) > 1 else "head", tuple(names))
    mu = rearrange(encoding.mu.sigmoid(), "layer head -> layer head 1")
    alpha = encoding.alpha.abs()
    row = "layer head cursor -> layer 1 (head cursor)"
    return [
        Picture(
            "Content against position: mu",
            "The share mu of content in each head's score, 1 - mu is that of position.",
            layers, rearrange(mu, row), Axis("mu", ("",)), Axis("head", tuple(map(str, heads))),
            "bars", (0.0, 1.0),
        ),
        Picture(
            "Weights of the cursors: (1 - mu) |alpha|",
            "The factor of each cursor's score (Equation 9).",
            layers, rearrange(alpha * (1 - mu), row), Axis("(1 - mu) |alpha|", ("",)), cursors,
            "bars",
        ),
        Picture(
            "Weights of the cursors: |alpha|",
            "The learned weight of each cursor within its head.",
            layers, rearrange(alpha, row), Axis("|alpha|", ("",)), cursors, "bars",
        ),
        *_leads(encoding, layers, cursors),
        *[one for group in range(len(encoding.starts)) for one in _sharpness(encoding, group)],
    ]  # fmt: skip


def _leads(encoding: CursorEncoding, layers: tuple[str, ...], cursors: Axis) -> list[Picture]:
    if encoding.lead is None:
        return []
    return [
        Picture(
            "Leads of the cursors",
            "What is added to a query cursor's offset where it is compared with its key cursor's.",
            layers, rearrange(encoding.lead.detach(), "layer head cursor -> layer 1 (head cursor)"),
            Axis("lead", ("",)), cursors, "bars",
        )
    ]  # fmt: skip


def _sharpness(encoding: CursorEncoding, group: int) -> list[Picture]:
    """Return a picture of the sharpness of one layer of cursors, if it is learned."""
    layer, suffix = encoding.layers[group], title_suffix(encoding, group)
    assert isinstance(layer, CursorLayer)
    scans = [layer.copy_scan, layer.scan] if layer.copying else [layer.scan]
    gammas = [scan.gamma for scan in scans if scan.gamma is not None]
    if not gammas:
        return []
    in_order = torch.cat(gammas)
    if layer.copying:
        in_order = in_order[layer.order(in_order.device).argsort()]
    return [
        Picture(
            f"Sharpness of the cursors: gamma{suffix}",
            "After each move a histogram is raised to this power. 1 is the minimum: no sharpening.",
            ("queries", "keys"),
            rearrange(in_order, "(role cursor) -> role 1 cursor", role=2),
            Axis("gamma", ("",)),
            Axis(*cursor_names(encoding, group)),
            "bars",
        )
    ]


def title_suffix(encoding: CursorEncoding, group: int) -> str:
    start = encoding.starts[group]
    return f", cursors before layer {start}" if len(encoding.starts) > 1 else ""


def cursor_names(encoding: CursorEncoding, group: int) -> tuple[str, tuple[str, ...]]:
    """Return the format of names, and a name for each pair of a query and a key cursor."""
    cursors, heads = encoding.options.cursors, range(encoding.shape.n_heads)
    pairs = [(layer, head) for layer in encoding.served(group) for head in heads]
    if cursors == 1:
        return "layer.head", tuple(f"{layer}.{head}" for layer, head in pairs)
    names = (f"{layer}.{head}.{c}" for layer, head in pairs for c in range(cursors))
    return "layer.head.cursor", tuple(names)
