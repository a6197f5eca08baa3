"""Caches of transformers that hold transformed keys, and what an encoding carries along."""

from __future__ import annotations

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
)

from pezoo.context import Memo


@once
def keeping(cls: Any) -> Any:
    """Return a class of cache layers that give new keys back until attention transformed them.

    `keep` adds them to the cache and returns all.
    """

    def update(self: Any, k: Tensor, v: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        self.due = True
        return k, v

    def keep(self: Any, k: Tensor, v: Tensor) -> Any:
        if not getattr(self, "due", False):
            raise ValueError(
                "this model's layers attend more than once with what they cache: call it with "
                "use_cache=False"
            )
        self.due = False
        return cls.update(self, k, v)

    return type(f"Kept{cls.__name__}", (cls,), {"update": update, "keep": keep})


class MemoLayer(DynamicLayer):  # type: ignore[misc]
    """The last layer of a DynamicCache: positions, ids and the encoding's memo."""

    supports_early_init = False

    def __init__(self) -> None:
        super().__init__()
        self.reset()

    def reset(self) -> None:
        self.encoding: str | None = None  # the one that filled the cache
        self.pos: Tensor | None = None  # (B, S)
        self.ids: Tensor | None = None  # (B, S)
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
        if self.pos is not None:
            self.pos = self.pos[beam_idx]
            self.ids = None if self.ids is None else self.ids[beam_idx]
            self.memo.reorder(beam_idx)

    def batch_select_indices(self, indices: Tensor) -> None:
        self.reorder_cache(indices)

    def batch_repeat_interleave(self, repeats: int) -> None:
        if self.pos is not None:
            rows = torch.arange(len(self.pos), device=self.pos.device)
            self.reorder_cache(rows.repeat_interleave(repeats))

    def crop(self, tokens_to_remove: int) -> None:
        if self.pos is not None and tokens_to_remove:
            self.pos = self.pos[:, :tokens_to_remove]  # a negative number, as in DynamicLayer
            self.ids = None if self.ids is None else self.ids[:, :tokens_to_remove]
            self.memo.crop(tokens_to_remove)


def own_part(cache: Any) -> Any:
    """Return the part of a cache that self-attention fills."""
    return cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache


def memory_of(cache: Any, stable: bool, name: str, n_layers: int) -> MemoLayer:
    """Return the cache's last layer, after adding it to an empty cache.

    Layers with a window become layers without: the encoding's state is that of the whole text, and
    the mask hides what is outside the window.
    """
    if not stable:
        raise ValueError(
            f"{name} changes earlier keys as the text grows: call the model "
            "and generate with use_cache=False"
        )
    if not isinstance(cache, Cache):
        raise ValueError(f"expected a DynamicCache, got {cache!r}")
    if cache.layers and isinstance(cache.layers[-1], MemoLayer):
        memory: MemoLayer = cache.layers[-1]
        if memory.encoding not in (None, name):
            raise ValueError(
                f"this cache was filled with {memory.encoding}, but the model has {name}: start "
                "with an empty cache"
            )
        memory.encoding = name
        return memory
    if any(x.is_initialized for x in cache.layers if isinstance(x, DynamicLayer)):
        raise ValueError("this cache was filled without the encoding: start with an empty cache")
    cache.layers += [DynamicLayer() for _ in range(n_layers - len(cache.layers))]
    cache.layers[:] = map(_keeping, cache.layers)
    cache.layers.append(memory := MemoLayer())
    memory.encoding = name
    return memory


def _keeping(layer: Any) -> Any:
    if type(layer) is DynamicSlidingWindowLayer:
        layer = DynamicLayer()
    elif type(layer) is LinearAttentionAndSlidingWindowAttentionLayer:
        layer = LinearAttentionAndFullAttentionLayer(layer.number_of_states)
    if isinstance(layer, DynamicLayer):
        own: Any = type(layer)
        layer.__class__ = keeping(own)
    elif hasattr(layer, "max_cache_len"):
        raise ValueError(f"expected a DynamicCache, got a {type(layer).__name__}")
    return layer
