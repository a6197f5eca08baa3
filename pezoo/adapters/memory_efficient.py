"""xformers' memory_efficient_attention: masks as its objects, any other bias as a padded tensor.

Without a bias, text without padding needs no mask tensor: LowerTriangularMask, or for packed
documents `packed_mask`. Everything else is one tensor (B, H, T, S). xformers computes on CUDA.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from pezoo.base import Context
from pezoo.kernels.backends import BackendError

ALIGNED = 8  # numbers, to which xformers wants widths and the rows of a bias padded


def attention(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, mask: Any, scale: float
) -> Tensor:
    """Compute the same as `backends.eager`. `mask` may also be what `packed_mask` returns.

    Errors: BackendError without xformers, and for tensors that are not on CUDA.
    """
    if not q.is_cuda:
        raise BackendError("attention xformers computes on CUDA alone: use sdpa")
    return _attention(q, k, v, bias, mask, scale)


def _attention(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, mask: Any, scale: float
) -> Tensor:
    b, _, t, width = *q.shape[:3], v.shape[3]
    flat = mask is not None and not isinstance(mask, Tensor)  # rows lie one after the other
    if flat and bias is not None:
        raise BackendError("a bias needs a mask tensor, pezoo.adapters.attention_mask(ctx)")
    found = mask if flat else as_bias(bias, mask, q, k.shape[2])
    # (B, T, H, K), or (1, B T, H, K); zeros change no product
    parts = [pad(x, (0, -x.shape[3] % ALIGNED)).transpose(1, 2) for x in (q, k, v)]
    parts = [x.flatten(0, 1)[None] if flat else x for x in parts]
    out: Tensor = _ops().memory_efficient_attention(*parts, attn_bias=found, scale=scale)
    return out.view(b, t, *out.shape[2:]).transpose(1, 2)[..., :width]


def as_bias(bias: Tensor | None, mask: Tensor | None, q: Tensor, keys: int) -> Any:
    """Return the attn_bias of a bias and a mask (B|1, 1, T, S); None for a mask is causal."""
    b, h, t, _ = q.shape
    if bias is None and mask is None:
        masks = _ops().fmha.attn_bias
        if t == 1:  # which sees all keys
            return None
        return (
            masks.LowerTriangularMask() if t == keys else masks.LowerTriangularFromBottomRightMask()
        )
    if mask is None:
        mask = torch.ones(t, keys, dtype=torch.bool, device=q.device).tril(keys - t)
    added = q.new_zeros(()) if bias is None else bias.to(q.dtype)
    added = torch.where(mask, added, -torch.inf).expand(b, h, t, keys)
    return pad(added, (0, -keys % ALIGNED))[..., :keys]


def packed_mask(ctx: Context) -> Any:
    """Return the causal mask of packed documents without padding, a BlockDiagonalCausalMask.

    It is to be computed once for all layers, since it reads positions on the host. Errors:
    ValueError for padding, and for a ctx with earlier tokens.
    """
    if ctx.new != ctx.pos.shape[1] or bool((ctx.pos < 0).any()):
        raise ValueError(
            "packed_mask is for whole texts without padding: use pezoo.adapters.attention_mask(ctx)"
        )
    document = ctx.document.expand(ctx.batch, -1)
    lengths = [
        n for row in document for n in row.unique_consecutive(return_counts=True)[1].tolist()
    ]
    masks = _ops().fmha.attn_bias
    return masks.BlockDiagonalCausalMask.from_seqlens(lengths, device=ctx.pos.device)


def _ops() -> Any:
    try:
        from xformers import ops
    except ImportError as error:
        raise BackendError(
            "attention xformers needs a package: pip install 'pezoo[xformers]'"
        ) from error
    return ops
