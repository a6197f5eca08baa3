"""xformers' memory_efficient_attention, on CUDA, from the extra `pezoo[xformers]`.

Its layout is (B, T, H, K), it does not broadcast a bias, and in half precision the bias rows must
start at multiples of eight elements.
"""

import torch
from torch import Tensor

from pezoo.adapters.eager import causal
from pezoo.kernels.backends import BackendError


def attn_bias(q: Tensor, k: Tensor, bias: Tensor | None, mask: Tensor | None) -> Tensor:
    """Return bias and mask as one (B, H, T, S) tensor, its row stride a multiple of 8."""
    (b, h, t, _), s = q.shape, k.shape[-2]
    full = causal(t, s, q.device) if mask is None else mask
    values = q.new_zeros(()) if bias is None else bias
    values = torch.where(full, values, -torch.inf).to(q.dtype).expand(b, h, t, s)
    padded = torch.nn.functional.pad(values, (0, -s % 8))
    return padded.contiguous()[..., :s]


def attend(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, mask: Tensor | None, scale: float
) -> Tensor:
    """Compute the same as `eager.attend`. Errors: BackendError without CUDA or xformers."""
    if not q.is_cuda:
        raise BackendError("attention xformers needs a CUDA device; use sdpa")
    try:
        from xformers.ops import memory_efficient_attention
    except ImportError as error:
        raise BackendError('xformers is not installed: pip install "pezoo[xformers]"') from error
    both = attn_bias(q, k, bias, mask)
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    out: Tensor = memory_efficient_attention(q, k, v, attn_bias=both, scale=scale)
    return out.transpose(1, 2)
