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
        self.encoding: str | None = None  # by which the cache was filled
        self.pos: Tensor | None = None  # (B, S)
        self.ids: Tensor | None = None  # (B, S)
        self.memo = Memo()

    def get_seq_length(self) -> int:
        return 0 if self.pos is None else self.pos.shape[1]

    def check(self, mask: Tensor | None, counted: bool) -> None:
        """That attention_mask (B, S) hides what it hid, and that counting goes on as it was.

        Keys, positions and the memo were made with what was hidden then. The host looks at pos.
        """
        if self.pos is None or torch.compiler.is_compiling():
            return
        if mask is not None and ((mask[:, : self.pos.shape[1]] == 0) != (self.pos < 0)).any():
            raise ValueError(
                "attention_mask must go on hiding the cached tokens that it hid, and no others: "
                "for another mask, begin with an empty cache"
            )
        every = torch.arange(self.pos.shape[1], device=self.pos.device)
        if mask is None and counted and (self.pos != every).any():
            raise ValueError(
                "the cache holds padding, or positions other than 0, 1, 2, ...: give "
                "attention_mask for all tokens, or position_ids"
            )

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


def memory_of(cache: Any, encoding: Encoding, name: str, n_layers: int) -> Memory:
    """The cache's last layer, which is added to a cache that is new. `name` is the encoding's."""
    if not encoding.prefix_stable:
        raise ValueError(
            f"with {type(encoding).__name__} as it is set, later tokens change earlier keys: "
            "call the model and generate with use_cache=False"
        )
    if cache.layers and isinstance(cache.layers[-1], Memory):
        memory: Memory = cache.layers[-1]
        if memory.encoding not in (None, name):
            raise ValueError(
                f"this cache was filled with {memory.encoding}, and the model has {name}: begin "
                "with an empty one"
            )
        memory.encoding = name
        return memory
    if not isinstance(cache, DynamicCache) or {type(x) for x in cache.layers} - {DynamicLayer}:
        raise ValueError(f"expected a DynamicCache of whole texts, was given {cache!r}")
    if cache.get_seq_length():
        raise ValueError("this cache was filled without the encoding: begin with an empty one")
    cache.layers += [DynamicLayer() for _ in range(n_layers - len(cache.layers))]
    cache.layers.append(memory := Memory())
    memory.encoding = name
    return memory
