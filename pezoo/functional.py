"""Small functions that encodings share."""

import math
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

import torch
from torch import Tensor, nn

from pezoo.base import Context, Encoding, Shape


def inverse_frequencies(width: int, base: float, device: torch.device | None = None) -> Tensor:
    """Return w_m = base^(-2m/width), (width/2,) float32.

    Errors: ValueError for an odd width, and for a base that is not positive and finite.
    """
    if width % 2:
        raise ValueError(f"a sinusoid needs an even width, got {width}")
    if not 0 < base < math.inf:
        raise ValueError(f"base must be above 0 and finite, got {base}")
    m = torch.arange(width // 2, device=device, dtype=torch.float32)
    return torch.exp(-math.log(base) * 2 * m / width)


def sinusoid(pos: Tensor, width: int, base: float = 10_000.0) -> Tensor:
    """Return sines, then cosines: [sin(p w_0), ..., sin(p w_n), cos(p w_0), ..., cos(p w_n)].

    pos (...) integers -> (..., width) float32. Positions stay integers up to the float32 product,
    so that half precision never rounds them (Vaswani et al. 2017, Section 3.5, whose order
    interleaves sine and cosine: a permutation of the width).
    """
    angle = pos[..., None].float() * inverse_frequencies(width, base, pos.device)
    return torch.cat([angle.sin(), angle.cos()], -1)


def key_vectors(x: Tensor, ctx: Context, shape: Shape, reader: str) -> Tensor:
    """Project vectors x (V, D) to keys: W_K x / sqrt(K), (V, H, K).

    Heads that share their keys share these. Errors: ValueError without ctx.w_key.
    """
    if ctx.w_key is None:
        raise ValueError(
            f"{reader} needs the weight of the projection to keys: pass ctx.at(layer, x, w_key) "
            "to the hooks, w_key (K times heads, D)"
        )
    keys = x / math.sqrt(shape.d_head) @ ctx.w_key.to(x.dtype).mT
    keys = keys.view(len(x), -1, shape.d_head)  # (V, G, K)
    return keys.repeat_interleave(shape.n_heads // keys.shape[1], 1)


def for_each_head(x: Tensor, q: Tensor) -> Tensor:
    """Repeat keys or values for each head of q: (B, G, S, K) -> (B, H, S, K)."""
    share = q.shape[1] // x.shape[1]
    return x if share == 1 else x.repeat_interleave(share, 1)


def run_index(member: Tensor, ends: Tensor) -> Tensor:
    """Count the members of each run from 1; 0 for other tokens. (B|1, S) bool -> (B, S) int64.

    A token of `ends` ends the run before it; other tokens that are not members are skipped.
    """
    count = member.long().cumsum(1)
    before = torch.where(ends, count - member.long(), 0).cummax(1).values
    return (count - before) * member


def visible_keys(ctx: Context) -> Tensor:
    """Return how many keys each query sees under a causal mask, itself included: (B|1, T) int64.

    It counts tokens of the query's own document; padding sees 0.
    """
    document = ctx.document
    begins = document.diff(dim=1, prepend=document[:, :1]) > 0
    return run_index(ctx.key_mask, begins)[:, ctx.pos.shape[1] - ctx.new :]


def linear_start(layers: int, rows: int, columns: int) -> nn.Parameter:
    """Return matrices (layers, rows, columns) that start as torch.nn.Linear does."""
    limit = columns**-0.5
    return nn.Parameter(torch.empty(layers, rows, columns).uniform_(-limit, limit))


@torch.no_grad()
def orthogonal_(x: Tensor, gain: float = 1.0) -> None:
    """Fill x as torch.nn.init.orthogonal_ does, which does not support half precision."""
    x.copy_(nn.init.orthogonal_(at_least_float32(x.detach()).clone(), gain))


def last_tokens(ctx: Context, n: int) -> tuple[Tensor, Tensor]:
    """Return the columns of the n last tokens up to each one, and which of them exist.

    Both are (B|1, S, n), the token itself first. Padding is skipped, and has none; the tokens are
    those of its own document.

    >>> last_tokens(Context(torch.tensor([[0, -1, 1, 2]])), 2)[0][0, 3]
    tensor([3, 2])
    """
    real, document = ctx.key_mask, ctx.document
    order = (~real).long().argsort(dim=1, stable=True)  # padding last
    rank = real.long().cumsum(1)[..., None] - 1 - torch.arange(n, device=real.device)
    index = order.gather(1, rank.clamp(min=0).flatten(1))
    own = document.gather(1, index).view_as(rank) == document[..., None]
    return index.view_as(rank), own & (rank >= 0) & real[..., None]


def short_convolution(x: Tensor, weight: Tensor, ctx: Context) -> Tensor:
    """Return sum_m weight_m x_m over the last tokens, x (B, C, S), weight (C, n): (B, C, S).

    weight[:, 0] belongs to the token itself.
    """
    index, exists = last_tokens(ctx, weight.shape[1])
    total = torch.zeros_like(x)
    for m in range(weight.shape[1]):
        near = x.gather(-1, index[:, None, :, m].expand_as(x)) * exists[:, None, :, m]
        total = total + weight[:, m, None] * near
    return total


def encodings_in(model: nn.Module) -> list[Encoding]:
    """Return the encodings in a model, without those that a wrapper wraps."""
    found: list[Encoding] = []
    inner: set[nn.Module] = set()
    for module in model.modules():  # a wrapper comes before what it wraps
        if isinstance(module, Encoding) and module not in inner:
            found.append(module)
            inner.update(module.modules())
    return found


def parameter_groups(
    model: nn.Module, groups: Iterable[dict[str, Any]] | None = None
) -> list[dict[str, Any]]:
    """Return a model's parameters as an optimiser takes them, with the encodings' own settings.

    `groups` are the optimiser's groups so far, by default one of all parameters. The parameters in
    `Encoding.param_groups` leave them for groups of their own, which come last.

    Example: `torch.optim.AdamW(parameter_groups(model), lr=1e-3)`.

    Errors: ValueError for a parameter in two groups of an encoding or a negative learning rate.
    """
    groups = [{"params": list(model.parameters())}] if groups is None else list(groups)
    own: list[dict[str, Any]] = []
    taken: set[int] = set()
    for encoding in encodings_in(model):
        for group in encoding.param_groups():
            ids = list(map(id, group.params))
            if len({*ids, *taken}) < len(ids) + len(taken):
                raise ValueError(f"{encoding.name}: param_groups holds a parameter twice")
            if group.lr is not None and not 0 <= group.lr < math.inf:
                raise ValueError(
                    f"{encoding.name}: expected a learning rate of 0 or more in param_groups, "
                    f"was {group.lr}"
                )
            taken.update(ids)
            settings = {name: x for name, x in vars(group).items() if x is not None}
            for old in groups:
                held = set(map(id, old["params"]))
                if params := [p for p in group.params if id(p) in held]:
                    own.append({**old, **settings, "params": params})
    rest = [{**old, "params": [p for p in old["params"] if id(p) not in taken]} for old in groups]
    return [*rest, *own]


def spread(x: Tensor, every: int, size: int, rest: float) -> Tensor:
    """Return (B, T, size, ...) with x (B, T, n, ...) at 0, every, 2 every, ... and `rest` between.

    >>> spread(torch.tensor([[[5.0, 6.0]]]), 2, 5, 1.0)
    tensor([[[5., 1., 6., 1., 1.]]])
    """
    n = x.shape[2]
    if n == size:
        return x
    wide = x.new_full((*x.shape[:2], size, *x.shape[3:]), rest)
    wide[:, :, : n * every : every] = x
    return wide


def own_pairs(pos: Tensor) -> Tensor:
    """Return (S, S) int64, a distinct number for every pair of the positions pos (1, S)."""
    n = pos.shape[1]
    return torch.arange(n * n, device=pos.device).view(n, n)


def at_least_float32(x: Tensor) -> Tensor:
    """Return x, converted to float32 if it is in half precision."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def has_float64(device: torch.device) -> bool:
    """Return True if the device supports float64, as all but mps do."""
    return device.type != "mps"


def full_precision(device: str) -> AbstractContextManager[Any]:
    """Return a context without autocast, because sums of rounded products would drift."""
    available = torch.amp.is_autocast_available(device)
    return torch.autocast(device, enabled=False) if available else nullcontext()


def attention_dtype(v: Tensor) -> torch.dtype:
    """Return the dtype of attention with values v: autocast's if it is on, which casts float32."""
    device = v.device.type
    on = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    return torch.get_autocast_dtype(device) if on and v.dtype != torch.float64 else v.dtype


def distinct(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the distinct values of x, ascending (n,), and the index of each element among them.

    On a GPU, where the host would have to synchronise, in torch.compile, and in torch.vmap over x,
    all count as distinct.

    >>> distinct(torch.tensor([[5, 2], [5, 5]]))
    (tensor([2, 5]), tensor([[1, 0],
            [1, 1]]))
    """
    with suppress(RuntimeError):  # of vmap
        if x.device.type == "cpu" and not torch.compiler.is_compiling():
            values, index = torch.unique(x, return_inverse=True)
            return values, index
    return x.flatten(), torch.arange(x.numel(), device=x.device).view_as(x)
