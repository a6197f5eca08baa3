"""The parts of a model of transformers that an encoding serves, found by what they are.

A stack is a decoder or an encoder: the module that gets ids and runs a list of layers.
"""

import inspect
import re
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from pezoo.base import Shape
from pezoo.spec import unknown

CROSS = re.compile("cross|encoder_attn|EncDec", re.I)  # in a path from the layer
ROTARY = re.compile("Rotary|Ro[Pp][Ee]")  # in the name of a class
TABLE = re.compile("(^|_)(pos|position|positions|positional|wpe|alibi)(_|$)")  # attributes
NO_TABLE = {"position_ids", "position_bias", "position_embedding_type", "max_position_embeddings"}
WIDTHS = "qk_head_dim", "head_dim", "attention_head_size", "key_value_proj_dim", "d_head"
HEADS = "num_attention_heads", "num_heads", "n_heads", "num_head", "n_head"
TURNS = ("position_embeddings", "freqs_cis", "rotary_pos_emb")  # arguments of layers


class Stack(NamedTuple):
    """A decoder or an encoder with its layers that attend, in order."""

    module: Any
    path: str
    layers: list[Any]
    attentions: list[list[Any]]  # of each layer, without cross-attention
    crosses: list[Any]

    @property
    def causal(self) -> bool:
        """True for a decoder."""
        modules = [x for layer in self.attentions for x in layer]
        told = getattr(self.module.config, "is_decoder", False) or "decoder" in self.path
        plain = "past_key_values" in self.names and not any(
            hasattr(x, "is_causal") for x in modules
        )
        return told or plain or any(getattr(x, "is_causal", False) for x in modules)

    @property
    def names(self) -> dict[str, Any]:
        """The arguments of the module's forward."""
        return dict(inspect.signature(self.module.forward).parameters)

    @property
    def passes_on(self) -> bool:
        """True if keyword arguments reach the layers."""
        return all(map(_takes_any, [self.module, *self.layers])) and not self.late

    @property
    def late(self) -> bool:
        """True if the token embeddings are not of the layers' width, or not of ids."""
        if "input_ids" not in self.names:
            return True
        table = getattr(self.module.get_input_embeddings(), "weight", None)
        return table is None or table.shape[-1] != self.width

    @property
    def width(self) -> int:
        config = self.module.config.get_text_config()
        return int(config.hidden_size)

    def types(self) -> list[str | None]:
        """Return config.layer_types for the layers that attend; None where it names none."""
        named = getattr(self.module.config.get_text_config(), "layer_types", None)
        each = list(_lists(self.module))
        if not named or len(each) != len(named):
            return [None] * len(self.layers)
        kept = {id(layer) for layer in self.layers}
        return [kind for kind, layer in zip(named, each, strict=True) if id(layer) in kept]

    def shape(self) -> Shape:
        config = self.module.config.get_text_config()
        first: Any = self.attentions[0][0]
        heads = _first(first, HEADS) or _first(config, HEADS)
        length = getattr(config, "max_position_embeddings", None)
        length = length or getattr(config, "n_positions", None) or 512
        width = _first(first, WIDTHS) or getattr(config, "head_dim", None) or self.width // heads
        return Shape(
            d_model=self.width, n_heads=heads, d_head=width, n_layers=len(self.layers),
            train_len=length,
        )  # fmt: skip

    def rotary(self) -> dict[str, Any]:
        """Return the modules that compute rotations, by path."""
        return {
            name: x
            for name, x in self.module.named_modules()
            if name and ROTARY.search(type(x).__name__) and not any(x.children())
        }

    def tables(self) -> Iterator[tuple[Any, str, Any]]:
        """Yield the owner, the name and the value of each table of positions."""
        for owner in self.module.modules():
            values = {**owner._modules, **owner._parameters, **owner._buffers}
            values |= {k: v for k, v in vars(owner).items() if isinstance(v, Tensor)}
            for name, x in values.items():
                named = TABLE.search(name) and not name.startswith("post") and x is not None
                turns = ROTARY.search(type(x).__name__)
                if named and name not in NO_TABLE and not turns:
                    yield owner, name, x


