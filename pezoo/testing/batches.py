"""Checks that a sample is computed as if it were alone: in a batch, padded, or packed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pezoo.base import PositionError
from pezoo.testing.probe import Factory, build, close, context, draws, run, stream, tokens

CONVENTION = "draw returns (B|1, T, ...), or (n,) and () for the whole batch"


def check_batch(factory: Factory) -> None:
    """Permuting the batch permutes the output: samples do not see each other."""
    encoding = build(factory)
    ids, order = tokens(4), torch.tensor([2, 0, 3, 1])
    close(
        run(encoding, ids)[order],
        run(encoding, ids[order]),
        1e-6,
        "samples of a batch see each other",
    )
    if encoding.stochastic:
        return
    if encoding.needs_scale:
        scale = torch.tensor([5, 9])
        both = run(encoding, ids[:2], scale=scale)
        rows = [run(encoding, ids[i : i + 1], scale=scale[i : i + 1]) for i in range(2)]
        close(both, torch.cat(rows), 1e-5, "a row has the scale of another: ctx.scale is (B|1,)")
    pos, scale = torch.arange(10).repeat(2, 1), torch.tensor([5])
    pos[1, 4:] += 2000
    try:
        both = run(encoding, ids[:2], pos, scale=scale)
    except PositionError:
        return
    alone = run(encoding, ids[:1], scale=scale, length=2010)
    close(both[:1], alone, 1e-5, "far positions in another row of the batch change this one")
    alone = run(encoding, ids[1:2], pos[1:], scale=scale, length=2010)
    close(both[1:], alone, 1e-5, "a row has the positions of another: ctx.pos has its own, (B, S)")


def check_parts(factory: Factory) -> None:
    """In training, some rows of a batch, with their share of what is drawn, are those rows."""
    encoding, ids = build(factory).train(), tokens(4)
    drawn = encoding.draw(context(ids), generator=draws(), progress=1.0)
    whole = run(encoding, ids, drawn=drawn)
    parts = [run(encoding, ids[a:b], drawn=_rows(drawn, a, b)) for a, b in ((0, 1), (1, 4))]
    close(whole, torch.cat(parts), 1e-6, f"a batch in parts is not the whole: {CONVENTION}")


def check_right_padding(factory: Factory) -> None:
    """In training, columns on the right, for which 0 is drawn, change nothing before them."""
    encoding, ids = build(factory).train(), tokens(2, 10)
    if not encoding.prefix_stable:
        return
    pos = torch.arange(10)[None].repeat(2, 1)
    pos[1] = (pos[1] - 2).clamp(min=-1)  # this row begins with two of padding on the left
    scale = torch.tensor([5])
    drawn = encoding.draw(context(ids, pos, scale=scale), generator=draws(), progress=1.0)
    padded = torch.cat([ids, ids[:, :3]], 1), torch.cat([pos, pos[:, -1:].expand(-1, 3)], 1)
    plain = run(encoding, ids, pos, scale=scale, drawn=drawn)
    full = run(encoding, *padded, scale=scale, drawn=_columns(drawn, 3))[:, :10]
    message = f"padding on the right changes what is before it: {CONVENTION}"
    close(plain[0], full[0], 1e-6, message)
    close(plain[1, 2:], full[1, 2:], 1e-6, message)


def _rows(drawn: dict[str, Tensor], first: int, stop: int) -> dict[str, Tensor]:
    return {n: x[first:stop] if x.dim() > 1 and len(x) > 1 else x for n, x in drawn.items()}


def _columns(drawn: dict[str, Tensor], more: int) -> dict[str, Tensor]:
    """With that many more columns of zeros; (n,) becomes longer too."""

    def longer(x: Tensor) -> Tensor:
        axis = min(1, x.dim() - 1)
        size = [more if i == axis else n for i, n in enumerate(x.shape)]
        return torch.cat([x, x.new_zeros(size)], axis) if size else x

    return {name: longer(x) for name, x in drawn.items()}


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
    plain = run(encoding, ids, scale=scale, length=13)
    full = run(encoding, padded, pos, scale=scale)
    close(plain[:1], full[:1, 3:], 1e-5, "padding on the left moves positions")
    close(plain[1:], full[1:, :10], 1e-5, "a row without padding changes beside one with padding")
    if encoding.prefix_stable:
        chunks = stream(encoding, padded, [2, 4, 1, 6], pos, scale=scale)
        close(plain[:1], chunks[:1, 3:], 1e-5, "padding on the left moves positions while decoding")


ROWS = (  # positions; -1 is padding
    (0, 1, 2, 3, 0, 1, 2, 3, 4, 5),
    (0, 0, 1, 2, 3, 0, 1, 0, 1, 2),
    (-1, -1, 0, 1, 2, -1, 1, 2, 3, 4),
    (2, 3, 4, 5, 6, 7, 8, 9, 10, 11),
)


def check_documents(factory: Factory) -> None:
    """In a row of several documents, where positions fall back, each is computed as if alone."""
    encoding, ids, pos = build(factory), tokens(len(ROWS)), torch.tensor(ROWS)
    fields: dict[str, Any] = {"scale": torch.tensor([5]), "length": 12}
    packed = run(encoding, ids, pos, **fields)
    for row, columns in _documents():
        alone = run(encoding, ids[row, columns][None], pos[row, columns][None], **fields)
        message = "packed documents see each other: begin anew where ctx.document rises"
        close(packed[row, columns], alone[0], 1e-5, message)
    if encoding.prefix_stable:
        real = (pos >= 0)[..., None]
        for chunks in ([4, 1, 1, 1, 3], [6, 4]):
            steps = stream(encoding, ids, chunks, pos, **fields)
            message = f"decoding packed documents in chunks of {chunks} differs"
            close(packed * real, steps * real, 1e-5, message)


def _documents() -> list[tuple[int, list[int]]]:
    """Row and columns of each."""
    found: list[tuple[int, list[int]]] = []
    for number, row in enumerate(ROWS):
        before = -1
        for column, p in enumerate(row):
            if p >= 0:
                if p <= before or before < 0:
                    found.append((number, []))
                found[-1][1].append(column)
                before = p
    return found
