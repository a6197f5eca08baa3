"""Any encoding in a model of transformers 5, in one line.

    model = use(LlamaForCausalLM(config), "prism(cursors=2)")
    model.save_pretrained(folder)  # the encoding's weights too
    model = load(folder)

The encoding replaces the model's own positions: rotations turn by no angle, tables of positions and
biases become zero. Attention runs through `pezoo.adapters.attend`, registered with transformers as
"pezoo": eager where the model's own was eager, otherwise fused; masks are those of the model. The
cache holds transformed keys, and one more layer for the encoding's state, so that reordering or
cropping the cache applies to both. Where later tokens change earlier keys it holds embeddings.
"""

import copy
import inspect
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, AutoConfig, PreTrainedModel
from transformers.masking_utils import sdpa_mask

from pezoo.adapters.layer import check_length
from pezoo.adapters.stacks import Stack, chosen, stacks_of
from pezoo.adapters.transformers_pass import (
    COLUMNS,
    NAME,
    Placement,
    attention,
    begin,
    enter,
    finish,
    turn,
)
from pezoo.base import Context, Encoding, Pass, Shape
from pezoo.functional import encodings_in, parameter_groups
from pezoo.registry import entries, expand, make, parse, whole
from pezoo.spec import Spec

AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, sdpa_mask)
Factory = Callable[[Shape], Encoding]
Slots = Callable[[Tensor], Tensor]
ROTATION = {"layout", "base", "rope_parameters"}  # options that default to the model's own rotation
PAIRS = {(-2.0, -3.0, 0.0, 1.0): "half", (-1.0, 0.0, -3.0, 2.0): "interleaved"}  # of 0, 1, 2, 3


def use(
    model: PreTrainedModel,
    encoding: str | Factory,
    length: int | None = None,
    slots: Slots | None = None,
    layers: str | None = None,
) -> PreTrainedModel:
    """Replace a model's positions, or those of an earlier encoding; returns the model.

    `encoding` is a text as `pezoo.make` takes it, or a class such as RoPE. It becomes the module
    `encoding` of the model's decoder and of its encoder, with the model's device and dtype.
    Shape.train_len is max_position_embeddings. `length` is the number of tokens planned for
    generation, for encodings that draw random positions or read the length. `slots`, for encodings
    that read ctx.slots, computes them from the ids (B, S) of all tokens so far. `layers` is one of
    the model's layer types, as "full_attention": other layers keep the model's own positions.

    `rope` leaves a model with its own rotation as it is, whatever that rotation is. What else turns
    pairs of q and k (`rope(...)`, `rerope`, `window:xpos`, ...) uses the model's layout of pairs,
    base and rope_parameters unless the text has its own, so that pretrained weights can be used.
    Texts of up to `encoding.rope_within` tokens then get the model's own logits; where that is 0
    or None, as in `axial_rope`, whose frequencies are its own, the model has to be trained.

    Windows, attention sinks, soft caps and layers without attention stay as they are, and
    cross-attention, which compares content alone.

    Example: `use(model, "rope(rope_parameters=yarn(factor=4))")` reads texts four times as long as
    `model` was trained for; `use(model, "nope")` and a short training at the old length is DroPE.

    Pass left padding by attention_mask, packed documents by position_ids. Train with the groups of
    `pezoo.functional.parameter_groups(model)`, or with `EncodingTrainer`.

    Errors: ValueError for a length below 1, unknown layers and missing slots; for a model without
    transformers' AttentionInterface, or with positions inside its attention; for an encoder, where
    the encoding needs a causal mask; where what turns pairs cannot reproduce the model's rotation
    (which is not checked for a class: `use(model, RoPE)`); and for a model saved with an encoding
    that has weights: `load` it.
    """
    _check_arguments(model, encoding, length)
    saved = getattr(model.config, NAME, None)
    if saved and saved.get("weights", True) and not encodings_in(model):
        text = saved.get("encoding")
        call = "load(folder)" if text else "load(folder, TheClass)"
        raise ValueError(
            f"this model was saved with {text or 'a class of encoding'}, whose weights "
            f"from_pretrained does not load: use pezoo.adapters.transformers.{call}, or, to "
            f"start from initial weights, set model.config.{NAME} = None"
        )
    return _put(model, encoding, length, slots, layers)


