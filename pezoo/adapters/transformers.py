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
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers import AttentionInterface, AutoConfig, DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer

from pezoo.adapters.transformers_pass import NAME, attention, begin, enter
from pezoo.base import Encoding, Shape
from pezoo.registry import make
from pezoo.spec import Spec, parse

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
        base.register_forward_pre_hook(begin, with_kwargs=True)
        for index, layer in enumerate(layers):
            layer.register_forward_pre_hook(partial(enter, index), with_kwargs=True)
    setattr(base, place, Unturned() if place == "rotary_emb" else Unplaced())
    base.encoding = made.to(model.device, model.dtype).train(model.training)
    text = encoding if isinstance(encoding, str) else None
    setattr(config, NAME, {"encoding": text, "length": length})
    AttentionInterface.register(NAME, attention)
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