def stacks_of(model: PreTrainedModel) -> list[Stack]:
    """Return a model's decoder, encoder or both. Errors: ValueError if it has none or cannot be."""
    name, base = type(model).__name__, model.base_model
    if not model._can_set_attn_implementation():
        _refuse(model)
    owners = {
        path: owner
        for path, owner in base.named_modules()
        if isinstance(owner, PreTrainedModel) and _takes_tokens(owner)
    }
    found: list[Stack] = []
    taken: set[int] = set()
    for path in sorted(owners, key=len, reverse=True):  # an encoder before the model around it
        layers = [x for x in _lists(owners[path]) if id(x) not in taken]
        taken.update(map(id, layers))
        stack = _stack(owners[path], path, layers)
        found += [stack] if stack.layers else []
    for part in ("encoder", "decoder"):
        own = getattr(base, part, None)
        if own in owners.values() and all(stack.module is not own for stack in found):
            raise ValueError(
                f"the {part} of {name} computes attention itself, outside transformers' "
                "AttentionInterface: take an architecture that has it, as T5 or BART"
            )
    if not found:
        raise ValueError(f"{name} has no attention: an encoding has nothing to serve")
    return found


def _refuse(model: PreTrainedModel) -> NoReturn:
    name = type(model).__name__
    try:
        code = inspect.getsource(sys.modules[type(model).__module__])
    except (OSError, TypeError):  # of a class from a notebook
        code = "softmax("
    classes = [type(x).__name__ for x in model.modules()]
    own = next((x for x in classes if "Attention" in x), None)
    if own is None or not re.search(r"softmax\(", code, re.I):
        raise ValueError(f"{name} has no softmax over keys: an encoding has nothing to serve")
    raise ValueError(
        f"{name} computes attention itself, outside transformers' AttentionInterface: call "
        f"pezoo.attention in {own}, or take an architecture that has it, as Llama or BERT"
    )


def _takes_tokens(module: Any) -> bool:
    names = inspect.signature(module.forward).parameters
    return not {"input_ids", "inputs_embeds", "pixel_values"}.isdisjoint(names)


def _takes_any(module: Any) -> bool:
    parameters = inspect.signature(module.forward).parameters.values()
    return any(x.kind is x.VAR_KEYWORD for x in parameters)


def _lists(module: Any) -> Iterator[Any]:
    """Yield the members of a module's outermost lists."""
    for child in module.children():
        if isinstance(child, nn.ModuleList):
            yield from child
        else:
            yield from _lists(child)


def _stack(module: Any, path: str, layers: list[Any]) -> Stack:
    kept, attentions, crosses = [], [], []
    for layer in layers:
        found = [(name, x) for name, x in layer.named_modules() if _attends(x)]
        own = [x for name, x in found if not CROSS.search(name)]
        crosses += [x for name, x in found if CROSS.search(name)]
        if own:
            kept.append(layer)
            attentions.append(own)
    return Stack(module, path, kept, attentions, crosses)


def _attends(module: Any) -> bool:
    """Return True for a module that calls the attention function."""
    code = getattr(inspect.unwrap(type(module).forward), "__code__", None)
    return code is not None and "ALL_ATTENTION_FUNCTIONS" in code.co_names


def _first(owner: Any, names: tuple[str, ...]) -> Any:
    return next((x for name in names if isinstance(x := getattr(owner, name, None), int)), None)


def chosen(stack: Stack, layers: str | None) -> frozenset[int]:
    """Return the layers that an encoding serves. Errors: ValueError for an unknown type."""
    types = stack.types()
    if layers is None:
        return frozenset(range(len(types)))
    known = sorted({kind for kind in types if kind is not None})
    if layers not in known:
        raise ValueError(unknown("layer type", layers, known))
    if any(True for _ in stack.tables()):
        raise ValueError("this model adds positions to its embeddings, for all layers")
    return frozenset(i for i, kind in enumerate(types) if kind == layers)


def still(turn: Any) -> Any:
    """Return a rotation by no angle, as wide as one of the model's."""
    if isinstance(turn, dict):
        return {key: still(x) for key, x in turn.items()}
    if isinstance(turn, Tensor):
        if not turn.is_complex():
            raise ValueError("this model's rotation is not one of cosines and sines")
        return torch.ones_like(turn)
    cos, sin = turn
    return torch.ones_like(cos), torch.zeros_like(sin)
