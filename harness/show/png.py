"""A matrix as a small PNG with 256 colours (PNG specification, Third Edition)."""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode
from itertools import pairwise

import torch
from torch import Tensor

Colour = tuple[int, int, int]
# From white, evenly darker; and from blue through white to red, for values of both signs.
SEQUENTIAL: tuple[Colour, ...] = (
    (255, 255, 255), (214, 231, 245), (160, 202, 229), (95, 163, 209),
    (45, 118, 181), (16, 74, 138), (7, 32, 74),
)  # fmt: skip
DIVERGING: tuple[Colour, ...] = (
    (10, 48, 100), (56, 124, 184), (160, 200, 224), (255, 255, 255),
    (246, 176, 140), (206, 84, 70), (103, 0, 31),
)  # fmt: skip


def data_uri(values: Tensor, low: float, high: float, colours: tuple[Colour, ...]) -> str:
    """values (rows, columns), a pixel each: low is the first colour, NaN is transparent."""
    finite = values.isfinite()
    share = (torch.nan_to_num(values.double()) - low) / (high - low or 1.0)
    level = 1 + (share.clamp(0, 1) * 254).round().to(torch.uint8)
    rows = torch.where(finite, level, 0).to(torch.uint8)
    lines = b"".join(b"\0" + bytes(row.tolist()) for row in rows)  # a line starts with its filter
    height, width = rows.shape
    content = b"\x89PNG\r\n\x1a\n" + b"".join(
        _chunk(kind, body)
        for kind, body in (
            (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
            (b"PLTE", bytes((0, 0, 0)) + b"".join(map(bytes, _palette(colours, 255)))),
            (b"tRNS", b"\0"),
            (b"IDAT", zlib.compress(lines, 9)),
            (b"IEND", b""),
        )
    )
    return "data:image/png;base64," + b64encode(content).decode()


def _palette(colours: tuple[Colour, ...], size: int) -> list[Colour]:
    """`size` colours, linear between the given ones."""
    found = []
    for i in range(size):
        place = i / (size - 1) * (len(colours) - 1)
        at = min(int(place), len(colours) - 2)
        one, two = list(pairwise(colours))[at]
        mix = [round(a + (b - a) * (place - at)) for a, b in zip(one, two, strict=True)]
        found.append((mix[0], mix[1], mix[2]))
    return found


def _chunk(kind: bytes, body: bytes) -> bytes:
    check = zlib.crc32(kind + body)
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", check)
