"""Any encoding in a causal language model of transformers 5, in one line.

    model = use(LlamaForCausalLM(config), "prism(cursors=2)")
    model.save_pretrained(folder)  # the encoding's weights too
    model = load(folder)

It takes the place of the model's own positions: a rotation becomes the identity, a table of
positions zero. Attention runs through `pezoo.adapters.attend`, registered with transformers as
"pezoo". The cache holds transformed keys, and beside its layers one more for what the encoding
remembers, so that whatever reorders or crops the cache reorders and crops both.
"""

from __future__ import annotations

import copy
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers import AttentionInterface, AutoConfig, DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer

from pezoo import adapters
from pezoo.adapters import attend, eager
from pezoo.adapters.transformers_cache import memory_of
from pezoo.base import Context, Encoding, Shape
from pezoo.context import Memo
from pezoo.registry import make
from pezoo.spec import Spec, parse

NAME = "pezoo"
Factory = Callable[[Shape], Encoding]


def use(
    model: PreTrainedModel, encoding: str | Factory, length: int | None = None
) -> PreTrainedModel:
    """The same model with the encoding in place of its own positions, or of an earlier encoding's.

    `encoding` is a text as `pezoo.make` takes it, or a class such as RoPE. It becomes the module
    `encoding` of the model's decoder, with the model's device and dtype. Shape.train_len is
    max_position_embeddings. `length` is the number of tokens planned for a text that is generated
    with a cache, which encodings need that draw positions at random. `rope` turns as the model did:
    pairs (m, m + K/2), the model's base, and its scaling unless the text has one, so that weights
    trained with them can be used.

    Example: `use(model, "rope(scaling=yarn,factor=4)")` reads texts four times as long as `model`
    was trained for; `use(model, "nope")` and a short training at the old length is DroPE.

    Left padding is told by attention_mask, packed documents by position_ids. Parameters that ask
    for their own optimiser settings are in `model.base_model.encoding.param_groups()`.

    Errors: ValueError for a model that is no decoder in the manner of Llama, Qwen or GPT-2, or
    whose attention has a window, and for one that was saved with an encoding: `load` it.
    """
    saved = (getattr(model.config, NAME, None) or {}).get("encoding")
    if saved and not hasattr(model.base_model, "encoding"):
        raise ValueError(
            f"this model was saved with {saved}, whose weights from_pretrained leaves out: "
            f"pezoo.adapters.transformers.load(folder) restores them. To begin anew, first set "
            f"model.config.{NAME} = None"
        )
    return _put(model, encoding, length)


def load(folder: str, encoding: Factory | None = None, **options: Any) -> Any:
    """A model that `use` has changed, from where save_pretrained put it, with the weights of both.

    `options` are those of from_pretrained. `encoding` is for a model whose encoding was given as a
    class. Errors: ValueError for a folder that names no encoding.
    """
    config = AutoConfig.from_pretrained(folder)
    saved = getattr(config, NAME, None) or {}
    text = encoding or saved.get("encoding")
    if not text:
        raise ValueError(f"{folder} names no encoding: load it with from_pretrained and use(...)")
    parent: Any = getattr(transformers, config.architectures[0])

    def build(self: Any, config: Any, *args: Any, **more: Any) -> None:
        parent.__init__(self, config, *args, **more)
        _put(self, text, saved.get("length"))

    cls: Any = type(parent.__name__, (parent,), {"__init__": build})
    return cls.from_pretrained(folder, **options)


@dataclass(frozen=True)
class Step:
    """What attention gets to know of a forward pass, handed through the model's layers."""

    encoding: Encoding
    ctx: Context
    cache: DynamicCache | None = None
    replayed: bool = False  # gradient checkpointing runs layers twice: they must not change memo


