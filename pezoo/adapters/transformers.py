"""Any encoding in a causal language model of transformers 5, in one line.

    model = use(LlamaForCausalLM(config), "prism(cursors=2)")
    model.save_pretrained(folder)  # the encoding's weights too
    model = load(folder)

The encoding replaces the model's own positions: a rotation becomes the encoding's if that only
rotates, otherwise the identity; a table of positions becomes zero. Attention runs through
`pezoo.adapters.attend`, registered with transformers as "pezoo": eager where the model's own was
eager, otherwise fused. The cache holds transformed keys, and one more layer for the encoding's
state, so that reordering or cropping the cache applies to both.
"""

import copy
import inspect
import math
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

from pezoo.adapters.layer import check_length
from pezoo.adapters.transformers_pass import NAME, attention, begin, enter
from pezoo.base import Context, Encoding, Pass, Shape
from pezoo.functional import encodings_in, parameter_groups
from pezoo.registry import entries, expand, make, parse, whole
from pezoo.spec import Spec

AttentionInterface.register(NAME, attention)
Factory = Callable[[Shape], Encoding]
Slots = Callable[[Tensor], Tensor]
ROTATION = {"layout", "base", "rope_parameters"}  # options that default to the model's own rotation
COLUMNS: dict[str, Callable[[Tensor], Tensor]] = {  # of cosines, in models of transformers
    "half": lambda x: torch.cat([x, x], -1),
    "interleaved": lambda x: x.repeat_interleave(2, -1),
}
PAIRS = {(-2.0, -3.0, 0.0, 1.0): "half", (-1.0, 0.0, -3.0, 2.0): "interleaved"}  # of 0, 1, 2, 3


def use(
    model: PreTrainedModel,
    encoding: str | Factory,
    length: int | None = None,
    slots: Slots | None = None,
) -> PreTrainedModel:
    """Replace a model's positions, or those of an earlier encoding; returns the model.

    `encoding` is a text as `pezoo.make` takes it, or a class such as RoPE. It becomes the module
    `encoding` of the model's decoder, with the model's device and dtype. Shape.train_len is
    max_position_embeddings. `length` is the number of tokens planned for generation with a cache,
    for encodings that draw random positions. `slots`, for encodings that read ctx.slots, computes
    them from the ids (B, S) of all tokens so far. What turns pairs of q and k (`rope`, `rerope`,
    `window:xpos`, ...) uses the model's layout of pairs, base and rope_parameters unless the text
    has its own, so that pretrained weights can be used. Texts of up to `encoding.rope_within`
    tokens then get the model's own logits.

    Example: `use(model, "rope(rope_parameters=yarn(factor=4))")` reads texts four times as long as
    `model` was trained for; `use(model, "nope")` and a short training at the old length is DroPE.

    Pass left padding by attention_mask, packed documents by position_ids. Train with the groups of
    `pezoo.functional.parameter_groups(model)`, or with `EncodingTrainer`.

    Errors: ValueError for a length below 1, and for missing slots; for a model that is not a causal
    decoder like Llama, Qwen or GPT-2, or has windowed attention; where what turns pairs cannot
    reproduce the model's rotation (which is not checked for a class: `use(model, RoPE)`); and for a
    model saved with an encoding that has weights: `load` it.
    """
    _check_arguments(model, encoding, length)
    saved = getattr(model.config, NAME, None)
    if saved and saved.get("weights", True) and not hasattr(model.base_model, "encoding"):
        text = saved.get("encoding")
        call = "load(folder)" if text else "load(folder, TheClass)"
        raise ValueError(
            f"this model was saved with {text or 'a class of encoding'}, whose weights "
            f"from_pretrained does not load: use pezoo.adapters.transformers.{call}, or, to "
            f"start from initial weights, set model.config.{NAME} = None"
        )
    return _put(model, encoding, length, slots)


def _check_arguments(model: object, encoding: object, length: object) -> None:
    if isinstance(encoding, Encoding):
        raise ValueError(
            f"encoding must be a text or a class, {type(encoding).__name__}, not an instance"
        )
    if not isinstance(model, PreTrainedModel):
        raise ValueError(f"expected a model of transformers, got a {type(model).__name__}")
    check_length(length)


