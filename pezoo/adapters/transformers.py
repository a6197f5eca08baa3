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
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import transformers
from transformers import AttentionInterface, AutoConfig, PreTrainedModel

from pezoo.adapters.transformers_model import as_trained, layers_of, unturn
from pezoo.adapters.transformers_pass import NAME, attention, begin, enter
from pezoo.base import Encoding, Shape
from pezoo.registry import make
from pezoo.spec import parse

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

    Errors: ValueError for a length below 1; for a model that is no causal decoder in the manner of
    Llama, Qwen or GPT-2, or whose attention has a window; for `rope` where it cannot turn as the
    model did (a class does not look at that: `use(model, RoPE)`); and for one that was saved with
    an encoding: `load` it.
    """
    _check_arguments(model, encoding, length)
    saved = getattr(model.config, NAME, None)
    if saved and not hasattr(model.base_model, "encoding"):
        text = saved.get("encoding")
        call = "load(folder)" if text else "load(folder, TheClass)"
        raise ValueError(
            f"this model was saved with {text or 'an encoding given as a class'}, whose weights "
            f"from_pretrained leaves out: pezoo.adapters.transformers.{call} restores them. To "
            f"begin anew, first set model.config.{NAME} = None"
        )
    return _put(model, encoding, length)


def _check_arguments(model: object, encoding: object, length: object) -> None:
    if isinstance(encoding, Encoding):
        raise ValueError(
            f"give a text or a class, {type(encoding).__name__}, not an instance of it"
        )
    if not isinstance(model, PreTrainedModel):
        raise ValueError(f"expected a model of transformers, was given a {type(model).__name__}")
    if length is not None and not (type(length) is int and length > 0):
        raise ValueError(f"length must be a whole number from 1 on, or None, was {length!r}")


def load(folder: str, encoding: Factory | None = None, **options: Any) -> Any:
    """A model that `use` has changed, from where save_pretrained put it, with the weights of both.

    `options` are those of from_pretrained. `encoding` is for a model whose encoding was given as a
    class. Errors: ValueError for a folder that names no encoding.
    """
    config = AutoConfig.from_pretrained(folder)
    saved = getattr(config, NAME, None) or {}
    text = encoding or saved.get("encoding")
    if not text and saved:
        raise ValueError(
            f"{folder} was saved with an encoding given as a class: load(folder, TheClass)"
        )
    if not text:
        raise ValueError(f"{folder} names no encoding: load it with from_pretrained and use(...)")
    parent: Any = getattr(transformers, config.architectures[0])

    def build(self: Any, config: Any, *args: Any, **more: Any) -> None:
        parent.__init__(self, config, *args, **more)
        _put(self, text, saved.get("length"))

    cls: Any = type(parent.__name__, (parent,), {"__init__": build})
    model = cls.from_pretrained(folder, **options)
    loaded = model.base_model.encoding
    kept, fresh = loaded.state_dict(), _make(model, text)
    for name, buffer in fresh.named_buffers():
        if name not in kept:  # in no file, and left empty by from_pretrained
            loaded.get_buffer(name).copy_(buffer)
    return model


def _put(model: PreTrainedModel, encoding: str | Factory, length: int | None) -> PreTrainedModel:
    config, base = model.config, model.base_model
    layers = layers_of(model)
    made = _make(model, encoding)
    unturn(base)
    if not hasattr(base, "encoding"):
        config = _own_config(model)
        base.register_forward_pre_hook(begin, with_kwargs=True)
        for index, layer in enumerate(layers):
            layer.register_forward_pre_hook(partial(enter, index), with_kwargs=True)
    base.encoding = made.to(model.device, model.dtype).train(model.training)
    text = encoding if isinstance(encoding, str) else None
    setattr(config, NAME, {"encoding": text, "length": length})
    AttentionInterface.register(NAME, attention)
    model.set_attn_implementation(NAME)
    return model


def _make(model: PreTrainedModel, encoding: str | Factory) -> Encoding:
    """On the CPU in float32, also within from_pretrained, which sets torch's device and dtype."""
    config, base = model.config, model.base_model
    heads = config.num_attention_heads
    shape = Shape(
        d_model=config.hidden_size,
        n_heads=heads,
        d_head=getattr(config, "head_dim", None) or config.hidden_size // heads,
        n_layers=config.num_hidden_layers,
        train_len=config.max_position_embeddings,
    )
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)  # some initialisers have no other
    try:
        with torch.device("cpu"):
            if isinstance(encoding, str):
                made = make(as_trained(parse(encoding), base), shape)
            else:
                made = encoding(shape)
    finally:
        torch.set_default_dtype(dtype)
    if made.needs_scale:
        raise ValueError(
            f"{made.name} reads the scale of the instance, which transformers does not know"
        )
    return made


def _own_config(model: PreTrainedModel) -> Any:
    """A copy of the config for this model: others may have been made from the same one."""
    shared, own = model.config, copy.deepcopy(model.config)
    for module in model.modules():
        if getattr(module, "config", None) is shared:
            module.config = own
    return own
