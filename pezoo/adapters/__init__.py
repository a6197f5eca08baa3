"""Attention with an encoding, by any of several kernels.

`attend` is all that a model needs: it gets the bias from the encoding and calls the backend.
"""

from typing import TYPE_CHECKING, Any, get_args

import torch
from torch import Tensor

from pezoo.adapters import backends, flex, memory_efficient
from pezoo.adapters.flex import block_mask
from pezoo.adapters.memory_efficient import packed_mask
from pezoo.adapters.parts import cuts, part
from pezoo.base import Columns, Context, Encoding, FormKind, Pass, ScoreMod, Shape
from pezoo.functional import at_least_float32, attention_dtype, for_each_head
from pezoo.kernels import Attention
from pezoo.kernels.backends import BackendError
from pezoo.spec import unknown

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

__all__ = [
    "BACKENDS",
    "CAUSAL",
    "FORMS",
    "BackendError",
    "attend",
    "attend_at_once",
    "attention_mask",
    "block_mask",
    "earlier_keys",
    "packed_mask",
    "plainly_causal",
    "resolve",
]

BACKENDS = tuple(name for name in get_args(Attention) if name != "auto")
# The forms of a bias that each backend takes, the preferred one first; `bias` serves all.
FORMS: dict[str, tuple[FormKind, ...]] = {
    "sdpa": (Columns,),
    "eager": (),
    "flex": (ScoreMod, Columns),
    "xformers": (Columns,),
}
CAUSAL = "causal"  # a mask without a tensor: no padding, one document a row


def resolve(backend: str, encoding: Encoding) -> str:
    """Return the backend to run: "auto" is sdpa, or eager where the encoding needs it.

    Errors: BackendError for an unknown name, or a fused kernel if the encoding replaces what it
    computes: softmax, or the product of q and k; flex takes those that have `ways`.
    """
    replaced = _replaced(encoding)
    if backend == "auto":
        return "eager" if replaced else "sdpa"
    if backend not in BACKENDS:
        raise BackendError(unknown("attention", backend, ("auto", *BACKENDS)))
    if replaced and backend != "eager" and not (backend == "flex" and _in_ways(encoding)):
        raise BackendError(
            f"{type(encoding).__name__} replaces {replaced}, which {backend} computes itself: "
            "use eager"
        )
    return backend


def _replaced(encoding: Encoding) -> str:
    """Return what the encoding computes in place of a fused kernel, or an empty string."""
    if encoding.replaces_scores:
        return "the product of q and k"
    return "softmax" if encoding.replaces_softmax else ""


def _in_ways(encoding: Encoding) -> bool:
    """Return True if `Encoding.ways` gives all that the encoding computes."""
    own = type(encoding)
    adds = own.bias is not Encoding.bias or own.bias_form is not Encoding.bias_form
    return own.ways is not Encoding.ways and not (adds or encoding.replaces_softmax)


def attend(
    encoding: Encoding,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    ctx: Pass,
    mask: "Tensor | BlockMask | str | None" = None,
    backend: str = "auto",
    causal: bool = True,
) -> Tensor:
    """Compute attention of T queries over S keys -> (B, H, T, K).

    q (B, H, T, K') and k (B, G, S, K') come from `encoding.transform`; v (B, G, S, K). With fewer
    key-value heads G than query heads (grouped-query attention), H/G queries in turn share one.
    mask (B|1, 1, T, S) or (T, S) is True where a query may attend; None is `attention_mask(ctx,
    causal)`: without padding, within a token's own document and, unless causal=False, as in an
    encoder, causal. CAUSAL says that there is no padding and one document a row, so that ctx.pos is
    not read. Flex also takes the result of `block_mask`, and xformers that of `packed_mask`.
    The logits are divided by sqrt(d_head), also when q and k have been widened. q, k and v are cast
    to the dtype of v, or to that of torch.autocast, before the encoding chooses the form of its
    bias; q and k to float32 where it replaces softmax, whose logits half precision would round. The
    name of the kernel that ran is added to ctx.ran; sdpa has several.

    FORMS lists the forms of a bias that each backend takes; otherwise it takes `bias` in full.
    Where (B, H, T, S) is large and needs no gradient, it is never held (`pezoo.adapters.parts`).

    Errors: ValueError for a ctx that `prepare` did not return or that lacks positions of keys, for
    heads that G does not divide, for a mask that is not boolean or shows later keys to an encoding
    that is causal_only (`earlier_keys`), for q, k and v that are not tensors (B, heads, tokens, K)
    of floats, and for causal=False with an encoding that is causal_only or the mask CAUSAL;
    BackendError for a backend that cannot run here.
    """
    ctx.check_prepared()
    _check(q, k, v, ctx)
    if not causal:
        _check_encoder(encoding, mask)
    mask = earlier_keys(encoding, mask, ctx)
    check_sizes(encoding.shape, n_heads=q.shape[1])
    dtype = attention_dtype(v)
    q, k = (at_least_float32(x) if encoding.replaces_softmax else x.to(dtype) for x in (q, k))
    v = v.to(dtype)
    k, v = for_each_head(k, q), for_each_head(v, q)
    backend = resolve(backend, encoding)
    apart = list(cuts(encoding, q, k, v)) if causal and backend in ("sdpa", "eager") else []
    if not apart or not _hides_later(mask, ctx):
        return attend_at_once(encoding, q, k, v, ctx, mask, backend, causal)
    found = []
    for start, stop in apart:
        here = part(ctx, start, stop)
        end, rows = here.pos.shape[1], q[:, :, start:stop]
        own = mask[..., start:stop, :end] if isinstance(mask, Tensor) else mask
        seen = k[:, :, :end], v[:, :, :end]
        found.append(attend_at_once(encoding, rows, *seen, here, own, backend, causal))
    return torch.cat(found, 2)


