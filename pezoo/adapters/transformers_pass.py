"""The hooks and the attention of a model of transformers with an encoding."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from transformers import DynamicCache, EncoderDecoderCache
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from pezoo import adapters
from pezoo.adapters import CAUSAL, attend, backends, plainly_causal
from pezoo.adapters.devices import moved, placed
from pezoo.adapters.stacks import TURNS, still
from pezoo.adapters.transformers_cache import MemoLayer, memory_of, own_part
from pezoo.base import Context, Encoding, Pass
from pezoo.context import Memo
from pezoo.functional import for_each_head

NAME = "pezoo"  # of the attention, the config's entry, and the layers' keyword argument
COLUMNS: dict[str, Callable[[Tensor], Tensor]] = {  # of cosines, in models of transformers
    "half": lambda x: torch.cat([x, x], -1),
    "interleaved": lambda x: x.repeat_interleave(2, -1),
    "once": lambda x: x,
}


@dataclass(eq=False)
class Placement:
    """How an encoding lies in a stack of layers, and the state of its forward pass.

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


@dataclass(frozen=True)
class Step:
    """State of a forward pass, passed through the model's layers to attention.

    It is no tuple, because accelerate would move the encoding in it to each layer's device.
    """

    encoding: Encoding
    ctx: Pass  # without the layer, which `attention` sets
    mask: Tensor | str | None = CAUSAL  # unless the caller passes a mask of its own
    placement: Placement = field(default_factory=lambda: Placement("", None, frozenset([0]), 1))
    cache: Any = None
    replayed: bool = False  # by gradient checkpointing: layers must not change memo
    layer: int = 0
    x: Any = None  # its input (B, T, D)
    shared: dict[Any, Any] = field(default_factory=dict)  # what layers compute once

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
    embedded = step.encoding.embed(x, step.ctx) if placement.encoded else x
    if embedded is not x:
        given |= {"input_ids": None, "inputs_embeds": embedded}
    if placement.passes_on:
        given[NAME] = step
    else:
        placement.live = step
    return (), given


def finish(placement: Placement, *_: Any) -> None:
    """Forget the pass."""
    placement.live = placement.current = None


def _late(base: Any, placement: Placement, given: dict[str, Any], x: Tensor) -> Any:
    step = _start(base, placement, given, x)
    return step, step.encoding.embed(x, step.ctx)


def _start(base: Any, placement: Placement, given: dict[str, Any], x: Tensor) -> Step:
    """Run `draw` and `prepare` for a pass with token embeddings x; sets given's cache."""
    ids = given.get("input_ids")
    ids = ids if ids is not None and ids.shape == x.shape[:2] else None
    encoding = placed(base.encoding, x.device)
    replayed = base.training and getattr(base, "gradient_checkpointing", False)
    cache = _cache(base, placement, given, replayed)
    memory = None
    if cache is not None:
        stable = encoding.prefix_stable or not placement.encoded
        memory = memory_of(own_part(cache), stable, placement.name, placement.n_layers)
    mask, position_ids = given.get("attention_mask"), given.get("position_ids")
    pos, counted = _positions(mask, position_ids, memory, x)
    if position_ids is None and mask is not None and mask.dim() == 2:
        given["position_ids"] = pos.clamp(min=0)  # for layers that keep their own positions
    if memory is not None:
        pos, ids = memory.extended(pos.expand(len(x), -1), ids)
    memo = Memo() if memory is None else memory.memo
    slots = None if base.slots_of is None or ids is None else _slots(base.slots_of, ids)
    ctx = Context(pos=pos, ids=ids, x=x, n_new=x.shape[1], memo=memo, slots=slots)
    hidden: Tensor | str | None = CAUSAL if placement.causal else None
    if not (counted or plainly_causal(ctx)):
        hidden = adapters.attention_mask(ctx, placement.causal)
    if placement.encoded:
        length = None if memory is None else placement.length
        progress = base.progress if base.training else None
        drawn = encoding.draw(ctx, length=length, progress=progress)
        ctx = encoding.prepare(Pass.of(ctx, drawn=drawn))
    ctx = Pass.of(ctx)
    if memory is not None:  # what an encoding refuses is not kept
        memory.pos, memory.ids = pos, ids
    if replayed:
        _check_replay(base, ctx)
    return Step(encoding, ctx, hidden, placement, cache, replayed)


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
        wanted = wanted and (base.encoding.prefix_stable or not placement.encoded)
    if replayed:
        wanted, cache = False, None
    elif wanted and cache is None:
        cache = DynamicCache(config=base.config)
        if getattr(base.config, "is_encoder_decoder", False):
            cache = EncoderDecoderCache(cache, DynamicCache())
    given |= {"past_key_values": cache, "use_cache": wanted}
    return cache


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
    mask: Tensor | None, position_ids: Tensor | None, memory: MemoLayer | None, x: Tensor
) -> tuple[Tensor, bool]:
    """Return positions (B|1, T) of the new tokens, -1 where attention_mask (B, S) is 0.

    The second value is True if all tokens are known to have the positions 0, 1, 2, ...
    """
    t, past = x.shape[1], 0 if memory is None else memory.get_seq_length()
    mask = None if mask is None or mask.dim() != 2 else mask
    if mask is not None and mask.shape[1] != past + t:
        raise ValueError(
            f"attention_mask needs a column for each of {past + t} tokens, {past} of them in the "
            f"cache; it has {mask.shape[1]}"
        )
    if memory is not None:
        memory.check(mask, counted=position_ids is None)
    if position_ids is None and mask is None:
        checked = not past or not torch.compiler.is_compiling()
        return torch.arange(past, past + t, device=x.device)[None], checked
    pos = position_ids
    if pos is None:
        assert mask is not None
        pos = mask.long().cumsum(1)[:, -t:] - 1
    return pos if mask is None else pos.masked_fill(mask[:, -t:] == 0, -1), False


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
    step = replace(step, layer=index, x=x)
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
    "from_pretrained. If you did, leave out gradient checkpointing: this model's layers do not "
    "pass on keyword arguments"
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
        if isinstance(getattr(module, name, None), nn.Linear):
            weight: Tensor = getattr(module, name).weight
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
        step.shared[key] = (own, v), layer.keep(k, v)
    found: tuple[Tensor, Tensor] = step.shared[key][1]
    return found


def _seen(step: Step, given: Tensor | None, ctx: Pass, own: Any) -> Any:
    """Return the mask of the pass, and where the model hides more, as windows do, without that."""
    if given is None:
        return own
    key = id(given), given.device
    if key not in step.shared:
        seen, told = _visible(given), isinstance(own, Tensor)
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
        backend = "eager" if step.placement.eager else "auto"
        causal = step.placement.causal
        out = attend(encoding, q, k, value, ctx, mask, backend, causal)
    else:
        out = _plain(encoding, ctx, (q, k, value), mask, dropout, kwargs)
    return out.transpose(1, 2).contiguous(), None


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
            more = sinks.to(logits).reshape(1, -1, 1, 1).expand(*logits.shape[:3], 1)
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
