"""A check that packed documents do not see each other."""

from __future__ import annotations

from typing import Any

import torch

from pezoo.testing.probe import Factory, build, close, run, stream, tokens

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