def attend_at_once(
    encoding: Encoding,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    ctx: Pass,
    mask: "Tensor | BlockMask | str | None",
    backend: str,
    causal: bool,
) -> Tensor:
    """Compute attention of all queries at once, for checked arguments and as many keys as heads."""
    scale = vars(encoding.shape).get("d_head", v.shape[-1]) ** -0.5  # v is never widened
    scores = encoding.scores(q, k, ctx) if backend == "eager" else None
    if ctx.ran is not None and backend != "sdpa":
        ctx.ran.add(backend)
    if backend == "flex" and _in_ways(encoding):
        return flex.of_ways(encoding.ways(q, k, ctx), v, _blocks(ctx, mask, causal), ctx)
    q, k, bias = _with_bias(encoding, q, k, ctx, backend)
    if backend == "flex":
        return flex.attention(q, k, v, bias, _blocks(ctx, mask, causal), scale, ctx)
    assert not isinstance(bias, ScoreMod)
    own = mask is None or isinstance(mask, Tensor | str)
    seen: Any = _seen(ctx, mask, causal) if own or backend != "xformers" else mask
    if bias is not None and backend != "eager":
        bias = bias.view((1,) * (4 - bias.dim()) + bias.shape)
    if backend == "xformers":
        return memory_efficient.attention(q, k, v, bias, seen, scale)
    if backend == "eager":
        return backends.eager(
            q, k, v, bias, seen, scale, lambda z: encoding.weights(z, ctx), scores
        )
    return backends.sdpa(q, k, v, bias, seen, scale, ctx.ran)


def check_sizes(shape: Shape, **sizes: int) -> None:
    """Raise ValueError if attention has other sizes than the encoding."""
    for name, value in sizes.items():
        own = vars(shape).get(name, value)
        if own != value:
            raise ValueError(f"the encoding has {name}={own}, but attention has {value}")


def _check(q: Tensor, k: Tensor, v: Tensor, ctx: Context) -> None:
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, Tensor) or x.dim() != 4 or not x.is_floating_point():
            given = f"{tuple(x.shape)} of {x.dtype}" if isinstance(x, Tensor) else type(x).__name__
            raise ValueError(f"{name} must be floats (B, heads, tokens, K), got {given}")
    heads, t, s = q.shape[1], q.shape[2], k.shape[2]
    if ctx.pos.shape[1] != s or ctx.new != t or v.shape[2] != s:
        raise ValueError(
            f"ctx needs the positions of all {s} keys and n_new={t}, the number of queries; it has "
            f"{ctx.pos.shape[1]} positions and n_new={ctx.new}. While decoding, extend ctx.pos by "
            "the new tokens and set n_new to their number"
        )
    for name, x in (("k", k), ("v", v)):
        if heads % x.shape[1] or len(x) != len(q) or (x is k and x.shape[3] != q.shape[3]):
            raise ValueError(
                f"q {tuple(q.shape)} and {name} {tuple(x.shape)} do not fit: expected the same "
                f"batch, a divisor of {heads} heads and, for k, the same width"
            )


def _check_encoder(encoding: Encoding, mask: "Tensor | BlockMask | str | None") -> None:
    """Raise ValueError where causal=False does not fit the encoding or the mask."""
    if encoding.causal_only:
        name = encoding.name or type(encoding).__name__
        raise ValueError(f"{name} needs a causal mask: leave out causal=False")
    if isinstance(mask, str):
        raise ValueError(f"mask={mask!r} contradicts causal=False: leave out one of them")


