"""One causal decoder for every encoding, which is the only difference between two of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, linear

from harness.data.buckets import bucket
from harness.data.seeds import generator
from harness.settings.config import Model
from pezoo import adapters
from pezoo.adapters import attend, resolve
from pezoo.base import Context, Encoding, Members, Shape


@dataclass
class Cache:
    """What decoding keeps: positions (B|1, S), ids (B, S), keys and values per layer, the memo."""

    pos: Tensor | None = None
    ids: Tensor | None = None
    layers: list[tuple[Tensor, Tensor] | None] = field(default_factory=list)
    memo: dict[str, Any] = field(default_factory=dict)


def shape_of(model: Model, train_len: int) -> Shape:
    """The Shape that an encoding is built from. Errors: ValueError if heads do not divide width."""
    if model.width % model.heads:
        raise ValueError(
            f"model.width {model.width} is not a multiple of model.heads {model.heads}"
        )
    return Shape(model.width, model.heads, model.width // model.heads, model.layers, train_len)


class Block(nn.Module):
    """Pre-LN: x + attention(LN x), then x + mlp(LN x)."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        width = model.width
        self.heads = model.heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up = nn.Linear(width, model.mlp_ratio * width)
        self.down = nn.Linear(model.mlp_ratio * width, width)
        self.drop = nn.Dropout(model.dropout)
        self.compiled: tuple[Callable[..., Any], Callable[..., Any]] | None = None  # read, feed

    def forward(
        self,
        x: Tensor,
        encoding: Encoding,
        ctx: Context,
        mask: Tensor | None,
        past: tuple[Tensor, Tensor] | None,
        backend: str,
        last: int,
        final: bool,
        ran: set[str],
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """x (B, T, D) -> the layer's output for the last tokens (B, last, D), keys and values.

        `ran` gets the name of the attention that ran.
        """
        t = x.shape[1]
        ctx = ctx.at(ctx.layer, x)
        read, feed = self.compiled if self.compiled and self.training else (self.read, self.feed)
        q, k, v = read(x)
        q, k = encoding.transform(q, k, ctx)
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)  # (B, H, S, K)
        y = attend(encoding, q, k, v, ctx, mask, backend, ran)
        x, y = x[:, t - last :], y[:, :, t - last :]  # the rest is done once keys and values are
        y = y.transpose(1, 2).flatten(2)
        x = x + self._drop(self.out(y), ctx, final)
        return x + self._drop(feed(x), ctx, final), (k, v)

    def read(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """x (B, T, D) -> q, k and v, each (B, H, T, K)."""
        b, t, _ = x.shape
        # Taken apart where they lie side by side, so that their gradients join in that order.
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, -1).unbind(2)
        return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)

    def feed(self, x: Tensor) -> Tensor:
        """mlp(LN x)."""
        y: Tensor = self.down(gelu(self.up(self.norm2(x))))
        return y

    def _drop(self, x: Tensor, ctx: Context, final: bool) -> Tensor:
        """Dropout; of a part, of a padded batch and in a stack as in the whole alone (CPU)."""
        p = self.drop.p
        usual = ctx.part is None and ctx.members is None and ctx.dropout is None
        usual = usual and not ctx.padding and not (final and ctx.asked != x.shape[1])
        if usual or not (self.training and p):
            dropped: Tensor = self.drop(x)
            return dropped

        def draw(size: tuple[int, ...], one: Context) -> Tensor:
            empty = torch.empty(size, dtype=x.dtype, device=x.device)
            return empty.bernoulli_(1 - p, generator=one.dropout)

        return x * (ctx.drawn(draw, tuple(x.shape), final) / (1 - p))


