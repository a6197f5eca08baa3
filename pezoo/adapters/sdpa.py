"""torch's scaled_dot_product_attention, the default."""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from pezoo.adapters.eager import causal


def attend(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, mask: Tensor | None, scale: float
) -> Tensor:
    """The same as `eager.attend`, in one fused call where torch has one for these inputs."""
    if bias is None and mask is None:
        return scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
    if mask is None:
        mask = causal(q.shape[-2], k.shape[-2], q.device)
    if bias is not None:
        mask = torch.where(mask, bias, -torch.inf).to(q.dtype)
    return scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