def _check_arguments(model: object, encoding: object, length: object) -> None:
    if isinstance(encoding, Encoding):
        raise ValueError(
            f"encoding must be a text or a class, {type(encoding).__name__}, not an instance"
        )
    if not isinstance(model, PreTrainedModel):
        raise ValueError(
            f"expected a model of transformers, got a {type(model).__name__}: call use before "
            "what wraps a model, as peft does"
        )
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
        _put(self, text, saved.get("length"), slots, saved.get("layers"))

    # With another __module__, transformers takes it for custom code and converts no keys.
    body = {"__init__": build, "__module__": parent.__module__}
    cls: Any = type(parent.__name__, (parent,), body)
    found = cls.from_pretrained(folder, **options)
    model = found[0] if isinstance(found, tuple) else found  # with output_loading_info
    model.__class__ = parent  # which can be pickled
    for loaded, stack in zip(encodings_in(model), stacks_of(model), strict=True):
        made = type(loaded).__name__
        if saved.get("class", made) != made:
            raise ValueError(f"{folder} was saved with {saved['class']}, not with {made}")
        kept, (fresh, placement) = loaded.state_dict(), _make(stack, text, saved.get("layers"))
        _attach(stack, placement)  # tables that from_pretrained made anew
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
            if penalty is not None and penalty.requires_grad:  # not of one that is frozen
                loss = loss + penalty / share
        return (loss, outputs) if return_outputs else loss


def _put(
    model: PreTrainedModel,
    encoding: str | Factory,
    length: int | None,
    slots: Slots | None,
    layers: str | None,
) -> PreTrainedModel:
    config = model.config
    made = [(stack, *_make(stack, encoding, layers)) for stack in stacks_of(model)]
    if made[0][1].needs_slots and slots is None:
        raise ValueError(
            f"{made[0][1].name} reads slots: pass slots=FUNCTION, which computes them from ids "
            "(B, S)"
        )
    if not any(hasattr(stack.module, "pezoo_placement") for stack, *_ in made):
        config = _own_config(model)
    earlier, own = getattr(config, NAME, None) or {}, config._attn_implementation
    saved = {
        "encoding": encoding if isinstance(encoding, str) else None,
        "length": length,
        "class": type(made[0][1]).__name__,
        "weights": bool(made[0][1].state_dict()),
        "attention": earlier.get("attention") if own == NAME else own,
        "layers": layers,
    }
    for stack, one, placement in made:
        placement.name = encoding if isinstance(encoding, str) else type(one).__qualname__
        placement.length, placement.eager = length, saved["attention"] == "eager"
        _attach(stack, placement)
        stack.module.encoding = one.to(model.device, model.dtype).train(model.training)
        stack.module.slots_of, stack.module.progress = slots, None
    setattr(config, NAME, saved)
    config.attn_implementation = NAME  # saved, so that from_pretrained alone gives no other model
    model.set_attn_implementation(NAME)
    return model


def _attach(stack: Stack, placement: Placement) -> None:
    """Hook a stack and its layers, and remove its tables of positions."""
    base = stack.module
    if placement.encoded:
        for owner, name, table in list(stack.tables()):
            _remove(stack, owner, name, table)
    if hasattr(base, "pezoo_placement"):
        earlier, told = base.pezoo_placement, ("name", "length", "eager")
        kept = {key: getattr(earlier, key) for key in told if not getattr(placement, key)}
        vars(earlier).update({**vars(placement), **kept})
        return
    base.pezoo_placement = placement
    hook = partial(begin, tuple(stack.names), placement)
    base.register_forward_pre_hook(hook, with_kwargs=True)
    base.register_forward_hook(partial(finish, placement), always_call=True)
    for index, layer in enumerate(stack.layers):
        hook = partial(enter, index, tuple(inspect.signature(layer.forward).parameters), placement)
        layer.register_forward_pre_hook(hook, with_kwargs=True)
        for rotary in stack.rotary().values():
            if any(x is rotary for x in layer.modules()):
                rotary.register_forward_hook(partial(turn, placement, index))
        for module in stack.attentions[index]:
            module.pezoo_placement = placement
    for module in stack.crosses:
        module.pezoo_crosses = True