def _blocks(
    ctx: Context, mask: "Tensor | BlockMask | str | None", causal: bool = True
) -> "BlockMask":
    """Return the mask as flex takes it."""
    if mask is None or isinstance(mask, Tensor | str):
        own = None if mask is None else _seen(ctx, mask)
        return block_mask(ctx, own, plain=isinstance(mask, str), causal=causal)
    return mask


def _seen(
    ctx: Context, mask: "Tensor | BlockMask | str | None", causal: bool = True
) -> Tensor | None:
    """Return the mask as kernels take it; None if it is CAUSAL."""
    if isinstance(mask, Tensor):
        if mask.dtype != torch.bool or mask.dim() not in (2, 4):
            raise ValueError(
                "mask must be torch.bool, (B|1, 1, T, S) or (T, S), True where a query may "
                f"attend; got {mask.dtype} {tuple(mask.shape)}"
            )
        return mask if mask.dim() == 4 else mask[None, None]
    if mask is None and not (causal and plainly_causal(ctx)):
        return attention_mask(ctx, causal)
    if mask is not None and mask != CAUSAL:
        raise ValueError(f"mask must be a tensor, None or {CAUSAL!r}, got {mask!r}")
    return None


def earlier_keys(encoding: Encoding, mask: Any, ctx: Context) -> Any:
    """Return the mask, without later keys if it is a tensor and the encoding is causal_only.

    Errors: ValueError for a mask with later keys. On a GPU, where reading it would synchronise, and
    in torch.compile and torch.vmap, they are hidden instead; those of a BlockMask are not.
    """
    if not encoding.causal_only or mask is None or isinstance(mask, str):
        return mask
    seen, device = mask, ctx.pos.device
    blocks = hasattr(mask, "mask_mod") and device.type == "cpu"
    if blocks and not torch.compiler.is_compiling():
        seen = flex.dense(mask, ctx.new, ctx.pos.shape[1])
    if not isinstance(seen, Tensor) or seen.dtype != torch.bool:
        return mask
    earlier = backends.causal(ctx.new, ctx.pos.shape[1], seen.device)
    if _known_true((seen & ~earlier).any()):
        name = encoding.name or type(encoding).__name__
        raise ValueError(
            f"{name} is for decoders (causal_only), but the mask shows keys after the query: "
            "use `mask & pezoo.adapters.attention_mask(ctx)`"
        )
    return mask & earlier if isinstance(mask, Tensor) else mask


def _hides_later(mask: Any, ctx: Context) -> bool:
    """Return True if it is known that a mask hides the keys after a query."""
    if not isinstance(mask, Tensor):
        return True
    earlier = backends.causal(ctx.new, ctx.pos.shape[1], mask.device)
    return mask.dtype == torch.bool and _known_true(~(mask & ~earlier).any())


def _known_true(x: Tensor) -> bool:
    """Return the value of x (), or False where reading it would synchronise or it has none.

    That is on a GPU, and in torch.compile and torch.vmap.
    """
    if x.device.type != "cpu" or torch.compiler.is_compiling():
        return False
    try:
        return bool(x)
    except RuntimeError:  # of vmap
        return False


def plainly_causal(ctx: Context) -> bool:
    """Return True if positions rise, without padding, where `_known_true` can tell."""
    if ctx.pos.is_cuda or torch.compiler.is_compiling():  # small kernels; sizes become guards
        return False
    rise = (ctx.pos[:, 1:] > ctx.pos[:, :-1]).all() & (ctx.pos[:, :1] >= 0).all()
    return _known_true(rise)


def _with_bias(
    encoding: Encoding, q: Tensor, k: Tensor, ctx: Pass, backend: str
) -> tuple[Tensor, Tensor, Tensor | ScoreMod | None]:
    """Return q and k, widened where the bias has columns, and the bias otherwise."""
    for kind in FORMS[backend]:
        form = encoding.bias_form(q, k, ctx, kind)
        if isinstance(form, Columns):
            return form.q.to(q.dtype), form.k.to(q.dtype), None
        if isinstance(form, ScoreMod):
            return q, k, form
    bias = encoding.bias(q, k, ctx)
    return q, k, bias if bias is None or backend == "eager" else bias.to(q.dtype)


def attention_mask(ctx: Context, causal: bool = True) -> Tensor:
    """Return (B|1, 1, T, S): causal, within documents, without padding but a token itself.

    With causal=False, as in an encoder, queries see later keys too.
    """
    earlier = backends.causal(ctx.new, ctx.pos.shape[1], ctx.pos.device)
    itself = earlier.triu(ctx.pos.shape[1] - ctx.new)
    document = ctx.document
    own = document[:, document.shape[1] - ctx.new :, None] == document[:, None]  # (B|1, T, S)
    seen = (own & ctx.key_mask[:, None])[:, None]
    return (seen & earlier if causal else seen) | itself
