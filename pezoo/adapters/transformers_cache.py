"""What an encoding keeps beside the keys and values in a cache of transformers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from pezoo.base import Encoding
from pezoo.context import Memo


class Memory(DynamicLayer):  # type: ignore[misc]
    """The last layer of a DynamicCache: positions and ids so far, and the encoding's memo."""

    supports_early_init = False

    def __init__(self) -> None:
        super().__init__()
        self.reset()

    def reset(self) -> None:
        self.pos: Tensor | None = None  # (B, S)
        self.ids: Tensor | None = None  # (B, S)
        self.memo = Memo()

    def get_seq_length(self) -> int:
        return 0 if self.pos is None else self.pos.shape[1]

    def extend(self, pos: Tensor, ids: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Of new tokens (B, T), those of all: (B, S)."""
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


def memory_of(cache: Any, encoding: Encoding, n_layers: int) -> Memory:
    """The cache's last layer, which is added to a cache that is new."""
    if not encoding.prefix_stable:
        raise ValueError(
            f"with {type(encoding).__name__} as it is set, later tokens change earlier keys: "
            "call the model and generate with use_cache=False"
        )
    if cache.layers and isinstance(cache.layers[-1], Memory):
        memory: Memory = cache.layers[-1]
        return memory
    if not isinstance(cache, DynamicCache) or {type(x) for x in cache.layers} - {DynamicLayer}:
        raise ValueError(f"expected a DynamicCache of whole texts, was given {cache!r}")
    if cache.get_seq_length():
        raise ValueError("this cache was filled without the encoding: begin with an empty one")
    cache.layers += [DynamicLayer() for _ in range(n_layers - len(cache.layers))]
    cache.layers.append(memory := Memory())
    return memory