def _remove(stack: Stack, owner: Any, name: str, table: Any) -> None:
    """Replace a table of positions by zero."""
    if isinstance(table, Unplaced):
        return
    inside = any(owner is x for layer in stack.layers for x in layer.modules())
    if inside or (isinstance(table, nn.Module) and isinstance(owner, nn.ModuleList)):
        raise ValueError(
            f"{type(stack.module).__name__} has positions inside its attention ({name}), which "
            "cannot be taken out: take an architecture with rotary_emb or a table of positions"
        )
    if isinstance(table, nn.Module):
        setattr(owner, name, Unplaced())
    else:
        with torch.no_grad():
            table.zero_()
        table.requires_grad_(False)


def _make(stack: Stack, encoding: str | Factory, layers: str | None) -> tuple[Encoding, Placement]:
    """Build on the CPU in float32, because from_pretrained sets torch's device and dtype."""
    indices = [x.layer_idx for each in stack.attentions for x in each if hasattr(x, "layer_idx")]
    placement = Placement(
        name="", length=None, encoded=chosen(stack, layers), causal=stack.causal,
        n_layers=max((i for i in indices if i is not None), default=0) + 1,
        late=stack.late, passes_on=stack.passes_on,
    )  # fmt: skip
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)  # some initialisers support no other
    try:
        with torch.device("cpu"):
            made = (
                _made(stack, parse(encoding), layers, placement)
                if isinstance(encoding, str)
                else encoding(stack.shape())
            )
    finally:
        torch.set_default_dtype(dtype)
    if made.needs_scale or made.oracle:
        raise ValueError(
            f"{made.name} needs the task or its scale, which transformers does not pass"
        )
    if made.causal_only and not stack.causal:
        raise ValueError(
            f"{made.name} needs a causal mask, which {type(stack.module).__name__} has not: take "
            "an encoding that reads distances in both directions, such as alibi or rope"
        )
    return made, placement


def _made(stack: Stack, spec: Spec, layers: str | None, placement: Placement) -> Encoding:
    """Make an encoding by its text, for this stack. Sets placement's columns, or no layers."""
    shape, plain = stack.shape(), spec.name == "rope" and not spec.wrapped
    if not stack.rotary():
        return make(spec, shape)
    if plain and not spec.options:
        placement.encoded = frozenset()
        try:
            return make(as_trained(spec, stack.module, layers), shape)
        except ValueError:  # of a rotation that rope lacks
            return make(spec, shape)
    trained = as_trained(spec, stack.module, layers)
    if plain and "layout" not in spec.options:
        own = as_trained(Spec("rope"), stack.module, layers)
        for placement.columns in COLUMNS:
            sized = _sized(stack, own, placement.columns, layers)
            if sized is not None:
                return make(trained, sized)
        placement.columns = ""
    made = make(trained, shape)
    check_rotation(made, stack.module, layers)
    return made


def _sized(stack: Stack, own: Spec, columns: str, layers: str | None) -> Shape | None:
    """Return a shape of the width that the model turns, if cosines lie in these columns."""
    try:
        rotary = next(iter(stack.rotary().values()))
        pos = torch.arange(3, 8)[None]
        kind = [layers] if "layer_type" in inspect.signature(rotary.forward).parameters else []
        found = type(rotary)(stack.module.config)(torch.zeros(1), pos, *kind)
        cos = found.real if isinstance(found, Tensor) else found[0]
        shape = stack.shape().replaced(d_head=cos.shape[-1] * (2 if columns == "once" else 1))
        made: Any = make(own, shape)
        ctx = made.prepare(Pass.of(Context(pos=pos), drawn=made.draw(Context(pos=pos))))
        want = COLUMNS[columns](made.rotation(ctx)[:, 0].real)
        return shape if torch.allclose(cos.float(), want, atol=1e-5) else None
    except (TypeError, ValueError, RuntimeError, AttributeError):
        return None


