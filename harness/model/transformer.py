"""The Transformer that all encodings share."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.nn.functional import gelu, linear, relu, silu

from experiment.config import Model
from harness.data.drawn import DROPOUT, Drawn
from harness.data.seeds import generator
from pezoo import adapters
from pezoo.adapters import attend, resolve
from pezoo.adapters.layer import Cache
from pezoo.base import PRF, Context, Encoding, Pass, Shape
from pezoo.functional import at_least_float32
from pezoo.kernels.backends import FASTEST, choose

RMS_EPS = 1e-6
Fields = Callable[[Tensor], dict[str, Tensor | None]]


def dropped(x: Tensor, masks: Tensor | None, which: int, p: float) -> Tensor:
    """Return x (B, T, D) after dropout by one of the masks (B, T or more, N, D); x without them."""
    if masks is None:
        return x
    kept = masks[:, masks.shape[1] - x.shape[1] :, which]
    return x * (kept.to(x.dtype) / (1 - p))


def no_fields(ids: Tensor) -> dict[str, Tensor | None]:
    """Return the `fields` of a task that tells nothing of its tokens."""
    return {}


@dataclass(frozen=True)
class Shared:
    """State that the layers share in a forward pass."""

    encoding: Encoding
    mask: Any  # a tensor, CAUSAL or a BlockMask
    backend: str


def shape_of(model: Model, train_len: int) -> Shape:
    """Return the Shape from which an encoding is built."""
    return Shape(model.width, model.heads, model.width // model.heads, model.layers, train_len)


def norm_of(model: Model) -> nn.Module:
    """Return a new norm of a layer's input or output."""
    return nn.RMSNorm(model.width, RMS_EPS) if model.norm == "rms" else nn.LayerNorm(model.width)