class Unturned(nn.Module):
    """In place of a rotary embedding: cos 1 and sin 0."""

    def forward(self, x: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        return x.new_ones(1, 1, 1), x.new_zeros(1, 1, 1)


class Unplaced(nn.Module):
    """In place of a table of positions: zero."""

    def forward(self, position_ids: Tensor) -> Tensor:
        return 0 * position_ids[..., None]


def _put(model: PreTrainedModel, encoding: str | Factory, length: int | None) -> PreTrainedModel:
    config, base = model.config, model.base_model
    layers = getattr(base, "layers", None) or getattr(base, "h", None)
    place = next((name for name in ("rotary_emb", "wpe") if hasattr(base, name)), None)
    whole = {type(layer) for layer in DynamicCache(config=config).layers} == {DynamicLayer}
    whole = whole and not getattr(config, "add_cross_attention", False)
    if layers is None or place is None or not whole:
        raise ValueError(
            f"{type(model).__name__} is no decoder that pezoo knows: expected one as Llama, Qwen "
            "or GPT-2 have it, with rotary_emb or wpe, and layers that all see the whole text"
        )
    heads = config.num_attention_heads
    shape = Shape(
        d_model=config.hidden_size,
        n_heads=heads,
        d_head=getattr(config, "head_dim", None) or config.hidden_size // heads,
        n_layers=config.num_hidden_layers,
        train_len=config.max_position_embeddings,
    )
    if isinstance(encoding, str):
        made = make(_as_trained(parse(encoding), base), shape)
    else:
        made = encoding(shape)
    if made.needs_scale:
        raise ValueError(
            f"{made.name} reads the scale of the instance, which transformers does not know"
        )
    if not hasattr(base, "encoding"):
        config = _own_config(model)
        base.register_forward_pre_hook(_begin, with_kwargs=True)
        for index, layer in enumerate(layers):
            layer.register_forward_pre_hook(partial(_enter, index), with_kwargs=True)
    setattr(base, place, Unturned() if place == "rotary_emb" else Unplaced())
    base.encoding = made.to(model.device, model.dtype).train(model.training)
    text = encoding if isinstance(encoding, str) else None
    setattr(config, NAME, {"encoding": text, "length": length})
    AttentionInterface.register(NAME, _attention)
    model.set_attn_implementation(NAME)
    return model


def _own_config(model: PreTrainedModel) -> Any:
    """A copy of the config for this model: others may have been made from the same one."""
    shared, own = model.config, copy.deepcopy(model.config)
    for module in model.modules():
        if getattr(module, "config", None) is shared:
            module.config = own
    return own


def _as_trained(spec: Spec, base: Any) -> Spec:
    """The model's own rotation as the default of `rope`: its layout, base and scaling."""
    if spec.inner is not None:
        return replace(spec, inner=_as_trained(spec.inner, base))
    rotate_half = getattr(sys.modules[type(base).__module__], "rotate_half", None)
    if spec.name != "rope" or rotate_half is None:
        return spec
    half = rotate_half(torch.arange(4.0, device="cpu")).tolist() == [-2.0, -3.0, 0.0, 1.0]
    own = {k: v for k, v in base.config.rope_parameters.items() if v is not None}
    kind, theta = own.pop("rope_type", "default"), own.pop("rope_theta", 10_000.0)
    if kind != "proportional" and own.pop("partial_rotary_factor", 1.0) != 1:
        raise ValueError("this model rotates a part of each head, and rope all of it")
    options = {"layout": "half" if half else "interleaved", "base": float(theta)}
    if kind != "default" and "scaling" not in spec.options:
        if kind in ("yarn", "longrope") and "factor" not in own:
            trained = own["original_max_position_embeddings"]
            own["factor"] = base.config.max_position_embeddings / trained
        options |= {"scaling": kind, **own}
    return replace(spec, options={**options, **spec.options})


def _begin(base: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Before the decoder: positions, `prepare` and `embed`. The layers get a Step."""
    given = dict(zip(inspect.signature(base.forward).parameters, args, strict=False)) | kwargs
    ids, x = given.pop("input_ids", None), given.pop("inputs_embeds", None)
    if (ids is None) == (x is None):
        raise ValueError("expected either input_ids or inputs_embeds")
    x = base.get_input_embeddings()(ids) if x is None else x
    encoding, cache, wanted = base.encoding, given.get("past_key_values"), given.get("use_cache")
    replayed = base.training and getattr(base, "gradient_checkpointing", False)
    if wanted is None:
        wanted = base.config.use_cache and not base.training and encoding.prefix_stable
    if replayed:
        wanted, cache = False, None
    elif wanted and cache is None:
        cache = DynamicCache(config=base.config)
    memory = None if cache is None else memory_of(cache, encoding, base.config.num_hidden_layers)
    past = 0 if memory is None else memory.get_seq_length()
    pos = _positions(given.get("attention_mask"), given.get("position_ids"), past, x)
    if memory is not None:
        pos, ids = memory.extend(pos.expand(len(x), -1), ids)
    memo = Memo() if memory is None else memory.memo
    ctx = Context(pos=pos, ids=ids, x=x, n_new=x.shape[1], memo=memo)
    length = None if memory is None else getattr(base.config, NAME)["length"]
    ctx = encoding.prepare(replace(ctx, drawn=encoding.draw(ctx, length=length)))
    step = Step(encoding, ctx, cache, replayed)
    given |= {"past_key_values": cache, "use_cache": wanted, NAME: step}
    return (), {**given, "inputs_embeds": encoding.embed(x, ctx)}


def _positions(mask: Tensor | None, position_ids: Tensor | None, past: int, x: Tensor) -> Tensor:
    """(B|1, T) of the new tokens, -1 where attention_mask (B, S) says padding."""
    t = x.shape[1]
    mask = None if mask is None or mask.dim() != 2 else mask
    if mask is not None and mask.shape[1] != past + t:
        raise ValueError(
            f"attention_mask needs a column for each of {past + t} tokens, {past} of them in the "
            f"cache; it has {mask.shape[1]}"
        )
    if position_ids is not None:
        pos = position_ids
    elif mask is not None:
        pos = mask.long().cumsum(1)[:, -t:] - 1
    else:
        pos = torch.arange(past, past + t, device=x.device)[None]
    return pos if mask is None else pos.masked_fill(mask[:, -t:] == 0, -1)


def _enter(index: int, layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Before a layer: it gets its own ctx, and no cache, which `_attention` fills."""
    names = list(inspect.signature(layer.forward).parameters)
    given = dict(zip(names[1:], args[1:], strict=False)) | kwargs
    x = args[0] if args else given.pop(names[0])
    step = _step(given)
    past = "layer_past" if "layer_past" in names else "past_key_values"
    return (x,), {**given, past: None, NAME: replace(step, ctx=step.ctx.at(index, x))}


def _step(kwargs: dict[str, Any]) -> Step:
    step: Step | None = kwargs.get(NAME)
    if step is None:
        raise ValueError(
            "attention was told of no encoding: either the model was made from the config of a "
            "model that has one, and use(model, encoding) is missing, or its layers do not hand on "
            "keyword arguments, as those of Llama, Qwen and GPT-2 do"
        )
    return step


def _attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """New q (B, H, T, K), k and v (B, G, T, K) -> (B, T, H, K)."""
    step = _step(kwargs)
    encoding, ctx = step.encoding, step.ctx
    for name in ("softcap", "s_aux", "sliding_window"):
        if kwargs.get(name) is not None:
            raise ValueError(f"pezoo's attention has no {name}, which this model needs")
    if step.replayed:
        ctx = replace(ctx, memo=Memo(ctx.memo))
    own = encoding.shape.d_head**-0.5
    q = query if scaling in (None, own) else query * (scaling / own)
    q, k = (x.to(value.dtype) for x in encoding.transform(q, key, ctx))
    if step.cache is not None:
        k, value = step.cache.update(k, value, module.layer_idx)
    mask = attention_mask  # (B, 1, T, S) of the caller's own, or None: `attend` knows from ctx
    if mask is not None:
        mask = mask if mask.dtype == torch.bool else mask == 0
        blind = ~mask.any(3, keepdim=True)  # would get NaN
        mask = mask | blind & adapters.attention_mask(ctx)
    if not dropout:
        return attend(encoding, q, k, value, ctx, mask).transpose(1, 2), None
    k, value = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, value))

    def weights(logits: Tensor) -> Tensor:
        chosen = encoding.weights(logits, ctx)
        kept = logits.softmax(-1) if chosen is None else chosen
        return nn.functional.dropout(kept, dropout)

    bias = encoding.bias(q, k, ctx)
    bias = None if bias is None else bias.to(value.dtype)
    mask = adapters.attention_mask(ctx) if mask is None else mask
    return eager.attend(q, k, value, bias, mask, own, weights).transpose(1, 2), None
