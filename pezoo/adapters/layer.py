"""Attention of one layer with an encoding, and the cache that it extends while decoding."""

from dataclasses import dataclass, field
from typing import Any, TypedDict, Unpack

import torch
from torch import Tensor

from pezoo.adapters import attend, check_sizes
from pezoo.base import PRF, Encoding, Memo, Pass
from pezoo.context import continued

_TOKENS = {"pos", "ids", "slots", "coords"}


@dataclass
class Cache:
    """State of a model while decoding: positions, ids, keys and values per layer, the memo.

    `length` is the planned length of the whole sequence, which `randomized` needs; None: that of
    the first pass. `layers` holds transformed keys (B, G, S, K') and values (B, G, S, K).
    Errors: ValueError for a length that is not a whole number of at least 1.
    """

    length: int | None = None
    encoding: str | None = None  # the one that filled it
    pos: Tensor | None = None  # (B|1, S)
    ids: Tensor | None = None  # (B, S)
    slots: Tensor | None = None  # (B|1, S)
    coords: Tensor | None = None  # (B|1, S, A)
    layers: list[tuple[Tensor, Tensor] | None] = field(default_factory=list)
    memo: Memo = field(default_factory=Memo)

    def __post_init__(self) -> None:
        check_length(self.length)


def check_length(length: object) -> None:
    """Raise ValueError for a planned length that is neither None nor a whole number from 1."""
    if length is not None and not (type(length) is int and length > 0):
        raise ValueError(f"length must be a whole number of at least 1, or None; got {length!r}")


class Told(TypedDict, total=False):
    """Fields of a `Context` that few encodings read; ids, slots, coords of the new tokens."""

    ids: Tensor
    slots: Tensor
    coords: Tensor
    scale: Tensor
    w_key: Tensor
    task_prf: PRF


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: Encoding,
    pos: Tensor | None = None,
    x: Tensor | None = None,
    cache: Cache | None = None,
    causal: bool = True,
    **told: Unpack[Told],
) -> Tensor:
    """Compute attention of one layer with an encoding -> (B, H, T, K).

    q (B, H, T, K), k and v (B, G, T, K) belong to new tokens, for G key-value heads. pos (B|1, T)
    are their positions, by default those after the row's last cached token; -1 is padding, and a
    position that does not rise begins a document. x (B, T, D) are their token embeddings, for
    encodings that read or change them. With a cache, queries attend to the tokens in it too, and
    the new tokens are added to it. New tokens without coords continue those in it. With
    causal=False, as in an encoder, they attend to later tokens too. `told` are other fields of
    `Context`.

    >>> import pezoo
    >>> q, k, v = torch.randn(3, 2, 4, 10, 8)
    >>> rope, cache = pezoo.RoPE(d_head=8), pezoo.Cache()
    >>> full, new = pezoo.attention(q, k, v, rope), [y.split(1, 2) for y in (q, k, v)]
    >>> steps = [pezoo.attention(*token, rope, cache=cache) for token in zip(*new)]
    >>> torch.allclose(torch.cat(steps, 2), full, atol=1e-5)
    True

    It calls what a model calls: `prepare`, `transform`, `scores`, `bias` and `weights`. Encodings
    that change the token embeddings (learned, sinusoidal) come before q, k and v, which are to be
    computed from `encoding.embed(x, encoding.prepare(Context(pos, x=x)))`.

    Errors: ValueError without x for an encoding that reads or changes it, and with a cache for one
    whose earlier keys change as the text grows or with causal=False; those of `prepare` and
    `attend`.
    """
    if cache is not None and not causal:
        raise ValueError("causal=False computes whole texts: leave out the cache")
    old = Cache() if cache is None else cache
    name = _checked(q, k, v, encoding, cache)
    if pos is None:
        pos = torch.arange(k.shape[2], device=q.device)[None] + _next(old.pos)
    fields = _fields(old, pos, k.shape[2], told)
    ctx = Pass(**fields, x=x, n_new=k.shape[2], memo=old.memo)
    ctx = encoding.prepare(Pass.of(ctx, drawn=encoding.draw(ctx, length=old.length)))
    ctx = ctx.at(0, _embedded(q, x, encoding, ctx, name))
    q, k = encoding.transform(q, k, ctx)
    if old.layers and old.layers[0] is not None:
        k, v = (torch.cat(pair, 2) for pair in zip(old.layers[0], (k, v), strict=True))
    out = attend(encoding, q, k, v, ctx, causal=causal)
    vars(old).update(
        {key: fields[key] for key in _TOKENS & {*fields}}, encoding=name, layers=[(k, v)]
    )
    return out


