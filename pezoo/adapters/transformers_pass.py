"""The hooks and the attention of a model of transformers with an encoding."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map
from transformers import Cache, DynamicCache, EncoderDecoderCache
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from pezoo import adapters
from pezoo.adapters import CAUSAL, attend, attend_at_once, backends, plainly_causal
from pezoo.adapters.devices import moved, placed
from pezoo.adapters.stacks import TURNS, still
from pezoo.adapters.transformers_cache import MemoLayer, memory_of, own_part
from pezoo.base import Context, Encoding, Pass
from pezoo.context import Memo
from pezoo.functional import attention_dtype, for_each_head

NAME = "pezoo"  # of the attention, the config's entry, and the layers' keyword argument
COLUMNS: dict[str, Callable[[Tensor], Tensor]] = {  # of cosines, in models of transformers
    "half": lambda x: torch.cat([x, x], -1),
    "interleaved": lambda x: x.repeat_interleave(2, -1),
    "once": lambda x: x,
}


@dataclass(eq=False)
class Placement:
    """Place of an encoding in a stack of layers, and the state of its forward pass.

    `encoded` are the layers that it serves; the others keep the model's own positions. `columns`
    names how the model repeats cosines of K/2 pairs over K columns, if its own rotation does all
    that the encoding's `transform` would.
    """

    name: str
    length: int | None
    encoded: frozenset[int]
    n_layers: int  # in a cache
    causal: bool = True
    late: bool = False  # the pass begins with the first layer's input
    passes_on: bool = True  # keyword arguments reach the layers
    eager: bool = False
    columns: str = ""
    live: Any = None  # the Step, or what makes it of x, where layers pass on no keywords
    current: Step | None = None  # of the layer that runs
    whole: Any = None  # the number of new tokens and the cache, in a pass over all tokens


class Step:
    """State of a forward pass, passed through the model's layers to attention.

    It is neither a tuple nor a dataclass, in which accelerate would move the encoding to each
    layer's device, and FSDP2 look for tensors.
    """

    layer: int = 0
    x: Any = None  # its input (B, T, D)

    def __init__(
        self,
        encoding: Encoding,
        ctx: Pass,
        mask: Tensor | str | None = CAUSAL,
        placement: Placement | None = None,
        cache: Any = None,
        replayed: bool = False,
    ) -> None:
        """Take a ctx without the layer, which `attention` sets; CAUSAL if the caller has no mask.

        `replayed` is True for gradient checkpointing: layers must not change memo.
        """
        self.encoding, self.ctx, self.mask, self.cache = encoding, ctx, mask, cache
        self.placement = placement or Placement("", None, frozenset([0]), 1)
        self.replayed = replayed
        self.shared: dict[Any, Any] = {}  # what layers compute once

    def at(self, layer: int, x: Any) -> Step:
        """Return the step of a layer with input x (B, T, D), which shares all else."""
        found = object.__new__(Step)
        vars(found).update(vars(self), layer=layer, x=x)
        return found

    def on(self, device: torch.device) -> tuple[Encoding, Pass, Tensor | str | None]:
        """Return the encoding, the layer's ctx and the mask on the layer's device."""
        here = self.encoding, self.ctx, self.mask
        if device == self.ctx.pos.device:
            return here
        if device not in self.shared:
            ctx, mask = moved((self.ctx, self.mask), device)
            self.shared[device] = placed(self.encoding, device), ctx, mask
        found: tuple[Encoding, Pass, Tensor | str | None] = self.shared[device]
        return found

    @property
    def encoded(self) -> bool:
        """True if the encoding serves this layer."""
        return self.layer in self.placement.encoded

    def turned(self, own: Any) -> Any:
        """Return what replaces the model's own cosines and sines in this layer."""
        if not self.encoded:
            return own
        _, found = self.shared.get(id(own), (own, None))  # which stays alive, and so its id
        if found is None:
            found = self._rotation(own) if self.placement.columns else still(own)
            self.shared[id(own)] = own, found
        return found

    def _rotation(self, own: Any) -> Any:
        encoding: Any = self.encoding
        rotation = encoding.rotation(self.ctx)[:, 0]  # (B|1, T, K/2)
        if isinstance(own, Tensor):
            return rotation.to(own.dtype)
        spread = COLUMNS[self.placement.columns]
        return tuple(spread(x).to(own[0]) for x in (rotation.real, rotation.imag))


