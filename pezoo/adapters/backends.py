"""Attention by several kernels: functions of the same q, k, v, bias and mask.

    eager  plain operations: the reference for the others, and for other softmaxes
    sdpa   torch's scaled_dot_product_attention, the default; on a CPU, `wide` for q wider than v
    flex   FlexAttention: `pezoo.adapters.flex`
    xformers  memory_efficient_attention: `pezoo.adapters.memory_efficient`

q (B, H, T, K), k and v (B, H, S, K); bias broadcasts to (B, H, T, S); mask (B|1, 1, T, S) is True
where a query may attend, and None is `causal`.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend
from torch.nn.functional import scaled_dot_product_attention

from pezoo.functional import full_precision


def causal(t: int, s: int, device: torch.device) -> Tensor:
    """Return (1, 1, T, S), True for keys up to the query; the last T of S are queries."""
    return torch.ones(t, s, dtype=torch.bool, device=device).tril(s - t)[None, None]


def eager(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    mask: Tensor | None,
    scale: float,
    weights: Callable[[Tensor], Tensor | None] = lambda logits: None,
    scores: Tensor | None = None,
) -> Tensor:
    """Compute softmax(q k^T scale + bias) v.

    `scores` (B, H, T, S) replaces q k^T scale, and `weights` of the masked logits softmax, where
    these are not None. A float32 bias or float32 scores are not rounded to the dtype of v.
    """
    with full_precision(q.device.type):  # q, k and v have been cast
        logits = q @ k.mT * scale if scores is None else scores  # (B, H, T, S)
    if bias is not None:
        logits = logits + bias
    if mask is None:
        mask = causal(q.shape[-2], k.shape[-2], q.device)
    logits = logits.masked_fill(~mask, -torch.inf)
    chosen = weights(logits)
    return (logits.softmax(-1) if chosen is None else chosen).to(v.dtype) @ v


def sdpa(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    mask: Tensor | None,
    scale: float,
    ran: set[str] | None = None,
) -> Tensor:
    """Compute the same as `eager`, in one fused call where torch supports these inputs.

    The name of torch's kernel is added to `ran`; "sdpa math" is not fused.
    """
    t, s = q.shape[-2], k.shape[-2]
    plain = bias is None and mask is None
    if plain and t != s:  # torch's is_causal starts at the first key; as a bool, not symbolic
        plain = False
    if mask is None and not plain and t > 1:  # the last query attends to all keys
        mask = causal(t, s, q.device)
    if bias is not None:
        mask = bias if mask is None else torch.where(mask, bias, -torch.inf).to(q.dtype)
    if ran is not None:
        kernel = q.device.type  # which has only one kernel, as mps
        if kernel in ("cpu", "cuda"):
            chosen = torch._fused_sdp_choice(q, k, v, mask, 0.0, plain)
            kernel = SDPBackend(chosen).name.removesuffix("_ATTENTION").lower()
        ran.add(f"sdpa {kernel}")
    if bias is None and _is_wide(q, v):
        return wide(q, k, v, None if plain else mask, scale)
    return scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=plain, scale=scale)


def _is_wide(q: Tensor, v: Tensor) -> bool:
    """Return True where torch does not fuse because q is wider than v, and does not round."""
    sizes = q.shape[-1] != v.shape[-1] and q.dtype.itemsize >= 4
    return sizes and q.device.type == "cpu" and not torch.compiler.is_compiling()


def wide(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """Compute attention without the scaled copies of q and k that torch makes.

    A query that may attend to no key gets 0, as in torch.
    """
    t, s = q.shape[-2], k.shape[-2]
    if mask is None:
        hidden = q.new_full((t, s), -torch.inf).triu(1 + s - t)
    else:
        hidden = torch.zeros_like(mask, dtype=q.dtype).masked_fill(~mask, -torch.inf)
    logits = torch.add(hidden, q @ k.mT, alpha=scale)
    return (logits.softmax(-1) if mask is None else torch._safe_softmax(logits, -1)) @ v
