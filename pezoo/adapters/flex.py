"""FlexAttention: the bias as a score_mod and the mask as a BlockMask, both of positions.

An encoding whose bias is a ScoreMod or Columns, that has none, or whose scores have `ways`, needs
memory linear in T. Any other bias is computed in full, (B|1, H, T, S), and indexed: the same
result, without that saving.

On CUDA, torch compiles a kernel once for each kind of encoding, which takes a while. On a CPU, for
tests, it runs the same functions by plain operations on all pairs, without a backward pass (torch
2.13).
"""

from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pezoo.base import Context, ScoreMod, Way
from pezoo.kernels.backends import BackendError

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | ScoreMod | None,
    mask: "BlockMask",
    scale: float,
    ctx: Context,
) -> Tensor:
    """Compute the same as `backends.eager`.

    Errors: BackendError for tensors on a CPU that need a gradient.
    """
    mod = None if bias is None else score_mod(bias, ctx)
    out: Tensor = _run(q, k, v, score_mod=mod, block_mask=mask, scale=scale)
    return out


def of_ways(ways: Iterable[Way], v: Tensor, mask: "BlockMask", ctx: Context) -> Tensor:
    """Compute attention whose pairs have one of several products: a pass over the pairs of each.

    Each is weighted by its part of the sum of exponentials. Errors: those of `attention`.
    """
    from torch.nn.attention.flex_attention import AuxRequest

    passes = []
    for way in ways:
        q, k = way.q.to(v.dtype), way.k.to(v.dtype)
        blocks, aux = _met(way, mask, ctx), AuxRequest(lse=True)
        passes.append(_run(q, k, v, block_mask=blocks, scale=1.0, return_aux=aux))
    shares = torch.stack([aux.lse for _, aux in passes]).softmax(0)[..., None]  # (ways, B, H, T, 1)
    out = torch.stack([out for out, _ in passes])
    return (shares * out.where(shares > 0, 0)).sum(0).to(v.dtype)  # a pass over no pair may be NaN


def _met(way: Way, mask: "BlockMask", ctx: Context) -> "BlockMask":
    """Return the mask of the pairs that it shows and that meet in this way."""
    query_pos, pos, several = ctx.query_pos, ctx.pos, len(ctx.pos) > 1

    def seen(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        row = b * several
        return mask.mask_mod(b, h, i, j) & way.meets(query_pos[row, i], pos[row, j])

    create, rows = _torch("create_block_mask", _alone(pos.device)), max(mask.shape[0], len(pos))
    found: BlockMask = create(seen, rows, None, ctx.new, pos.shape[1], device=pos.device)
    return found


def _run(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Any:
    if not q.is_cuda:
        if torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v)):
            raise BackendError(
                "attention flex cannot train on a CPU, where torch has no backward pass for it: "
                "use sdpa, or torch.no_grad()"
            )
        q, k, v = q.detach(), k.detach(), v.detach()  # torch refuses them otherwise
    return _torch("flex_attention", _alone(q.device))(q, k, v, **options)


def score_mod(
    bias: Tensor | ScoreMod, ctx: Context
) -> Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]:
    """Return the function (score, b, h, i, j) -> score + bias of query i and key j.

    A tensor (B|1, H|1, T|1, S|1) is indexed; a ScoreMod gets the positions of i and j, or their
    coordinates, which are looked up by token.
    """
    query_pos, pos = ctx.query_pos, ctx.pos

    if isinstance(bias, ScoreMod):
        value, axes = bias.value, bias.axes
        places = ctx.places(axes) if axes else pos
        several, first = len(places) > 1, pos.shape[1] - ctx.new

        def of_places(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            row = b * several
            at, to = (tuple(places[row, n, axis] for axis in range(axes)) for n in (i + first, j))
            return score + value(h, at, to)

        def of_positions(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            row = b * several
            return score + value(h, query_pos[row, i], pos[row, j])

        return of_places if axes else of_positions
    rows, heads, queries, keys = (n > 1 for n in bias.shape)

    def of_indices(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return score + bias[b * rows, h * heads, i * queries, j * keys]

    return of_indices


def block_mask(
    ctx: Context, mask: Tensor | None = None, *, plain: bool = False, causal: bool = True
) -> "BlockMask":
    """Return the mask of FlexAttention, to be computed once for all layers.

    It equals `attention_mask(ctx, causal)`, which is never built. mask (B|1, 1, T, S) replaces it;
    with `plain`, which is for text without padding and documents, positions are not read.
    """
    s, device = ctx.pos.shape[1], ctx.pos.device
    column = torch.arange(s, device=device)[s - ctx.new :]  # of each query
    document = torch.zeros_like(ctx.pos[:1]) if plain else ctx.document
    of_keys = document if plain else torch.where(ctx.key_mask, document, -1)

    rows = len(document if mask is None else mask)
    several = rows > 1  # not in the functions: torch.compile cannot multiply by a symbolic bool

    def of_context(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        row, i = b * several, column[i]
        own = document[row, i] == of_keys[row, j]
        return (own & (j <= i) if causal else own) | (j == i)

    def of_tensor(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        assert mask is not None
        return mask[b * several, h * 0, i, j]

    seen = of_context if mask is None else of_tensor
    create = _torch("create_block_mask", _alone(device))
    found: BlockMask = create(seen, rows, None, ctx.new, s, device=device)
    return found


def dense(mask: "BlockMask", queries: int, keys: int) -> Tensor:
    """Return a BlockMask pair by pair, (B, H, queries, keys)."""
    from torch.nn.attention.flex_attention import create_mask

    found: Tensor = create_mask(mask.mask_mod, mask.shape[0], mask.shape[1], queries, keys, "cpu")
    return found


def _alone(device: torch.device) -> bool:
    """Return True if a kernel is compiled here, not by the torch.compile of the model around it."""
    return device.type == "cuda" and not torch.compiler.is_compiling()


@cache
def _torch(name: str, compiled: bool) -> Callable[..., Any]:
    from torch.nn.attention import flex_attention

    function: Callable[..., Any] = getattr(flex_attention, name)
    return constant_floats(torch.compile(function, dynamic=True)) if compiled else function


def constant_floats(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a compiled function for which numbers that an encoding holds are constants.

    As variables torch refuses them where gradients are needed.
    """

    def run(*args: Any, **options: Any) -> Any:
        with torch._dynamo.config.patch(specialize_float=True):
            return function(*args, **options)

    return run