def begin(
    names: tuple[str, ...],
    placement: Placement,
    base: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Begin a pass before the stack runs, and pass a Step to its layers.

    `names` are those of its arguments. Errors: ValueError if another attention has been set or
    attention weights are wanted, and those of `prepare`.
    """
    if base.config._attn_implementation != NAME:
        raise ValueError(
            f"attention {base.config._attn_implementation!r} ignores this model's encoding: call "
            f"model.set_attn_implementation({NAME!r}), or use(model, ...) again"
        )
    given = dict(zip(names, args, strict=False)) | kwargs
    if given.get("output_attentions"):
        raise ValueError("pezoo's attention does not return weights: leave out output_attentions")
    ids = given.get("input_ids")
    typed = "token_type_ids" in names and given.get("token_type_ids") is None
    if typed and ids is not None and not placement.causal:
        given["token_type_ids"] = torch.zeros_like(ids)  # models' own end with their positions
    if placement.late:
        placement.live = partial(_late, base, placement, given)
        return (), given
    x = given.get("inputs_embeds")
    if (ids is None) == (x is None):
        raise ValueError("expected either input_ids or inputs_embeds")
    x = base.get_input_embeddings()(ids) if x is None else x
    step = _start(base, placement, given, x)
    if "position_ids" not in names:
        given.pop("position_ids", None)
    whole = step.ctx.x_for(NAME)
    embedded = step.encoding.embed(whole, step.ctx) if placement.encoded else whole
    if embedded is not x:
        given |= {"input_ids": None, "inputs_embeds": embedded}
    if placement.passes_on:
        given[NAME] = step
    if not (placement.passes_on and torch.compiler.is_compiling()):
        placement.live = step  # for layers that do not get what their stack does
    return (), given


def finish(placement: Placement, base: Any, args: Any, out: Any) -> Any:
    """Forget the pass. Of one over all tokens, return the outputs of the new ones."""
    whole, placement.live, placement.current, placement.whole = placement.whole, None, None, None
    if whole is None or out is None:
        return out
    new, cache = whole
    out = tree_map(lambda x: x[:, -new:] if isinstance(x, Tensor) and x.dim() == 3 else x, out)
    if isinstance(out, tuple):
        return (out[0], cache, *out[1:])
    out["past_key_values"] = cache
    return out


def _late(base: Any, placement: Placement, given: dict[str, Any], x: Tensor) -> Any:
    step = _start(base, placement, given, x)
    return step, step.encoding.embed(x, step.ctx)


def _start(base: Any, placement: Placement, given: dict[str, Any], x: Tensor) -> Step:
    """Run `draw` and `prepare` for a pass with token embeddings x; sets given's cache."""
    ids = given.get("input_ids")
    ids = ids if ids is not None and ids.shape == x.shape[:2] else None
    own: Any = base.encoding.prepare  # of the one that serves, where peft keeps copies
    encoding = placed(own.__self__, x.device)
    replayed = base.training and getattr(base, "gradient_checkpointing", False)
    cache = _cache(base, placement, given, replayed)
    memory, stable = None, not placement.encoded or _stable(encoding, placement.length)
    if cache is not None:
        memory = memory_of(own_part(cache), stable, placement.name, placement.n_layers)
    mask, position_ids = given.get("attention_mask"), given.get("position_ids")
    pos, counted = _positions(mask, position_ids, memory, x)
    if position_ids is None and _flat(mask) is not None:
        given["position_ids"] = pos.clamp(min=0)  # for layers that keep their own positions
    new, memo = x.shape[1], Memo() if memory is None else memory.memo
    if memory is not None:
        pos, ids = memory.extended(pos.expand(len(x), -1), ids)
        if not stable:
            x = _whole(placement, given, memory, x, pos)
            cache, memo, new = None, Memo(), x.shape[1]
    slots = None if base.slots_of is None or ids is None else _slots(base.slots_of, ids)
    ctx = Context(pos=pos, ids=ids, x=x, n_new=new, memo=memo, slots=slots)
    hidden: Tensor | str | None = CAUSAL if placement.causal else None
    if not (counted or plainly_causal(ctx)):
        hidden = adapters.attention_mask(ctx, placement.causal)
    if placement.encoded:
        planned = memory is not None or (encoding.reads_length and not base.training)
        length = placement.length if planned else None
        progress = base.progress if base.training else None
        drawn = encoding.draw(ctx, length=length, progress=progress)
        ctx = encoding.prepare(Pass.of(ctx, drawn=drawn))
    ctx = Pass.of(ctx)
    if memory is not None:  # what an encoding refuses is not kept
        memory.pos, memory.ids, memory.x = pos, ids, None if stable else x
    if replayed:
        _check_replay(base, ctx)
    return Step(encoding, ctx, hidden, placement, cache, replayed)


def _stable(encoding: Encoding, length: int | None) -> bool:
    """Return True if a cache may hold transformed keys: later tokens do not change them.

    A planned length settles what reads nothing but the length.
    """
    if encoding.prefix_stable or not length:
        return encoding.prefix_stable
    parts = (one for one in encoding.modules() if isinstance(one, Encoding))
    return all(one.prefix_stable or one.reads_length for one in parts)


def _whole(
    placement: Placement, given: dict[str, Any], memory: MemoLayer, x: Tensor, pos: Tensor
) -> Tensor:
    """Let a pass compute all tokens, those in the cache too; returns their embeddings."""
    mask = given.get("attention_mask")
    if placement.late or (memory.x is not None and mask is not None and _flat(mask) is None):
        why = "this model's" if placement.late else "and this mask's"
        raise ValueError(
            f"{placement.name} changes earlier keys as the text grows, {why} tokens cannot be "
            "computed again: call the model and generate with use_cache=False"
        )
    placement.whole = x.shape[1], given["past_key_values"]
    given.pop("cache_position", None)
    given |= {"past_key_values": None, "use_cache": False, "position_ids": pos.clamp(min=0)}
    return x if memory.x is None else torch.cat([memory.x, x], 1)


def _flat(mask: Any) -> Tensor | None:
    """Return an attention_mask that is (B, S); None for one of pairs."""
    return mask if isinstance(mask, Tensor) and mask.dim() == 2 else None


def _padding(mask: Any, past: int, t: int) -> Tensor | None:
    """Return which of T new tokens are padding, (B|1, T), by a mask of pairs or several.

    That is what may not see itself. transformers makes such masks for a StaticCache.
    """
    pairs = (
        next((x for x in mask.values() if x is not None), None) if isinstance(mask, dict) else mask
    )
    if not isinstance(pairs, Tensor) or pairs.dim() != 4:
        return None
    own = pairs[:, 0, :, past : past + t].diagonal(dim1=1, dim2=2)
    return ~own if own.dtype == torch.bool else own < 0


def _slots(slots_of: Callable[[Tensor], Tensor], ids: Tensor) -> Tensor:
    slots = slots_of(ids)
    if not isinstance(slots, Tensor) or slots.shape != ids.shape or slots.is_floating_point():
        raise ValueError(f"slots(ids) must return integers {tuple(ids.shape)}, one for each token")
    return slots


def _cache(base: Any, placement: Placement, given: dict[str, Any], replayed: bool) -> Any:
    """Return the cache of a pass, a new one if it is wanted; sets that of the arguments."""
    cache, wanted = given.get("past_key_values"), given.get("use_cache")
    if not placement.causal:
        return None
    if wanted is None:
        wanted = getattr(base.config, "use_cache", False) and not base.training
        wanted = wanted and (not placement.encoded or _stable(base.encoding, placement.length))
    if replayed:
        wanted, cache = False, None
    elif wanted and cache is None:
        _check_cache(base)
        cache = DynamicCache(config=base.config)
        if getattr(base.config, "is_encoder_decoder", False):
            cache = EncoderDecoderCache(cache, DynamicCache())
    given |= {"past_key_values": cache, "use_cache": wanted}
    return cache


def _check_cache(base: Any) -> None:
    """Raise ValueError for a model with a class of cache of its own."""
    home = type(base).__module__
    for name, x in vars(sys.modules[home]).items():
        if isinstance(x, type) and issubclass(x, Cache) and x.__module__ == home:
            raise ValueError(
                f"this model has a cache of its own, {name}, without room for the state of an "
                "encoding: call it with use_cache=False"
            )


def _check_replay(base: Any, ctx: Pass) -> None:
    """Refuse reentrant checkpoints, which would go backward through `prepare` in every layer."""
    run = next((m for m in base.modules() if hasattr(m, "_gradient_checkpointing_func")), None)
    reentrant = run is not None and run._gradient_checkpointing_func.keywords.get("use_reentrant")
    tensors = (x for x in tree_leaves((dict(ctx.memo), ctx.drawn)) if isinstance(x, Tensor))
    if reentrant and any(x.grad_fn is not None for x in tensors):
        raise ValueError(
            "this encoding shares tensors between layers: use gradient checkpointing with "
            "use_reentrant=False"
        )


def _positions(
    mask: Any, position_ids: Tensor | None, memory: MemoLayer | None, x: Tensor
) -> tuple[Tensor, bool]:
    """Return positions (B|1, T) of the new tokens, -1 where attention_mask (B, S) is 0.

    The second value is True if all tokens are known to have the positions 0, 1, 2, ...
    """
    t, past = x.shape[1], 0 if memory is None else memory.get_seq_length()
    hidden, mask = _padding(mask, past, t), _flat(mask)
    if mask is not None and mask.shape[1] != past + t:
        raise ValueError(
            f"attention_mask needs a column for each of {past + t} tokens, {past} of them in the "
            f"cache; it has {mask.shape[1]}"
        )
    if memory is not None:
        memory.check(mask, counted=position_ids is None)
    if position_ids is None and mask is None and hidden is None:
        checked = not past or not torch.compiler.is_compiling()
        return torch.arange(past, past + t, device=x.device)[None], checked
    pos = position_ids
    if pos is None and mask is not None:
        pos = mask.long().cumsum(1)[:, -t:] - 1
    elif pos is None:
        pos = torch.arange(past, past + t, device=x.device)[None]
    hidden = hidden if mask is None else mask[:, -t:] == 0
    return pos if hidden is None else pos.masked_fill(hidden, -1), False


def enter(
    index: int,
    names: tuple[str, ...],
    placement: Placement,
    layer: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Pass a layer its Step. `names` are those of its arguments, the first one its input."""
    given = dict(zip(names[1:], args[1:], strict=False)) | kwargs
    x = args[0] if args else given.pop(names[0])
    if callable(placement.live):
        placement.live, x = placement.live(x)
    step = given.get(NAME) or placement.live
    if step is None:
        raise ValueError(MISSING)
    step = step.at(index, x)
    for name in TURNS:
        if given.get(name) is not None:
            given[name] = step.turned(given[name])
    if placement.passes_on:
        given[NAME] = step
    if not torch.compiler.is_compiling():  # for layers that keep keyword arguments to themselves
        placement.current = step
    return (x,), given


def turn(placement: Placement, index: int, module: Any, args: Any, found: Any) -> Any:
    """Replace the rotation that a layer computes itself."""
    return still(found) if index in placement.encoded else found


MISSING = (
    "no encoding is attached: call use(model, encoding), or load(folder) in place of "
    "from_pretrained. After either of them, gradient checkpointing is the cause: this model's "
    "layers do not pass on keyword arguments"
)


def _visible(mask: Tensor) -> Tensor:
    """Return True where a mask (B, 1, T, S), of booleans or to add to logits, hides nothing."""
    if mask.dtype == torch.bool:
        return mask
    if not torch.compiler.is_compiling() and ((mask < 0) & (mask > -1e4)).any():
        raise ValueError(
            "attention_mask must hide keys or leave them: a bias between is not supported. Write "
            "it as the `bias` of an encoding"
        )
    return mask == 0


def _key_weight(module: Any) -> Tensor | None:
    """Return the weight (G K, D) of the projection to keys, or None if its name is unknown."""
    for name in ("k_proj", "key", "k"):
        projection: Any = getattr(module, name, None)
        if isinstance(projection, nn.Linear):
            return projection.weight
        if hasattr(projection, "get_delta_weight"):  # of peft
            unused = projection.disable_adapters or projection.merged
            active = () if unused else projection.active_adapters
            added = (projection.get_delta_weight(x) for x in active if x in projection.lora_A)
            weight: Tensor = sum(added, projection.weight)
            return weight
    joint = getattr(module, "c_attn", None)  # of GPT-2: q, k and v side by side, (D, 3 D)
    return None if joint is None else joint.weight.chunk(3, 1)[1].mT


def _kept(step: Step, module: Any, own: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Return keys and values of all tokens, of which those of new ones are added to the cache.

    `own` are the keys as the module gave them: layers may share those of an earlier one.
    """
    if step.cache is None:
        return k, v
    key = id(own), id(v)
    if key not in step.shared:
        layer = own_part(step.cache).layers[module.layer_idx]
        step.shared[key] = (own, v), layer.keep(k, v, step.ctx.pos.shape[1])
    found: tuple[Tensor, Tensor] = step.shared[key][1]
    return found


def _seen(step: Step, given: Tensor | None, ctx: Pass, own: Any) -> Any:
    """Return the mask of the pass, and where the model hides more, as windows do, without that."""
    if given is None:
        return own
    key = id(given), given.device
    if key not in step.shared:
        filled = given[..., : ctx.pos.shape[1]]  # without the free room of a StaticCache
        seen, told = _visible(filled), isinstance(own, Tensor)
        itself = own if told else adapters.attention_mask(ctx, step.placement.causal)
        mask = seen & own if told else seen
        blind = ~mask.any(3, keepdim=True)  # would get NaN
        step.shared[key] = given, mask | blind & itself
    return step.shared[key][1]


def attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, Any]:
    """Compute attention for new q (B, H, T, K), k and v (B, G, T, K) -> (B, T, H, K)."""
    if getattr(module, "pezoo_crosses", False):
        kwargs = {**kwargs, NAME: None, "is_causal": False}
        given = query, key, value, attention_mask
        crossed: tuple[Tensor, Any] = sdpa_attention_forward(
            module, *given, dropout, scaling, **kwargs
        )
        return crossed
    placement = getattr(module, "pezoo_placement", None)
    step: Step | None = kwargs.pop(NAME, None) or (placement and placement.current)
    if step is None:
        raise ValueError(MISSING)
    encoding, ctx, mask = step.on(query.device)
    if key.shape[2] != ctx.new:
        raise ValueError(
            f"{type(module).__name__} attends to {key.shape[2]} keys of {ctx.new} tokens, and what "
            "is no token has no position: take layers=... without these, or another architecture"
        )
    if not step.encoded:
        k, value = _kept(step, module, key, key, value)
        mask = _seen(step, attention_mask, ctx, mask)
        return native(step, module, (query, k, value), mask, scaling, dropout, kwargs)
    ctx = ctx.at(step.layer, moved(step.x, query.device), _key_weight(module))
    if step.replayed:
        ctx = replace(ctx, memo=Memo({key: ctx.memo[key] for key in ctx.memo}))
    own = encoding.shape.d_head**-0.5
    q = query if scaling in (None, own) else query * (scaling / own)
    turned = (q, key) if step.placement.columns else encoding.transform(q, key, ctx)
    q, k = (x.to(value.dtype) for x in turned)
    k, value = _kept(step, module, key, k, value)
    mask = _seen(step, attention_mask, ctx, mask)
    if not dropout and _fused(kwargs):
        out = _attend(step, encoding, ctx, (q, k, value), mask)
    else:
        out = _plain(encoding, ctx, (q, k, value), mask, dropout, kwargs)
    return out.transpose(1, 2).contiguous(), None


def _attend(
    step: Step, encoding: Encoding, ctx: Pass, qkv: tuple[Tensor, Tensor, Tensor], mask: Any
) -> Tensor:
    """Call attention, for a token that is decoded without the checks of its first pass."""
    q, k, v = qkv
    backend = adapters.resolve("eager" if step.placement.eager else "auto", encoding)
    causal = step.placement.causal
    if ctx.new > 1 or not causal or backend == "eager" or attention_dtype(v) != v.dtype:
        return attend(encoding, q, k, v, ctx, mask, backend, causal)
    k, v = for_each_head(k, q), for_each_head(v, q)
    return attend_at_once(encoding, q, k, v, ctx, mask, backend, causal)


def _fused(kwargs: dict[str, Any]) -> bool:
    """Return True if a model asks for nothing that fused kernels lack."""
    return all(kwargs.get(name) is None for name in ("softcap", "s_aux", "sinks"))


def _plain(
    encoding: Encoding,
    ctx: Pass,
    qkv: tuple[Tensor, Tensor, Tensor],
    mask: Any,
    dropout: float,
    kwargs: dict[str, Any],
) -> Tensor:
    """Compute attention with what no fused kernel has: dropout, a soft cap, and sinks.

    c tanh(s / c) replaces scores s, before the bias. Sinks (H,) are logits without values.
    """
    q, k, v = (for_each_head(x, qkv[0]) for x in qkv)
    cap, sinks = kwargs.get("softcap"), kwargs.get("s_aux", kwargs.get("sinks"))
    own = encoding.shape.d_head**-0.5

    def weights(logits: Tensor) -> Tensor:
        chosen = encoding.weights(logits, ctx)
        if sinks is not None:
            if chosen is not None:
                raise ValueError(
                    f"this model has attention sinks, and {encoding.name} replaces softmax: take "
                    "an encoding that does not"
                )
            more = sinks.to(logits)  # (H,), or (B, H, T, 1) of each query
            more = more if more.dim() == 4 else more.reshape(1, -1, 1, 1)
            more = more.expand(*logits.shape[:3], 1)
            chosen = torch.cat([logits, more], 3).softmax(-1)[..., :-1]
        kept = logits.softmax(-1) if chosen is None else chosen
        return nn.functional.dropout(kept, dropout)

    scores, bias = encoding.scores(q, k, ctx), encoding.bias(q, k, ctx)
    if cap is not None:
        scores = q @ k.mT * own if scores is None else scores
        scores = cap * (scores / cap).tanh()
    mask = adapters.earlier_keys(encoding, mask, ctx)
    dense = mask if isinstance(mask, Tensor) else None
    if mask is None:
        dense = torch.ones(1, 1, *q.shape[2:3], k.shape[2], dtype=torch.bool, device=q.device)
    return backends.eager(q, k, v, bias, dense, own, weights, scores)


def native(
    step: Step,
    module: Any,
    qkv: tuple[Tensor, Tensor, Tensor],
    mask: Any,
    scaling: float | None,
    dropout: float,
    kwargs: dict[str, Any],
) -> tuple[Tensor, Any]:
    """Compute attention as the model does, in a layer that keeps its own positions."""
    (q, k, _), causal = qkv, step.placement.causal
    seen = mask if isinstance(mask, Tensor) else None
    code: Any = sys.modules[type(module).__module__]
    if (_fused(kwargs) and not step.placement.eager) or not hasattr(
        code, "eager_attention_forward"
    ):
        options = {**kwargs, "is_causal": causal}
        if seen is None and causal and 1 < q.shape[2] < k.shape[2]:
            seen = backends.causal(q.shape[2], k.shape[2], q.device)
        found: tuple[Tensor, Any] = sdpa_attention_forward(
            module, *qkv, seen, dropout, scaling, **options
        )
        return found
    if seen is None and causal:
        seen = backends.causal(q.shape[2], k.shape[2], q.device)
    if seen is not None:
        hidden = torch.finfo(q.dtype).min
        seen = torch.zeros_like(seen, dtype=q.dtype).masked_fill(~seen, hidden)
    if scaling is not None:
        kwargs = {**kwargs, "scaling": scaling}
    eager = code.eager_attention_forward(module, *qkv, seen, dropout=dropout, **kwargs)
    out: tuple[Tensor, Any] = eager
    return out