def load(
    folder: str, encoding: Factory | None = None, slots: Slots | None = None, **options: Any
) -> Any:
    """Load a model that was saved after `use`, with the weights of its encoding.

    `options` are those of from_pretrained. `encoding` is the class, if `use` was called with one,
    and `slots` the function that it was called with.

    Errors: ValueError for a folder without an encoding, or with another than `encoding`.
    """
    config = AutoConfig.from_pretrained(folder)
    saved = getattr(config, NAME, None) or {}
    text = encoding or saved.get("encoding")
    if not text:
        how = "load it with from_pretrained and call use(...)"
        how = "it was saved with a class, call load(folder, TheClass)" if saved else how
        raise ValueError(f"{folder} has no encoding by name: {how}")
    parent: Any = getattr(transformers, config.architectures[0])

    def build(self: Any, config: Any, *args: Any, **more: Any) -> None:
        parent.__init__(self, config, *args, **more)
        _put(self, text, saved.get("length"), slots)

    # With another __module__, transformers takes it for custom code and converts no keys.
    body = {"__init__": build, "__module__": parent.__module__}
    cls: Any = type(parent.__name__, (parent,), body)
    found = cls.from_pretrained(folder, **options)
    model = found[0] if isinstance(found, tuple) else found  # with output_loading_info
    model.__class__ = parent  # which can be pickled
    loaded = model.base_model.encoding
    made = type(loaded).__name__
    if saved.get("class", made) != made:
        raise ValueError(f"{folder} was saved with {saved['class']}, not with {made}")
    kept, fresh = loaded.state_dict(), _make(model, text)
    for name, buffer in fresh.named_buffers():
        if name not in kept:  # not saved, and left empty by from_pretrained
            loaded.get_buffer(name).copy_(buffer)
    return found


class EncodingTrainer:
    """A mixin that gives transformers' Trainer the encoding's penalty and optimiser settings.

    It also tells the encoding the progress of training, for those that read it, as PRISM's noise
    and `rope(drop=0.7)` do. A loop of your own sets `model.base_model.progress`, from 0 to 1.

        class MyTrainer(EncodingTrainer, Trainer): ...

    Trainer alone would leave all of it out.
    """

    def create_optimizer(self, *args: Any, **kwargs: Any) -> Any:
        """Create Trainer's optimiser, with `parameter_groups` in place of its groups."""
        trainer: Any = self
        passed = trainer.optimizer
        optimiser = super().create_optimizer(*args, **kwargs)  # type: ignore[misc]
        if passed is None:
            groups = parameter_groups(trainer.model, optimiser.param_groups)
            optimiser.param_groups.clear()
            for group in groups:
                optimiser.add_param_group(group)
        return optimiser

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """Compute Trainer's loss, and add the penalty while training."""
        trainer: Any = self
        for part in model.modules():
            if hasattr(part, "slots_of"):  # a decoder that `use` changed
                part.progress = trainer.state.global_step / max(1, trainer.state.max_steps)
        found = super().compute_loss(model, inputs, True, num_items_in_batch)  # type: ignore[misc]
        loss, outputs = found
        summed = trainer.model_accepts_loss_kwargs and num_items_in_batch is not None
        summed = summed or trainer.compute_loss_func is not None  # over accumulated batches
        share = trainer.current_gradient_accumulation_steps if summed and model.training else 1
        for encoding in encodings_in(model) if model.training else ():
            penalty = encoding.penalty()
            loss = loss if penalty is None else loss + penalty / share
        return (loss, outputs) if return_outputs else loss


def _put(
    model: PreTrainedModel, encoding: str | Factory, length: int | None, slots: Slots | None
) -> PreTrainedModel:
    config, base = model.config, model.base_model
    layers = layers_of(model)
    made = _make(model, encoding)
    if made.needs_slots and slots is None:
        raise ValueError(
            f"{made.name} reads slots: pass slots=FUNCTION, which computes them from ids (B, S)"
        )
    unturn(base, made)
    if not hasattr(base, "encoding"):
        config = _own_config(model)
        hook = partial(begin, tuple(inspect.signature(base.forward).parameters))
        base.register_forward_pre_hook(hook, with_kwargs=True)
        for index, layer in enumerate(layers):
            hook = partial(enter, index, tuple(inspect.signature(layer.forward).parameters))
            layer.register_forward_pre_hook(hook, with_kwargs=True)
    base.encoding = made.to(model.device, model.dtype).train(model.training)
    base.slots_of, base.progress = slots, None
    earlier, own = getattr(config, NAME, None) or {}, config._attn_implementation
    saved = {
        "encoding": encoding if isinstance(encoding, str) else None,
        "length": length,
        "class": type(made).__name__,
        "weights": bool(made.state_dict()),
        "attention": earlier.get("attention") if own == NAME else own,
    }
    setattr(config, NAME, saved)
    config.attn_implementation = NAME  # saved, so that from_pretrained alone gives no other model
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
                check_rotation(made, base)
            else:
                made = encoding(shape)
    finally:
        torch.set_default_dtype(dtype)
    if made.needs_scale or made.oracle:
        raise ValueError(
            f"{made.name} needs the task or its scale, which transformers does not pass"
        )
    return made


def _own_config(model: PreTrainedModel) -> Any:
    """Give the model its own copy of the config, which other models may share."""
    shared, own = model.config, copy.deepcopy(model.config)
    for module in model.modules():
        if getattr(module, "config", None) is shared:
            module.config = own
    return own


