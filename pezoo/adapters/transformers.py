"""Any encoding in a causal language model of transformers 5, in one line.

    model = use(LlamaForCausalLM(config), "prism(cursors=2)")
    model.save_pretrained(folder)  # the encoding's weights too
    model = load(folder)

The encoding replaces the model's own positions: a rotation becomes the identity, a table of
positions zero. Attention runs through `pezoo.adapters.attend`, registered with transformers as
"pezoo". The cache holds transformed keys, and one more layer for the encoding's state, so that
reordering or cropping the cache applies to both.
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
    """Replace a model's positions, or those of an earlier encoding; returns the model.

    `encoding` is a text as `pezoo.make` takes it, or a class such as RoPE. It becomes the module
    `encoding` of the model's decoder, with the model's device and dtype. Shape.train_len is
    max_position_embeddings. `length` is the number of tokens planned for generation with a cache,
    for encodings that draw random positions. `rope` uses the model's layout of pairs, base and, if
    the text has none, scaling, so that pretrained weights can be used.

    Example: `use(model, "rope(scaling=yarn,factor=4)")` reads texts four times as long as `model`
    was trained for; `use(model, "nope")` and a short training at the old length is DroPE.

    Pass left padding by attention_mask, packed documents by position_ids. Parameters with optimiser
    settings of their own are in `model.base_model.encoding.param_groups()`.

    Errors: ValueError for a length below 1; for a model that is not a causal decoder like Llama,
    Qwen or GPT-2, or has windowed attention; for `rope` where it cannot reproduce the model's
    rotation (which is not checked for a class: `use(model, RoPE)`); and for a model saved with an
    encoding: `load` it.
    """
    _check_arguments(model, encoding, length)
    saved = getattr(model.config, NAME, None)
    if saved and not hasattr(model.base_model, "encoding"):
        text = saved.get("encoding")
        call = "load(folder)" if text else "load(folder, TheClass)"
        raise ValueError(
            f"this model was saved with {text or 'a class of encoding'}, whose weights "
            f"from_pretrained does not load: use pezoo.adapters.transformers.{call}, or, to "
            f"start from initial weights, set model.config.{NAME} = None"
        )
    return _put(model, encoding, length)


def _check_arguments(model: object, encoding: object, length: object) -> None:
    if isinstance(encoding, Encoding):
        raise ValueError(
            f"encoding must be a text or a class, {type(encoding).__name__}, not an instance"
        )
    if not isinstance(model, PreTrainedModel):
        raise ValueError(f"expected a model of transformers, got a {type(model).__name__}")
    if length is not None and not (type(length) is int and length > 0):
        raise ValueError(f"length must be None or a whole number, at least 1; got {length!r}")


def load(folder: str, encoding: Factory | None = None, **options: Any) -> Any:
    """Load a model that was saved after `use`, with the weights of its encoding.

    `options` are those of from_pretrained. `encoding` is the class, if `use` was called with one.

    Errors: ValueError for a folder without an encoding.
    """
    config = AutoConfig.from_pretrained(folder)
    saved = getattr(config, NAME, None) or {}
    text = encoding or saved.get("encoding")
    if not text and saved:
        raise ValueError(f"{folder} was saved with a class of encoding: load(folder, TheClass)")
    if not text:
        raise ValueError(
            f"{folder} has no encoding: load it with from_pretrained and call use(...)"
        )
    parent: Any = getattr(transformers, config.architectures[0])

    def build(self: Any, config: Any, *args: Any, **more: Any) -> None:
        parent.__init__(self, config, *args, **more)
        _put(self, text, saved.get("length"))

    cls: Any = type(parent.__name__, (parent,), {"__init__": build})
    model = cls.from_pretrained(folder, **options)
    loaded = model.base_model.encoding
    kept, fresh = loaded.state_dict(), _make(model, text)
    for name, buffer in fresh.named_buffers():
        if name not in kept:  # not saved, and left empty by from_pretrained
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
    """Build on the CPU in float32, because from_pretrained sets torch's device and dtype."""
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
    torch.set_default_dtype(torch.float32)  # some initialisers support no other
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
            f"{made.name} needs the scale of the instance, which transformers does not pass"
        )
    return made


def _own_config(model: PreTrainedModel) -> Any:
    """Give the model its own copy of the config, which other models may share."""
    shared, own = model.config, copy.deepcopy(model.config)
    for module in model.modules():
        if getattr(module, "config", None) is shared:
            module.config = own
    return own
