"""Caches of transformers that hold transformed keys, and what an encoding carries along."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache as once
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import (
    Cache,
    DynamicLayer,
    DynamicSlidingWindowLayer,
    EncoderDecoderCache,
    LinearAttentionAndFullAttentionLayer,
    LinearAttentionAndSlidingWindowAttentionLayer,
    LinearAttentionAndStaticSlidingWindowAttentionLayer,
    StaticLayer,
    StaticSlidingWindowLayer,
)

from pezoo.context import Memo
from pezoo.functional import for_each_head


@once
def keeping(cls: Any) -> Any:
    """Return a class of cache layers that give new keys back until attention transformed them.

    `keep` adds them to the cache and returns all, without the free room of a StaticLayer. Offloaded
    layers, which Cache.update offloads, are offloaded after it.
    """

    def update(self: Any, k: Tensor, v: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        self.due = True
        return k, v

    def offload(self: Any) -> None:
        self.leaves = self.due
        if not self.due:
            cls.offload(self)

    def keep(self: Any, k: Tensor, v: Tensor, tokens: int) -> Any:
        if not self.due:
            raise ValueError(
                "this model's layers attend more than once with what they cache: call it with "
                "use_cache=False"
            )
        self.due = False
        if isinstance(self, StaticLayer):  # which has room for as many values as keys
            v = for_each_head(v, k)
        k, v = cls.update(self, k, v)
        if self.leaves:
            self.offload()
        return (k, v) if k.shape[2] == tokens else (k[:, :, :tokens], v[:, :, :tokens])

    own = {"update": update, "offload": offload, "keep": keep, "due": False, "leaves": False}
    return type(f"Kept{cls.__name__}", (cls,), own)


class MemoLayer(DynamicLayer):  # type: ignore[misc]
    """The last layer of a cache: positions, ids and the encoding's memo.

    It is the only one if later tokens change the keys of earlier ones: it then has the embeddings
    too, and every pass computes the whole text.
    """

    supports_early_init = False

    def __init__(self) -> None:
        super().__init__()
        self.reset()

    def reset(self) -> None:
        self.encoding: str | None = None  # the one that filled the cache
        self.pos: Tensor | None = None  # (B, S)
        self.ids: Tensor | None = None  # (B, S)
        self.x: Tensor | None = None  # (B, S, D)
        self.memo = Memo()

    def get_seq_length(self) -> int:
        return 0 if self.pos is None else self.pos.shape[1]

    def check(self, mask: Tensor | None, counted: bool) -> None:
        """Check that attention_mask (B, S) and positions continue those of the cached tokens.

        Synchronises with the host.
        """
        if self.pos is None or torch.compiler.is_compiling():
            return
        if mask is not None and ((mask[:, : self.pos.shape[1]] == 0) != (self.pos < 0)).any():
            raise ValueError(
                "attention_mask must hide the same cached tokens as before: for another mask, "
                "start with an empty cache"
            )
        every = torch.arange(self.pos.shape[1], device=self.pos.device)
        if mask is None and counted and (self.pos != every).any():
            raise ValueError(
                "the cache holds padding, or positions other than 0, 1, 2, ...: pass "
                "attention_mask for all tokens, or position_ids"
            )

    def extended(self, pos: Tensor, ids: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return positions and ids (B, S) of all tokens, with those of new ones (B, T)."""
        if self.pos is None:
            return pos, ids
        ids = None if ids is None or self.ids is None else torch.cat([self.ids, ids], 1)
        return torch.cat([self.pos, pos], 1), ids

    def reorder_cache(self, beam_idx: Tensor) -> None:
        self._select(lambda x: x[beam_idx])
        self.memo.reorder(beam_idx)

    def _select(self, of: Callable[[Tensor], Tensor]) -> None:
        for name in ("pos", "ids", "x"):
            if (x := getattr(self, name)) is not None:
                setattr(self, name, of(x))

    def batch_select_indices(self, indices: Tensor) -> None:
        self.reorder_cache(indices)

    def batch_repeat_interleave(self, repeats: int) -> None:
        if self.pos is not None:
            rows = torch.arange(len(self.pos), device=self.pos.device)
            self.reorder_cache(rows.repeat_interleave(repeats))

    def crop(self, tokens_to_remove: int) -> None:
        if self.pos is not None and tokens_to_remove:
            self._select(lambda x: x[:, :tokens_to_remove])  # a negative number, as in DynamicLayer
            self.memo.crop(tokens_to_remove)


def own_part(cache: Any) -> Any:
    """Return the part of a cache that self-attention fills."""
    return cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache


def memory_of(cache: Any, stable: bool, name: str, n_layers: int) -> MemoLayer:
    """Return the cache's last layer, after adding it to an empty cache.

    It is the only one unless `stable`. Layers with a window become layers without: the encoding's
    state is that of the whole text, and the mask hides what is outside the window.
    """
    if not isinstance(cache, Cache):
        raise ValueError(f"expected a cache of transformers, as a DynamicCache, got {cache!r}")
    if cache.layers and isinstance(cache.layers[-1], MemoLayer):
        memory: MemoLayer = cache.layers[-1]
        if memory.encoding not in (None, name):
            raise ValueError(
                f"this cache was filled with {memory.encoding}, but the model has {name}: start "
                "with an empty cache"
            )
        memory.encoding = name
        return memory
    if any(x.is_initialized for x in cache.layers if isinstance(x, DynamicLayer | StaticLayer)):
        raise ValueError("this cache was filled without the encoding: start with an empty cache")
    cache.layers += [DynamicLayer() for _ in range(n_layers - len(cache.layers))]
    cache.layers[:] = map(_keeping, cache.layers) if stable else ()
    cache.layers.append(memory := MemoLayer())
    memory.encoding = name
    return memory


LINEAR = (
    LinearAttentionAndSlidingWindowAttentionLayer,
    LinearAttentionAndStaticSlidingWindowAttentionLayer,
)


def _keeping(layer: Any) -> Any:
    if isinstance(layer, LINEAR):
        layer = LinearAttentionAndFullAttentionLayer(layer.number_of_states)
    elif isinstance(layer, DynamicSlidingWindowLayer | StaticSlidingWindowLayer):
        layer = DynamicLayer()
    if isinstance(layer, DynamicLayer | StaticLayer):
        own: Any = type(layer)
        layer.__class__ = keeping(own)
    return layer