def _fields(old: Cache, pos: Tensor, new: int, told: Told) -> dict[str, Any]:
    """Return the fields of `Context` for the tokens of the cache and the new ones after them."""
    fields: dict[str, Any] = {"pos": pos, **told}
    if old.pos is not None and old.coords is not None and "coords" not in told:
        fields["coords"] = continued(old.coords, old.pos, pos)
    for key in _TOKENS & {*told}:
        if fields[key].shape[1] != new:
            raise ValueError(
                f"{key} must be (B, {new}), one for each new token; got {tuple(fields[key].shape)}"
            )
    return fields | {key: _joined(getattr(old, key), fields[key]) for key in _TOKENS & {*fields}}


def _checked(q: Tensor, k: Tensor, v: Tensor, encoding: Encoding, cache: Cache | None) -> str:
    """Return the encoding's name after checks of the arguments."""
    if not isinstance(encoding, Encoding):
        raise TypeError(
            f"expected an encoding such as RoPE(d_head={q.shape[-1]}), got {encoding!r}"
        )
    if q.dim() != 4:
        raise ValueError(f"q must be (B, H, T, K), got {tuple(q.shape)}")
    b, _, t, size = q.shape
    for name, own, width in (("k", k, size), ("v", v, v.shape[-1])):
        if own.dim() != 4 or (own.shape[0], *own.shape[2:]) != (b, t, width):
            raise ValueError(
                f"{name} must be (B, G, T, K) = ({b}, G, {t}, {width}) beside q, got "
                f"{tuple(own.shape)}"
            )
    check_sizes(encoding.shape, n_heads=q.shape[1], d_head=q.shape[3])
    name = encoding.name or type(encoding).__name__
    if cache is not None and not encoding.prefix_stable:
        raise ValueError(f"{name} changes earlier keys as the text grows: leave out the cache")
    if cache is not None and cache.encoding not in (None, name):
        raise ValueError(f"this cache was filled with {cache.encoding}: begin another for {name}")
    return name


def _next(pos: Tensor | None) -> Tensor | int:
    """Return the position after the last token of each row, (B|1, 1); 0 without any."""
    if pos is None:
        return 0
    column = torch.arange(pos.shape[1], device=pos.device)
    last = torch.where(pos >= 0, column, 0).amax(1, keepdim=True)
    return pos.gather(1, last).clamp(min=-1) + 1


def _embedded(
    q: Tensor, x: Tensor | None, encoding: Encoding, ctx: Pass, name: str
) -> Tensor | None:
    """Return the token embeddings with the encoding's added; None without x."""
    if x is not None:
        return encoding.embed(x, ctx)
    given = q.new_zeros(1, ctx.new, vars(encoding.shape).get("d_model", 1))
    if encoding.embed(given, ctx) is not given:
        raise ValueError(
            f"{name} changes the token embeddings: pass them as x (B, T, D), and compute q, k and "
            "v from encoding.embed(x, encoding.prepare(Context(pos, x=x)))"
        )
    return None


def _joined(before: Tensor | None, new: Tensor) -> Tensor:
    """Append new positions, ids, slots or coords (B|1, T, ...) to those of the cached tokens."""
    if before is None:
        return new
    rows = max(len(before), len(new))
    return torch.cat([x.expand(rows, *x.shape[1:]) for x in (before, new)], 1)
