"""torch's scaled_dot_product_attention, the default."""

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend
from torch.nn.functional import scaled_dot_product_attention

from pezoo.adapters.eager import causal


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    mask: Tensor | None,
    scale: float,
    ran: set[str] | None = None,
) -> Tensor:
    """Compute the same as `eager.attend`, in one fused call where torch supports these inputs.

    The name of torch's kernel is added to `ran`; "sdpa math" is not fused.
    """
    t, s = q.shape[-2], k.shape[-2]
    plain = bias is None and mask is None and t == s  # torch's is_causal starts at the first key
    if mask is None and not plain:
        mask = causal(t, s, q.device)
    if mask is not None and bias is not None:
        mask = torch.where(mask, bias, -torch.inf).to(q.dtype)
    if ran is not None:
        ran.add(f"sdpa {_kernel(q, k, v, mask, plain)}")
    return scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=plain, scale=scale)


def _kernel(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, plain: bool) -> str:
    """Return the name of torch's kernel, or of the device if it has only one, as mps."""
    if q.device.type not in ("cpu", "cuda"):
        return q.device.type
    chosen = torch._fused_sdp_choice(q, k, v, mask, 0.0, plain)
    return SDPBackend(chosen).name.removesuffix("_ATTENTION").lower()