class Rotation(nn.Module):
    """Replaces a rotary embedding: cos 1 and sin 0, as wide as the model's own.

    `columns` names how the model repeats cosines of K/2 pairs over K columns, if its own rotation
    does all that the encoding's `transform` would.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width, self.columns = width, ""

    def forward(self, x: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        return x.new_ones(1, 1, self.width), x.new_zeros(1, 1, self.width)

    def turn(self, encoding: Any, ctx: Context, x: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return the encoding's cosines and sines (B|1, T, K) for the model's own rotation."""
        if not self.columns:
            return None
        rotation, spread = encoding.rotation(ctx)[:, 0], COLUMNS[self.columns]
        return spread(rotation.real).to(x.dtype), spread(rotation.imag).to(x.dtype)

    def serve(self, encoding: Any, base: Any) -> None:
        """Set `columns` for an encoding, by comparing `transform` with the model's function."""
        self.columns = ""
        apply = getattr(sys.modules[type(base).__module__], "apply_rotary_pos_emb", None)
        takes = inspect.signature(base.layers[0].forward).parameters
        if not hasattr(encoding, "rotation") or apply is None or "position_embeddings" not in takes:
            return
        if not _rotates_everywhere(base):
            return
        ctx = Context(pos=torch.arange(3, 8, device="cpu")[None])
        ctx = encoding.prepare(Pass.of(ctx, drawn=encoding.draw(ctx, progress=0.0)))
        size = (1, 1, 5, encoding.shape.d_head)
        q = torch.arange(math.prod(size), device="cpu").float().sin().view(size)
        want = encoding.transform(q, q, ctx)[0]
        for self.columns in COLUMNS:
            cos_sin = self.turn(encoding, ctx, q)
            if cos_sin and torch.allclose(apply(q, q, *cos_sin)[0], want, atol=1e-5):
                return
        self.columns = ""


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


def unturn(base: Any, encoding: Encoding) -> None:
    """Replace the model's own positions by those of an encoding that only rotates, or by none."""
    if not hasattr(base, "rotary_emb"):
        base.wpe = Unplaced()
        return
    if not isinstance(base.rotary_emb, Rotation):
        own = copy.deepcopy(base.rotary_emb).to_empty(device="cpu")  # only the shape is needed
        place = torch.zeros(1, 1, device="cpu")
        turn = own(place[..., None], place.long())
        if not isinstance(turn, tuple) or turn[0].is_complex():
            raise ValueError(
                f"{type(own).__name__} does not return cosines and sines, as pezoo needs"
            )
        base.rotary_emb = Rotation(turn[0].shape[-1])
    base.rotary_emb.serve(encoding, base)


def _rotates_everywhere(base: Any) -> bool:
    return all(getattr(module, "use_rope", True) for module in base.modules())


def as_trained(spec: Spec, base: Any) -> Spec:
    """Return the spec with the model's own rotation as default, for encodings that rotate."""
    spec = expand(spec)
    entry = entries().get(spec.name)
    if entry is None or not hasattr(base, "rotary_emb"):
        return spec
    cls = entry.load()
    if cls.wraps is not None:
        return whole(spec).over(lambda inner: as_trained(inner, base))
    if not {*inspect.signature(cls).parameters} >= ROTATION:
        return spec
    own = {k: v for k, v in base.config.rope_parameters.items() if v is not None}
    if own.get("rope_type") != "proportional":
        own.pop("partial_rotary_factor", None)  # see check_rotation
    if own.get("rope_type") == "dynamic":
        own.pop("original_max_position_embeddings", None)  # transformers does not read it
    theta = float(own.pop("rope_theta", 10_000.0))
    options = {"layout": _layout(base) or "half", "base": theta, "rope_parameters": own}
    return replace(spec, options={**options, **spec.options})


def check_rotation(encoding: Encoding, base: Any) -> None:
    """Check that an encoding that turns pairs can take over a model's rotation.

    Errors: ValueError if it cannot.
    """
    turning = [
        one
        for one in encoding.modules()
        if isinstance(one, Encoding) and one.rope_within is not None and one.wraps is None
    ]
    if not turning or not hasattr(base, "rotary_emb"):
        return
    name, own = turning[0].name or type(turning[0]).__name__, base.config.rope_parameters
    for one in turning:
        missing = ROTATION - {*inspect.signature(type(one)).parameters}
        if missing:
            raise ValueError(
                f"{one.name} cannot take over this model's {', '.join(sorted(missing))}"
            )
    if not _rotates_everywhere(base):
        raise ValueError(f"some layers of this model do not rotate, but {name} rotates in all")
    if not _layout(base):
        raise ValueError("this model's rotation is neither of pairs (2m, 2m+1) nor (m, m + K/2)")
    if own.get("rope_type") != "proportional" and own.get("partial_rotary_factor") not in (None, 1):
        raise ValueError(f"this model rotates a part of each head, but {name} all of it")


def _layout(base: Any) -> str | None:
    """Return how the model pairs columns; None if it is neither of `PAIRS`."""
    rotate_half = getattr(sys.modules[type(base).__module__], "rotate_half", None)
    turned = () if rotate_half is None else rotate_half(torch.arange(4.0, device="cpu")).tolist()
    return PAIRS.get(tuple(turned))
