"""The hooks, the cache and the attention of a model of transformers with an encoding."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from pezoo import adapters
from pezoo.adapters import CAUSAL, attend, backends, plainly_causal
from pezoo.adapters.devices import moved, placed
from pezoo.base import Context, Encoding, Pass
from pezoo.context import Memo
from pezoo.functional import for_each_head

NAME = "pezoo"  # of the attention, the config's entry, and the layers' keyword argument


@dataclass(frozen=True)
class Step:
    """State of a forward pass, passed through the model's layers to attention.

    It is no tuple, because accelerate would move the encoding in it to each layer's device.
    """

    encoding: Encoding
    ctx: Pass  # without the layer, which `attention` sets
    mask: Tensor | str = CAUSAL  # unless the caller passes a mask of its own
    backend: str = "auto"  # of pezoo.adapters
    cache: DynamicCache | None = None
    turn: tuple[Tensor, Tensor] | None = None  # cosines and sines, where the model itself rotates
    replayed: bool = False  # by gradient checkpointing: layers must not change memo
    layer: int = 0
    x: Any = None  # its input (B, T, D)
    elsewhere: dict[torch.device, tuple[Encoding, Pass, Tensor | str]] = field(default_factory=dict)

    def on(self, device: torch.device) -> tuple[Encoding, Pass, Tensor | str]:
        """Return the encoding, the layer's ctx and the mask on the layer's device."""
        here = self.encoding, self.ctx, self.mask
        if device != self.ctx.pos.device and device not in self.elsewhere:
            ctx, mask = moved((self.ctx, self.mask), device)
            self.elsewhere[device] = placed(self.encoding, device), ctx, mask
        return self.elsewhere.get(device, here)


def begin(names: tuple[str, ...], base: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run `draw`, `prepare` and `embed` before the decoder, and pass a Step to its layers.

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
    ids, x = given.pop("input_ids", None), given.pop("inputs_embeds", None)
    if (ids is None) == (x is None):
        raise ValueError("expected either input_ids or inputs_embeds")
    x = base.get_input_embeddings()(ids) if x is None else x
    encoding = placed(base.encoding, x.device)
    cache, wanted = given.get("past_key_values"), given.get("use_cache")
    replayed = base.training and getattr(base, "gradient_checkpointing", False)
    if wanted is None:
        wanted = base.config.use_cache and not base.training and encoding.prefix_stable
    if replayed:
        wanted, cache = False, None
    elif wanted and cache is None:
        cache = DynamicCache(config=base.config)
    put = getattr(base.config, NAME)
    name = put["encoding"] or type(encoding).__qualname__
    layers = base.config.num_hidden_layers
    memory = None if cache is None else memory_of(cache, encoding, name, layers)
    pos, counted = _positions(given.get("attention_mask"), given.get("position_ids"), memory, x)
    if memory is not None:
        pos, ids = memory.extended(pos.expand(len(x), -1), ids)
    memo = Memo() if memory is None else memory.memo
    slots = None if base.slots_of is None or ids is None else base.slots_of(ids)
    if slots is not None and not (
        isinstance(slots, Tensor) and slots.shape == ids.shape and not slots.is_floating_point()
    ):
        raise ValueError(f"slots(ids) must return integers {tuple(ids.shape)}, one for each token")
    ctx = Context(pos=pos, ids=ids, x=x, n_new=x.shape[1], memo=memo, slots=slots)
    mask = CAUSAL if counted or plainly_causal(ctx) else adapters.attention_mask(ctx)
    length = None if memory is None else put["length"]
    progress = base.progress if base.training else None
    drawn = encoding.draw(ctx, length=length, progress=progress)
    ctx = encoding.prepare(Pass.of(ctx, drawn=drawn))
    if memory is not None:  # what an encoding refuses is not kept
        memory.pos, memory.ids = pos, ids
    if replayed:
        _check_replay(base, ctx)
    rotary = getattr(base, "rotary_emb", None)
    turn = None if rotary is None else rotary.turn(encoding, ctx, x)
    given |= {"past_key_values": cache, "use_cache": wanted}
    backend = "eager" if put.get("attention") == "eager" else "auto"
    given |= {NAME: Step(encoding, ctx, mask, backend, cache, turn, replayed)}
    return (), {**given, "inputs_embeds": encoding.embed(x, ctx)}


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
    index: int, names: tuple[str, ...], layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Pass a layer its Step, and no cache, because `attention` fills it.

    `names` are those of the layer's arguments, the first one its input.
    """
    given = dict(zip(names[1:], args[1:], strict=False)) | kwargs
    x = args[0] if args else given.pop(names[0])
    step = _step(given)
    if step.turn is not None:
        given["position_embeddings"] = step.turn
    given["layer_past" if "layer_past" in names else "past_key_values"] = None
    given[NAME] = replace(step, layer=index, x=x)
    return (x,), given


def _step(kwargs: dict[str, Any]) -> Step:
    step: Step | None = kwargs.get(NAME)
    if step is None:
        raise ValueError(
            "no encoding is attached: call use(model, encoding), or load(folder) in place of "
            "from_pretrained. If you did, layers do not pass on keyword arguments: not supported"
        )
    return step


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
    if hasattr(module, "k_proj"):
        weight: Tensor = module.k_proj.weight
        return weight
    joint = getattr(module, "c_attn", None)  # of GPT-2: q, k and v side by side, (D, 3 D)
    return None if joint is None else joint.weight.chunk(3, 1)[1].mT


def attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Compute attention for new q (B, H, T, K), k and v (B, G, T, K) -> (B, T, H, K)."""
    step = _step(kwargs)
    for name in ("softcap", "s_aux", "sliding_window"):
        if kwargs.get(name) is not None:
            raise ValueError(f"pezoo's attention does not support {name}, which this model needs")
    encoding, ctx, mask = step.on(query.device)
    ctx = ctx.at(step.layer, moved(step.x, query.device), _key_weight(module))
    if step.replayed:
        ctx = replace(ctx, memo=Memo({key: ctx.memo[key] for key in ctx.memo}))
    own = encoding.shape.d_head**-0.5
    q = query if scaling in (None, own) else query * (scaling / own)
    turned = (q, key) if step.turn is not None else encoding.transform(q, key, ctx)
    q, k = (x.to(value.dtype) for x in turned)
    if step.cache is not None:
        k, value = step.cache.update(k, value, module.layer_idx)
    if attention_mask is not None:  # (B, 1, T, S) from the caller
        seen = _visible(attention_mask)
        blind = ~seen.any(3, keepdim=True)  # would get NaN
        mask = seen | blind & adapters.attention_mask(ctx)
    if not dropout:
        return attend(encoding, q, k, value, ctx, mask, step.backend).transpose(1, 2), None
    k, value = (for_each_head(x, q) for x in (k, value))

    def weights(logits: Tensor) -> Tensor:
        chosen = encoding.weights(logits, ctx)
        kept = logits.softmax(-1) if chosen is None else chosen
        return nn.functional.dropout(kept, dropout)

    scores, bias = encoding.scores(q, k, ctx), encoding.bias(q, k, ctx)
    mask = adapters.earlier_keys(encoding, mask, ctx)
    dense = mask if isinstance(mask, Tensor) else None
    return backends.eager(q, k, value, bias, dense, own, weights, scores).transpose(1, 2), None


class MemoLayer(DynamicLayer):  # type: ignore[misc]
    """The last layer of a DynamicCache: positions, ids and the encoding's memo."""

    supports_early_init = False

    def __init__(self) -> None:
        super().__init__()
        self.reset()

    def reset(self) -> None:
        self.encoding: str | None = None  # the one that filled the cache
        self.pos: Tensor | None = None  # (B, S)
        self.ids: Tensor | None = None  # (B, S)
        self.memo = Memo()

    def get_seq_length(self) -> int:
        return 0 if self.pos is None else self.pos.shape[1]

    def check(self, mask: Tensor | None, counted: bool) -> None:
        """Check that attention_mask (B, S) and positions continue those of the cached tokens.

        Synchronises with the host.
        """
        if self.pos is None or torch.compiler.is_compiling():
            return
        if mask is not None and ((mask[:, : self.pos.shape[1]] == 0) != (self.pos < 0)).any():
            raise ValueError(
                "attention_mask must hide the same cached tokens as before: for another mask, "
                "start with an empty cache"
            )
        every = torch.arange(self.pos.shape[1], device=self.pos.device)
        if mask is None and counted and (self.pos != every).any():
            raise ValueError(
                "the cache holds padding, or positions other than 0, 1, 2, ...: pass "
                "attention_mask for all tokens, or position_ids"
            )

    def extended(self, pos: Tensor, ids: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return positions and ids (B, S) of all tokens, with those of new ones (B, T)."""
        if self.pos is None:
            return pos, ids
        ids = None if ids is None or self.ids is None else torch.cat([self.ids, ids], 1)
        return torch.cat([self.pos, pos], 1), ids

    def reorder_cache(self, beam_idx: Tensor) -> None:
        if self.pos is not None:
            self.pos = self.pos[beam_idx]
            self.ids = None if self.ids is None else self.ids[beam_idx]
            self.memo.reorder(beam_idx)

    def batch_select_indices(self, indices: Tensor) -> None:
        self.reorder_cache(indices)

    def batch_repeat_interleave(self, repeats: int) -> None:
        if self.pos is not None:
            rows = torch.arange(len(self.pos), device=self.pos.device)
            self.reorder_cache(rows.repeat_interleave(repeats))

    def crop(self, tokens_to_remove: int) -> None:
        if self.pos is not None and tokens_to_remove:
            self.pos = self.pos[:, :tokens_to_remove]  # a negative number, as in DynamicLayer
            self.ids = None if self.ids is None else self.ids[:, :tokens_to_remove]
            self.memo.crop(tokens_to_remove)


def memory_of(cache: Any, encoding: Encoding, name: str, n_layers: int) -> MemoLayer:
    """Return the cache's last layer, after adding it to an empty cache."""
    if not encoding.prefix_stable:
        raise ValueError(
            f"{type(encoding).__name__} changes earlier keys as the text grows: call the model "
            "and generate with use_cache=False"
        )
    if cache.layers and isinstance(cache.layers[-1], MemoLayer):
        memory: MemoLayer = cache.layers[-1]
        if memory.encoding not in (None, name):
            raise ValueError(
                f"this cache was filled with {memory.encoding}, but the model has {name}: start "
                "with an empty cache"
            )
        memory.encoding = name
        return memory
    if not isinstance(cache, DynamicCache) or {type(x) for x in cache.layers} - {DynamicLayer}:
        raise ValueError(f"expected a DynamicCache without windows, got {cache!r}")
    if cache.get_seq_length():
        raise ValueError("this cache was filled without the encoding: start with an empty cache")
    cache.layers += [DynamicLayer() for _ in range(n_layers - len(cache.layers))]
    cache.layers.append(memory := MemoLayer())
    memory.encoding = name
    return memory
