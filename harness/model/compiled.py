"""Training through torch.compile: what lies between the attentions, one graph for each size.

Compiles each block's `read` and `feed`, which do not use positions. Encodings, attention and
dropout stay as they are: nothing of an encoding has to be traceable, and what is drawn at random
is what is drawn without. Batches are padded to the sizes of `harness.data.buckets`; evaluation,
with its many lengths, is not compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch._dynamo.config
import torch._inductor.config as inductor

from harness.model.transformer import Transformer

# A graph per size for `read`, two for `feed`; torch's own limit of 8 would end in plain execution.
_GRAPHS = 128


def compile_blocks(
    model: Transformer, device: str, backend: str | Callable[..., Any] = "inductor"
) -> None:
    """Have a model train through compiled blocks; on a GPU, as CUDA graphs.

    Nothing is compiled before it is needed.
    """
    inductor.compile_threads = 1  # no processes that outlive a run which is killed
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, _GRAPHS)
    mode = "reduce-overhead" if device.startswith("cuda") else None
    for block in model.blocks:
        block.compiled = tuple(
            torch.compile(part, dynamic=False, mode=mode, backend=backend)
            for part in (block.read, block.feed)
        )
