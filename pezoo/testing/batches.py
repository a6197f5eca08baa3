"""Checks that a sample is computed as if it were alone: in a batch, padded, or packed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pezoo.base import PositionError
from pezoo.testing.probe import Factory, build, close, context, draws, run, stream, tokens

CONVENTION = "draw must return (B|1, T, ...) for each token, or (n,) or () for the whole batch"


def check_batch(factory: Factory) -> None:
    """Check that samples are independent: permuting the batch permutes the output."""
    encoding = build(factory)
    ids, order = tokens(4), torch.tensor([2, 0, 3, 1])
    close(
        run(encoding, ids)[order],
        run(encoding, ids[order]),
        1e-6,
        "samples of a batch depend on each other",
    )
    if encoding.stochastic:
        return
    if encoding.needs_scale:
        scale = torch.tensor([5, 9])
        both = run(encoding, ids[:2], scale=scale)
        rows = [run(encoding, ids[i : i + 1], scale=scale[i : i + 1]) for i in range(2)]
        close(both, torch.cat(rows), 1e-5, "a row uses the scale of another: ctx.scale is (B|1,)")
    pos, scale = torch.arange(10).repeat(2, 1), torch.tensor([5])
    pos[1, 4:] += 2000
    try:
        both = run(encoding, ids[:2], pos, scale=scale)
    except PositionError:
        return
    alone = run(encoding, ids[:1], scale=scale, length=2010)
    close(both[:1], alone, 1e-5, "far positions in another row of the batch change this row")
    alone = run(encoding, ids[1:2], pos[1:], scale=scale, length=2010)
    close(
        both[1:],
        alone,
        1e-5,
        "a row uses the positions of another: ctx.pos is (B|1, S), a row for each sample",
    )


def check_parts(factory: Factory) -> None:
    """Check that a training batch can be split: rows with their share of `drawn` give the same."""
    encoding, ids = build(factory).train(), tokens(4)
    drawn = encoding.draw(context(ids), generator=draws(), progress=1.0)
    whole = run(encoding, ids, drawn=drawn)
    parts = [run(encoding, ids[a:b], drawn=_rows(drawn, a, b)) for a, b in ((0, 1), (1, 4))]
    close(
        whole,
        torch.cat(parts),
        1e-6,
        f"a batch in parts gives another output than the whole: {CONVENTION}",
    )


def check_right_padding(factory: Factory) -> None:
    """Check that in training, columns of padding on the right change nothing before them."""
    encoding, ids = build(factory).train(), tokens(2, 10)
    if not encoding.prefix_stable:
        return
    pos = torch.arange(10)[None].repeat(2, 1)
    pos[1] = (pos[1] - 2).clamp(min=-1)  # two columns of padding on the left
    scale = torch.tensor([5])
    drawn = encoding.draw(context(ids, pos, scale=scale), generator=draws(), progress=1.0)
    padded = torch.cat([ids, ids[:, :3]], 1), torch.cat([pos, pos[:, -1:].expand(-1, 3)], 1)
    plain = run(encoding, ids, pos, scale=scale, drawn=drawn)
    full = run(encoding, *padded, scale=scale, drawn=_columns(drawn, 3))[:, :10]
    message = f"padding on the right changes the tokens before it: {CONVENTION}"
    close(plain[0], full[0], 1e-6, message)
    close(plain[1, 2:], full[1, 2:], 1e-6, message)


def _rows(drawn: dict[str, Tensor], first: int, stop: int) -> dict[str, Tensor]:
    return {n: x[first:stop] if x.dim() > 1 and len(x) > 1 else x for n, x in drawn.items()}


def _columns(drawn: dict[str, Tensor], more: int) -> dict[str, Tensor]:
    """Append columns of zeros; (n,) becomes longer too."""

    def longer(x: Tensor) -> Tensor:
        axis = min(1, x.dim() - 1)
        size = [more if i == axis else n for i, n in enumerate(x.shape)]
        return torch.cat([x, x.new_zeros(size)], axis) if size else x

    return {name: longer(x) for name, x in drawn.items()}


def check_left_padding(factory: Factory) -> None:
    """Check that padding on the left (position -1) changes nothing, also while decoding."""
    encoding = build(factory)
    ids = tokens(2, 10)
    pos = torch.arange(10)[None].repeat(2, 1)
    padded = torch.cat([torch.zeros(2, 3, dtype=torch.long), ids], 1)
    pos = torch.cat([torch.full((2, 3), -1), pos], 1)
    padded[1], pos[1] = padded[1].roll(-3), pos[1].roll(-3)  # further tokens instead of padding
    pos[1, 10:] = torch.arange(10, 13)
    scale = torch.tensor([5])
    plain = run(encoding, ids, scale=scale, length=13)
    full = run(encoding, padded, pos, scale=scale)
    close(
        plain[:1],
        full[:1, 3:],
        1e-5,
        "padding on the left changes the output: take positions from ctx.pos",
    )
    close(
        plain[1:], full[1:, :10], 1e-5, "a row without padding changes if another row has padding"
    )
    if encoding.prefix_stable:
        chunks = stream(encoding, padded, [2, 4, 1, 6], pos, scale=scale)
        close(
            plain[:1],
            chunks[:1, 3:],
            1e-5,
            "padding on the left changes decoding: take positions from ctx.pos",
        )


ROWS = (  # positions; -1 is padding
    (0, 1, 2, 3, 0, 1, 2, 3, 4, 5),
    (0, 0, 1, 2, 3, 0, 1, 0, 1, 2),
    (-1, -1, 0, 1, 2, -1, 1, 2, 3, 4),
    (2, 3, 4, 5, 6, 7, 8, 9, 10, 11),
)


def check_documents(factory: Factory) -> None:
    """Check that packed documents are independent: each is computed as if it were alone."""
    encoding, ids, pos = build(factory), tokens(len(ROWS)), torch.tensor(ROWS)
    fields: dict[str, Any] = {"scale": torch.tensor([5]), "length": 12}
    packed = run(encoding, ids, pos, **fields)
    for row, columns in _documents():
        alone = run(encoding, ids[row, columns][None], pos[row, columns][None], **fields)
        message = "packed documents depend on each other: reset state where ctx.document rises"
        close(packed[row, columns], alone[0], 1e-5, message)
    if encoding.prefix_stable:
        real = (pos >= 0)[..., None]
        for chunks in ([4, 1, 1, 1, 3], [6, 4]):
            steps = stream(encoding, ids, chunks, pos, **fields)
            message = f"decoding packed documents in chunks of {chunks} differs from a full pass"
            close(packed * real, steps * real, 1e-5, message)


def _documents() -> list[tuple[int, list[int]]]:
    """Return the row and columns of each document."""
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