class Block(nn.Module):
    """Pre-LN: x + attention(LN x), then x + mlp(LN x); post-LN: LN(x + attention x) and so on.

    Parallel, as in GPT-NeoX: x + attention(LN x) + mlp(LN' x), each with a LayerNorm of its own.
    With `norm` "rms" each LN is an RMSNorm. With `qk_norm` each head's q and k pass an RMSNorm.
    mlp(x) = down(activation(up x)); with swiglu down(silu(gate x) * up x), without biases and with
    two thirds of the hidden units, which gives as many parameters (Shazeer 2020).
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        width = model.width
        self.heads, self.post = model.heads, model.norm == "post"
        self.parallel = model.residual == "parallel"
        self.norm1, self.norm2 = norm_of(model), norm_of(model)
        self.qkv = nn.Linear(width, 3 * width, bias=model.attention_bias)
        self.out = nn.Linear(width, width, bias=model.attention_bias)
        self.norm_qk = None
        if model.qk_norm:
            size = width // model.heads
            self.norm_qk = nn.ModuleList(nn.RMSNorm(size, RMS_EPS) for _ in "qk")
        gated = model.activation == "swiglu"
        hidden = model.mlp_ratio * width * 2 // 3 if gated else model.mlp_ratio * width
        self.activation = relu if model.activation == "relu" else gelu
        self.up = nn.Linear(width, hidden, bias=not gated)
        self.gate = nn.Linear(width, hidden, bias=False) if gated else None
        self.down = nn.Linear(hidden, width, bias=not gated)
        self.dropout = model.dropout

    def forward(
        self,
        x: Tensor,
        ctx: Pass,
        shared: Shared,
        past: tuple[Tensor, Tensor] | None,
        last: int,
        masks: Tensor | None,
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Return the output for the last tokens of x (B, T, D), (B, last, D), and keys and values.

        masks (B, T, 2, D): dropout after the attention and after the MLP, or None.
        """
        t = x.shape[1]
        q, k, v = self.read(x)
        q, k = shared.encoding.transform(q, k, ctx)
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)  # (B, H, S, K)
        y = attend(shared.encoding, q, k, v, ctx, shared.mask, shared.backend)
        x, y = x[:, t - last :], y[:, :, t - last :]  # earlier tokens only need keys and values
        mixed = x + self._drop(self.out(rearrange(y, "b h t k -> b t (h k)")), masks, 0)
        if self.parallel:
            return mixed + self._drop(self.feed(x), masks, 1), (k, v)
        x = self.norm1(mixed) if self.post else mixed
        x = x + self._drop(self.feed(x), masks, 1)
        return self.norm2(x) if self.post else x, (k, v)

    def read(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return q, k and v, each (B, H, T, K), of x (B, T, D)."""
        x = x if self.post else self.norm1(x)
        qkv = rearrange(self.qkv(x), "b t (three h k) -> b t three h k", three=3, h=self.heads)
        # Unbound while adjacent, which fixes the order in which their gradients are added.
        q, k, v = (rearrange(y, "b t h k -> b h t k") for y in qkv.unbind(2))
        if self.norm_qk is not None:
            q, k = (norm(y) for norm, y in zip(self.norm_qk, (q, k), strict=True))
        return q, k, v

    @property
    def w_key(self) -> Tensor:
        """Return the projection to keys, (H K, D)."""
        size = self.qkv.weight.shape[0] // 3
        return self.qkv.weight[size : 2 * size]

    def feed(self, x: Tensor) -> Tensor:
        """Return mlp(LN x), or mlp(x) in post-LN."""
        x = x if self.post else self.norm2(x)
        up = self.up(x)
        y: Tensor = self.down(self.activation(up) if self.gate is None else silu(self.gate(x)) * up)
        return y

    def _drop(self, x: Tensor, masks: Tensor | None, which: int) -> Tensor:
        return dropped(x, masks, which, self.dropout)


class Transformer(nn.Module):
    """Token embedding, blocks, a final LayerNorm (of pre-LN) and the (tied) unembedding.

    Decoders attend to earlier tokens, encoders to all.

    Each weight outside the encoding is drawn from its own generator, seeded by its name, after the
    encoding is built: at one seed all encodings share them bit for bit (`backbone_hash`).
    """

    def __init__(
        self,
        model: Model,
        encoding: Encoding,
        seed: int,
        attention: str = "auto",
        device: str = "",
        track: str = "decoder",
        task_prf: PRF | None = None,
        task_fields: Fields = no_fields,
    ) -> None:
        super().__init__()
        if track == "encoder" and encoding.causal_only:
            raise ValueError(
                f"{type(encoding).__name__} needs a causal mask: use the decoder track"
            )
        self.track = track
        self.task_prf, self.task_fields = task_prf, task_fields  # for encodings that receive them
        self.model, self.encoding = model, encoding
        self.attention = resolve(attention, encoding)
        self.ran: dict[str, set[str]] = {"train": set(), "eval": set()}  # attention, by phase
        self.embedding = nn.Embedding(model.vocab, model.width)
        self.blocks = nn.ModuleList(Block(model) for _ in range(model.layers))
        self.norm = nn.Identity() if model.norm == "post" else norm_of(model)
        self.unembedding = None if model.tie_embeddings else nn.Linear(model.width, model.vocab)
        self._initialise(seed)
        self.to(device or "cpu")

    def forward(
        self,
        ids: Tensor,
        pos: Tensor,
        *,
        scale: Tensor | None = None,
        generator: torch.Generator | None = None,
        cache: Cache | None = None,
        last: int | None = None,
        mode: str | None = None,
        drawn: Drawn | None = None,
    ) -> Tensor:
        """Return the logits (B, T, vocab) after each of the new ids (B, T) at pos (B|1, T).

        `last` limits them to the last tokens, (B, last, vocab). With a cache, the new tokens follow
        those in it. `scale` and `mode` are those of `pezoo.base.Pass`. `drawn` holds the random
        numbers of these tokens (`harness.data.drawn`); without it the encoding draws from
        `generator`. Errors: ValueError for training with dropout without its masks.
        """
        new, past = ids.shape[1], cache or Cache()
        true = self._context(ids, pos, past, scale, mode)
        if drawn is None:
            drawn = self.encoding.draw(true, generator=generator, length=past.length)
        x = self.embedding(ids) * self.model.width**0.5
        mask = self._mask(true)  # by the positions before the encoding rewrites them
        ctx = self.encoding.prepare(replace(true, x=x, drawn=dict(drawn)))
        tokens, masks = x, self._dropout_masks(drawn)
        x = self.encoding.embed(x, ctx)
        if x is not tokens:  # the code of Ruoss et al. drops of sums with positions alone
            x = dropped(x, masks, -1, self.model.dropout)
        layers = past.layers or [None] * len(self.blocks)
        shared = Shared(self.encoding, mask, self.attention)
        for i, block in enumerate(self.blocks):
            kept = last if last is not None and i + 1 == len(self.blocks) else new
            own = None if masks is None else masks[:, :, 2 * i : 2 * i + 2]
            x, layers[i] = block(x, ctx.at(i, x, block.w_key), shared, layers[i], kept, own)
        past.pos, past.ids, past.layers = true.pos, true.ids, layers
        x = self.norm(x)
        return linear(x, self.embedding.weight) if self.unembedding is None else self.unembedding(x)

    def _context(
        self, ids: Tensor, pos: Tensor, past: Cache, scale: Tensor | None, mode: str | None
    ) -> Pass:
        """Return the context of new ids (B, T) at pos (B|1, T), after those in the cache."""
        new = ids.shape[1]
        if past.pos is not None and past.ids is not None:
            pos, ids = torch.cat([past.pos, pos], 1), torch.cat([past.ids, ids], 1)
        fields: dict[str, Any] = self.task_fields(ids)
        return Pass(
            pos=pos,
            ids=ids,
            n_new=new,
            scale=scale,
            memo=past.memo,
            mode=mode,
            task_prf=self.task_prf,
            **fields,
            ran=self.ran["train" if self.training else "eval"],
        )

    def _mask(self, ctx: Context) -> Any:
        if self.track == "encoder":
            return adapters.attention_mask(ctx, causal=False)
        if self.attention == "flex":
            return adapters.block_mask(ctx)
        return attention_mask(ctx)

    def _dropout_masks(self, drawn: Drawn) -> Tensor | None:
        """Return the masks (B, T, 2 layers + 1, D) in training with dropout."""
        if not (self.training and self.model.dropout):
            return None
        if DROPOUT not in drawn:
            raise ValueError(
                "training with dropout needs its masks: harness.data.drawn.dropout_masks"
            )
        return drawn[DROPOUT]

    def kernels(self) -> dict[str, str]:
        """Return the back end of each kind of scan in training, for records."""
        like = at_least_float32(self.embedding.weight)
        scans = [getattr(part, "kernel", "") for part in self.encoding.modules()]
        return {f"{kernel}_scan": choose(kernel, like) for kernel in FASTEST if kernel in scans}

    def backbone_parameters(self) -> dict[str, Tensor]:
        """Return the parameters outside of the encoding, by name."""
        return {n: p for n, p in self.named_parameters() if not n.startswith("encoding.")}

    def backbone_hash(self) -> str:
        """Return a SHA-256 of the backbone's weights: equal for all encodings at one seed."""
        digest = hashlib.sha256()
        for name, parameter in sorted(self.backbone_parameters().items()):
            digest.update(name.encode())
            digest.update(parameter.detach().cpu().float().numpy().tobytes())
        return digest.hexdigest()[:16]

    @torch.no_grad()
    def _initialise(self, seed: int) -> None:
        # Pre-LN sums 2 terms per layer; post-LN normalises after each.
        residual = 1.0 if self.model.norm == "post" else (2 * len(self.blocks)) ** -0.5
        for name, parameter in self.backbone_parameters().items():
            if parameter.dim() < 2:
                parameter.fill_(1.0 if "norm" in name and name.endswith("weight") else 0.0)
                continue
            std = parameter.shape[1] ** -0.5
            if name == "embedding.weight":
                std = self.model.embedding_std or std
            std *= residual if name.endswith(("out.weight", "down.weight")) else 1.0
            draw = torch.randn(parameter.shape, generator=generator("backbone", seed, name))
            parameter.copy_(draw * std)


def attention_mask(ctx: Context) -> Tensor | str:
    """Return the mask of `pezoo.adapters`, or CAUSAL if no row has padding.

    Rows that share their positions have no padding; a batch of one row may have some.
    """
    if ctx.new == ctx.pos.shape[1] and len(ctx.pos) == 1 < ctx.batch:
        return adapters.CAUSAL
    return adapters.attention_mask(ctx)