def _own_config(model: PreTrainedModel) -> Any:
    """Give the model its own copy of the config, which other models may share."""
    shared, own = model.config, copy.deepcopy(model.config)
    for module in model.modules():
        if getattr(module, "config", None) is shared:
            module.config = own
    return own


class Unplaced(nn.Module):
    """Replaces a table of positions: zero."""

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        given = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)]
        device = given[0].device if given else None
        return torch.zeros(1, 1, 1, dtype=torch.int8, device=device)


def _rotates_everywhere(base: Any) -> bool:
    return all(getattr(module, "use_rope", True) for module in base.modules())


def as_trained(spec: Spec, base: Any, layers: str | None = None) -> Spec:
    """Return the spec with the model's own rotation as default, for encodings that rotate."""
    spec = expand(spec)
    entry = entries().get(spec.name)
    if entry is None or getattr(base.config, "rope_parameters", None) is None:
        return spec
    cls = entry.load()
    if cls.wraps is not None:
        return whole(spec).over(lambda inner: as_trained(inner, base, layers))
    if not {*inspect.signature(cls).parameters} >= ROTATION:
        return spec
    own = _parameters(base, layers)
    if own is None:  # see check_rotation
        return spec
    if own.get("rope_type") != "proportional":
        own.pop("partial_rotary_factor", None)  # see check_rotation
    if own.get("rope_type") == "dynamic":
        own.pop("original_max_position_embeddings", None)  # transformers does not read it
    theta = float(own.pop("rope_theta", 10_000.0))
    options = {"layout": _layout(base) or "half", "base": theta, "rope_parameters": own}
    return replace(spec, options={**options, **spec.options})


def _parameters(base: Any, layers: str | None) -> dict[str, Any] | None:
    """Return the model's rope_parameters; None if layers have several and it is not said which."""
    found = base.config.rope_parameters
    if found and all(isinstance(x, dict) for x in found.values()):
        found = found.get(layers)
    return None if found is None else {k: v for k, v in found.items() if v is not None}


def check_rotation(encoding: Encoding, base: Any, layers: str | None = None) -> None:
    """Check that an encoding that turns pairs can take over a model's rotation.

    Errors: ValueError if it cannot.
    """
    turning = [
        one
        for one in encoding.modules()
        if isinstance(one, Encoding) and one.rope_within is not None and one.wraps is None
    ]
    if not turning or getattr(base.config, "rope_parameters", None) is None:
        return
    name, own = turning[0].name or type(turning[0]).__name__, _parameters(base, layers)
    for one in turning:
        missing = ROTATION - {*inspect.signature(type(one)).parameters}
        if missing:
            raise ValueError(
                f"{one.name} cannot take over this model's {', '.join(sorted(missing))}"
            )
    if not _rotates_everywhere(base):
        raise ValueError(
            f"some layers of this model do not rotate, but {name} rotates in all: use rope, which "
            "keeps the model's own"
        )
    types = {*(getattr(base.config, "layer_types", None) or ())}
    types |= set() if own is not None else {*base.config.rope_parameters}
    if own is None or (len(types) > 1 and layers is None):
        raise ValueError(
            f"layers of several types may rotate differently: pass layers=, one of "
            f"{', '.join(sorted(types))}"
        )
    if not _layout(base):
        raise ValueError("this model's rotation is neither of pairs (2m, 2m+1) nor (m, m + K/2)")
    if own.get("rope_type") != "proportional" and own.get("partial_rotary_factor") not in (None, 1):
        raise ValueError(
            f"this model rotates a part of each head, but {name} all of it: use rope, which keeps "
            "the model's own"
        )


def _layout(base: Any) -> str | None:
    """Return how the model pairs columns; None if it is neither of `PAIRS`."""
    rotate_half = getattr(sys.modules[type(base).__module__], "rotate_half", None)
    turned = () if rotate_half is None else rotate_half(torch.arange(4.0, device="cpu")).tolist()
    return PAIRS.get(tuple(turned))
