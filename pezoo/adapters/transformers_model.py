"""Check a model of transformers, and replace its own positions."""

from __future__ import annotations

import copy
import inspect
import sys
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer

from pezoo.registry import entries
from pezoo.spec import Spec, parse

ROTATION = {"layout", "base", "scaling"}  # options that default to the model's own rotation
PAIRS = {(-2.0, -3.0, 0.0, 1.0): "half", (-1.0, 0.0, -3.0, 2.0): "interleaved"}  # of 0, 1, 2, 3


class Unturned(nn.Module):
    """Replaces a rotary embedding: cos 1 and sin 0, as wide as the model's own."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, x: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        return x.new_ones(1, 1, self.width), x.new_zeros(1, 1, self.width)


class Unplaced(nn.Module):
    """Replaces a table of positions: zero."""

    def forward(self, position_ids: Tensor) -> Tensor:
        return 0 * position_ids[..., None]


def layers_of(model: PreTrainedModel) -> Any:
    """Return the layers of a causal decoder. Errors: ValueError for any other model."""
    config, base = model.config, model.base_model
    layers = getattr(base, "layers", None) or getattr(base, "h", None)
    whole = {type(layer) for layer in DynamicCache(config=config).layers} == {DynamicLayer}
    whole = whole and not getattr(config, "add_cross_attention", False)
    if layers is None or not (hasattr(base, "rotary_emb") or hasattr(base, "wpe")) or not whole:
        raise ValueError(
            f"{type(model).__name__} is not supported: expected a decoder like Llama, Qwen or "
            "GPT-2, with rotary_emb or wpe, and layers that all attend to the whole text"
        )
    obstacle = _obstacle(model, layers)
    if obstacle:
        raise ValueError(f"{type(model).__name__} cannot take an encoding: {obstacle}")
    return layers


def _obstacle(model: PreTrainedModel, layers: Any) -> str | None:
    if not all(getattr(module, "is_causal", True) for module in layers.modules()):
        return "its attention is not causal"
    if getattr(model.config, "qk_rope_head_dim", None):
        return "its heads have separate columns for positions (latent attention)"
    if not model._can_set_attn_implementation():
        return "its attention is not one of transformers' AttentionInterface"
    return None


def unturn(base: Any) -> None:
    """Replace the model's own positions by the identity."""
    if not hasattr(base, "rotary_emb"):
        base.wpe = Unplaced()
    elif not isinstance(base.rotary_emb, Unturned):
        own = copy.deepcopy(base.rotary_emb).to_empty(device="cpu")  # only the shape is needed
        place = torch.zeros(1, 1, device="cpu")
        turn = own(place[..., None], place.long())
        if not isinstance(turn, tuple) or turn[0].is_complex():
            raise ValueError(
                f"{type(own).__name__} does not return cosines and sines, as pezoo needs"
            )
        base.rotary_emb = Unturned(turn[0].shape[-1])


def as_trained(spec: Spec, base: Any) -> Spec:
    """Return the spec with the model's own rotation as default, for encodings that rotate.

    Errors: ValueError if the encoding cannot reproduce the model's rotation.
    """
    entry = entries().get(spec.name)
    if entry is None or not hasattr(base, "rotary_emb"):
        return spec
    cls = entry.load()
    if cls.wraps is not None:
        return replace(spec, inner=as_trained(spec.inner or parse(cls.wraps), base))
    if not {*inspect.signature(cls).parameters} >= ROTATION:
        return spec
    if any(not getattr(module, "use_rope", True) for module in base.modules()):
        raise ValueError(f"some layers of this model do not rotate, but {spec.name} rotates in all")
    rotate_half = getattr(sys.modules[type(base).__module__], "rotate_half", None)
    turned = () if rotate_half is None else rotate_half(torch.arange(4.0, device="cpu")).tolist()
    if tuple(turned) not in PAIRS:
        raise ValueError("this model's rotation is neither of pairs (2m, 2m+1) nor (m, m + K/2)")
    own = {k: v for k, v in base.config.rope_parameters.items() if v is not None}
    options = {"layout": PAIRS[tuple(turned)], "base": float(own.pop("rope_theta", 10_000.0))}
    kind = own.pop("rope_type", "default")
    if kind != "proportional" and own.pop("partial_rotary_factor", 1.0) != 1:
        raise ValueError(f"this model rotates a part of each head, but {spec.name} all of it")
    if kind != "default" and "scaling" not in spec.options:
        options |= {"scaling": kind, **_scaling(kind, own, base.config.max_position_embeddings)}
    return replace(spec, options={**options, **spec.options})


def _scaling(kind: str, own: dict[str, Any], longest: int) -> dict[str, Any]:
    """Return the model's options of a scaling, as encodings take them."""
    for name in ("mscale", "mscale_all_dim"):
        if name in own:
            raise ValueError(f"this model's {kind} has {name}, which pezoo does not support")
    if own.get("attention_factor") == 0:
        raise ValueError("this model's attention_factor is 0, which would make all logits 0")
    if kind == "dynamic":
        own.pop("original_max_position_embeddings", None)  # transformers reads `longest` instead
    if kind in ("yarn", "longrope") and "factor" not in own:
        own["factor"] = longest / own["original_max_position_embeddings"]
    return own
