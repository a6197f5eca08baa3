"""Checks that a sample is computed as if it were alone: in a batch, in parts, with padding."""

from __future__ import annotations

import torch

from pezoo.testing.probe import Factory, build, close, run, stream, tokens


def check_batch(factory: Factory) -> None:
    """Permuting the batch permutes the output: samples do not see each other."""
    encoding = build(factory)
    ids, order = tokens(4), torch.tensor([2, 0, 3, 1])
    close(
        run(encoding, ids)[order],
        run(encoding, ids[order]),
        1e-9,
        "samples of a batch see each other",
    )


def check_parts(factory: Factory) -> None:
    """In training, a batch computed in parts (`Context.part`) gives the rows of the whole one."""
    encoding, ids = build(factory).train(), tokens(4)
    whole = run(encoding, ids, progress=1.0)
    parts = [run(encoding, ids[a:b], progress=1.0, part=(a, 4)) for a, b in ((0, 1), (1, 4))]
    close(
        whole,
        torch.cat(parts),
        1e-9,
        "a batch in parts draws other numbers than the whole: draw by ctx.drawn",
    )


def check_right_padding(factory: Factory) -> None:
    """In training, padding on the right (`Context.padding`) changes nothing before it."""
    encoding, ids = build(factory).train(), tokens(2, 10)
    if not encoding.prefix_stable:
        return
    pos = torch.arange(10)[None].repeat(2, 1)
    pos[1] = (pos[1] - 2).clamp(min=-1)  # this row begins with two of padding on the left
    padded = torch.cat([ids, ids[:, :3]], 1), torch.cat([pos, pos[:, -1:].expand(-1, 3)], 1)
    scale = torch.tensor([5])
    plain = run(encoding, ids, pos, scale=scale, progress=1.0)
    full = run(encoding, *padded, scale=scale, progress=1.0, padding=3)[:, :10]
    message = "padding on the right changes what is before it: draw by ctx.drawn or ctx.length"
    close(plain[0], full[0], 1e-9, message)
    close(plain[1, 2:], full[1, 2:], 1e-9, message)


def check_left_padding(factory: Factory) -> None:
    """Padding on the left (position -1) moves nothing, in the full pass and while decoding."""
    encoding = build(factory)
    ids = tokens(2, 10)
    pos = torch.arange(10)[None].repeat(2, 1)
    padded = torch.cat([torch.zeros(2, 3, dtype=torch.long), ids], 1)
    pos = torch.cat([torch.full((2, 3), -1), pos], 1)
    padded[1], pos[1] = (
        padded[1].roll(-3),
        pos[1].roll(-3),
    )  # one row padded, one with junk after it
    pos[1, 10:] = torch.arange(10, 13)
    scale = torch.tensor([5])
    plain = run(encoding, ids, scale=scale, total=13)
    full = run(encoding, padded, pos, scale=scale, total=13)
    close(plain[:1], full[:1, 3:], 1e-5, "padding on the left moves positions")
    close(plain[1:], full[1:, :10], 1e-5, "a row without padding changes beside one with padding")
    if encoding.prefix_stable:
        chunks = stream(encoding, padded, [2, 4, 1, 6], pos, scale=scale, total=13)
        close(plain[:1], chunks[:1, 3:], 1e-5, "padding on the left moves positions while decoding")
