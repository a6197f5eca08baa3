"""The state of an encoding within a cache of transformers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from pezoo.base import Encoding
from pezoo.context import Memo


class Memory(DynamicLayer):  # type: ignore[misc]
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

    def extend(self, pos: Tensor, ids: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Append positions and ids of new tokens (B, T), and return those of all (B, S)."""
        if self.pos is not None:
            pos = torch.cat([self.pos, pos], 1)
            ids = None if ids is None or self.ids is None else torch.cat([self.ids, ids], 1)
        self.pos, self.ids = pos, ids
        return pos, ids

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


def memory_of(cache: Any, encoding: Encoding, name: str, n_layers: int) -> Memory:
    """Return the cache's last layer, after adding it to an empty cache."""
    if not encoding.prefix_stable:
        raise ValueError(
            f"{type(encoding).__name__} changes earlier keys as the text grows: call the model "
            "and generate with use_cache=False"
        )
    if cache.layers and isinstance(cache.layers[-1], Memory):
        memory: Memory = cache.layers[-1]
        if memory.encoding not in (None, name):
            raise ValueError(
                f"this cache was filled with {memory.encoding}, but the model has {name}: start "
                "with an empty cache"
            )
        memory.encoding = name
        return memory
    if not isinstance(cache, DynamicCache) or {type(x) for x in cache.layers} - {DynamicLayer}:
        raise ValueError(f"expected a DynamicCache without windows, got {cache!r}")
    if cache.get_seq_length():
        raise ValueError("this cache was filled without the encoding: start with an empty cache")
    cache.layers += [DynamicLayer() for _ in range(n_layers - len(cache.layers))]
    cache.layers.append(memory := Memory())
    memory.encoding = name
    return memory
