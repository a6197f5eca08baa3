"""Train through torch.compile: each block's `read` and `feed`, which do not use positions.

Encodings, attention and dropout are not compiled: an encoding need not be traceable, and random
numbers do not change. Batches are padded to the sizes of `harness.data.buckets`, with a graph for
each; evaluation, with its many lengths, is not compiled.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch._dynamo.config
import torch._inductor.config as inductor

from harness.model.transformer import Transformer

# A graph per size for `read`, two for `feed`; beyond torch's limit of 8 blocks run uncompiled.
_GRAPHS = 128


def compile_blocks(
    model: Transformer, device: str, backend: str | Callable[..., Any] = "inductor"
) -> None:
    """Compile the blocks of a model for training, on first use; on a GPU, as CUDA graphs."""
    inductor.compile_threads = 1  # worker processes would outlive a run that is killed
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, _GRAPHS)
    mode = "reduce-overhead" if device.startswith("cuda") else None
    for block in model.blocks:
        block.compiled = tuple(
            torch.compile(part, dynamic=False, mode=mode, backend=backend)
            for part in (block.read, block.feed)
        )