class Decoder(nn.Module):
    """Token embedding, blocks, a final LayerNorm and the (tied) unembedding.

    Every weight outside the encoding is drawn from a generator of its own, by name, after the
    encoding is built: for one seed all encodings share them bit for bit (`backbone_hash`).
    """

    def __init__(
        self,
        model: Model,
        encoding: Encoding,
        seed: int,
        attention: str = "auto",
        device: str = "",
    ) -> None:
        super().__init__()
        self.model, self.encoding = model, encoding
        self.attention = resolve(attention, encoding, device)
        self.ran: dict[str, set[str]] = {"train": set(), "eval": set()}  # attention, by phase
        self.embedding = nn.Embedding(model.vocab, model.width)
        self.blocks = nn.ModuleList(Block(model) for _ in range(model.layers))
        self.norm = nn.LayerNorm(model.width)
        self.unembedding = None if model.tie_embeddings else nn.Linear(model.width, model.vocab)
        self._initialise(seed)
        self.to(device or "cpu")

    def forward(
        self,
        ids: Tensor,
        pos: Tensor,
        *,
        scale: Tensor | None = None,
        generator: torch.Generator | None = None,
        cache: Cache | None = None,
        total: int | None = None,
        progress: float | None = None,
        mode: str | None = None,
        part: tuple[int, int] | None = None,
        padding: int | None = None,
        last: int | None = None,
        members: Members | None = None,
    ) -> Tensor:
        """Logits (B, T, vocab) of the next token after each of the new ids (B, T) at pos (B|1, T).

        `last` asks for those after the last few tokens alone: (B, last, vocab), for less work.
        With a `padding`, the number of columns on the right that are no tokens, these may be more
        than asked for: a size of `harness.data.buckets`.
        With a cache, the new tokens follow those already in it; `total` is the planned length.
        `progress`, `mode`, `part` and `members` are those of `pezoo.base.Context`.
        """
        new = ids.shape[1]
        past = cache or Cache()
        if past.pos is not None and past.ids is not None:
            pos, ids = torch.cat([past.pos, pos], 1), torch.cat([past.ids, ids], 1)
        x = self.embedding(ids[:, -new:]) * self.model.width**0.5
        last = new if last is None else last
        ctx = Context(
            pos, ids, x, 0, new, scale, past.memo, total, generator, None, progress, mode, part,
            padding or 0, last, None, members,
        )  # fmt: skip
        mask = attention_mask(ctx)
        ctx = self.encoding.prepare(ctx)
        x = self.encoding.embed(x, ctx)
        layers = past.layers or [None] * len(self.blocks)
        few = last if padding is None else min(new, bucket(last))
        ran = self.ran["train" if self.training else "eval"]
        for i, block in enumerate(self.blocks):
            final = i + 1 == len(self.blocks)
            here, kept = ctx.at(i, x), few if final else new
            x, layers[i] = block(
                x, self.encoding, here, mask, layers[i], self.attention, kept, final, ran
            )
        past.pos, past.ids, past.layers = pos, ids, layers
        x = self.norm(x)
        return linear(x, self.embedding.weight) if self.unembedding is None else self.unembedding(x)

    def kernels(self) -> dict[str, str]:
        """The back end that each kernel runs on in training, for records."""
        return self.encoding.kernels()

    def backbone_parameters(self) -> dict[str, Tensor]:
        """Every parameter that does not belong to the encoding, by name."""
        return {n: p for n, p in self.named_parameters() if not n.startswith("encoding.")}

    def backbone_hash(self) -> str:
        """SHA-256 over the backbone's weights: equal for all encodings at one seed."""
        digest = hashlib.sha256()
        for name, parameter in sorted(self.backbone_parameters().items()):
            digest.update(name.encode())
            digest.update(parameter.detach().cpu().float().numpy().tobytes())
        return digest.hexdigest()[:16]

    @torch.no_grad()
    def _initialise(self, seed: int) -> None:
        residual = (2 * len(self.blocks)) ** -0.5
        for name, parameter in self.backbone_parameters().items():
            if parameter.dim() < 2:
                parameter.fill_(1.0 if "norm" in name and name.endswith("weight") else 0.0)
                continue
            std = parameter.shape[1] ** -0.5
            std *= residual if name.endswith(("out.weight", "down.weight")) else 1.0
            draw = torch.randn(parameter.shape, generator=generator("backbone", seed, name))
            parameter.copy_(draw * std)


def attention_mask(ctx: Context) -> Tensor | None:
    """The mask of `pezoo.adapters`, or None where it is plainly causal and kernels need none."""
    padded = any(bool((one.pos < 0).any()) for one in ctx.models)
    if ctx.new == ctx.pos.shape[1] and not padded:
        return None
    return adapters.attention_mask(ctx)
