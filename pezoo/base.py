"""The one interface: Shape, Context, Encoding, PositionError.

Shape letters, used everywhere in this project:

    B  batch              T  new tokens (queries)     S  all tokens so far (keys), S >= T
    H  heads              D  model width              K  head width
    C  cursors (PRISM)    L  support (PRISM) or the largest position (randomized)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, TypedDict, Unpack

import torch
from torch import Tensor, nn

from pezoo.compiling import untraced
from pezoo.context import UNKNOWN_LAYER, Context, Memo, Relation
from pezoo.pictures import Picture

__all__ = [
    "Columns",
    "Context",
    "Encoding",
    "Memo",
    "Pairs",
    "ParamGroup",
    "Plan",
    "PositionError",
    "Relation",
    "Shape",
]


class PositionError(ValueError):
    """A position or a length that an encoding cannot represent. It is not a wrong answer."""


@dataclass(frozen=True)
class Shape:
    """The sizes of the model that an encoding serves.

    `train_len` is the longest training sequence in tokens: a hint, not a limit.

    >>> Shape(d_model=64, n_heads=4, d_head=16, n_layers=2, train_len=32).d_head
    16
    """

    d_model: int
    n_heads: int
    d_head: int
    n_layers: int
    train_len: int

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 1:
                raise ValueError(f"Shape.{name} must be at least 1, was {value}")


@dataclass(frozen=True)
class ParamGroup:
    """Parameters that ask for their own optimiser settings; None keeps the trainer's."""

    params: list[nn.Parameter]
    lr: float | None = None
    betas: tuple[float, float] | None = None
    weight_decay: float | None = None


class Pairs(NamedTuple):
    """A bias in factors: bias_ij = reader_i . rows_ij, for positions that all samples share.

    reader (B, H, T, P) and rows (1, T, S, H, P), for any P.

    >>> Pairs(torch.ones(1, 1, 1, 2), torch.tensor([3.0, 4.0]).view(1, 1, 1, 1, 2)).dense()
    tensor([[[[7.]]]])
    """

    reader: Tensor
    rows: Tensor

    def dense(self) -> Tensor:
        """(B, H, T, S), what `Encoding.bias` returns."""
        return torch.einsum("bhtp,btshp->bhts", self.reader, self.rows)


class Columns(NamedTuple):
    """A bias in further columns of q and k: q' k'^T / sqrt(d_head) = q k^T / sqrt(d_head) + bias.

    q (B, H, T, W) and k (B, H, S, W), for any W.
    """

    q: Tensor
    k: Tensor


class Plan(TypedDict, total=False):
    """What a model may say to `Encoding.draw`; what is left out or None is usual.

    generator  where to draw from (torch's own)
    length     tokens planned for the whole sequence while decoding (S)
    progress   of training, from 0 to 1 (1)
    """

    generator: torch.Generator | None
    length: int | None
    progress: float | None


class Encoding(nn.Module):
    """A positional encoding. As it stands it encodes nothing (NoPE).

    A model calls, in this order: `prepare` once per forward pass with the token embeddings in
    ctx.x, `embed` once, then in every layer `transform` on the new queries and keys and `bias` on
    the new queries and all keys. The logits are q k^T / sqrt(d_head) + bias, also when `transform`
    has widened q and k. While decoding, the model caches the transformed keys and hands the
    extended ctx back with the same memo.

    `draw` runs on the host, before the pass. All other hooks run where the model runs, and are
    pure: they draw nothing at random and never ask for a value of a tensor, as int(), bool() and
    .item() do, for which the host would have to wait. They may return float32 for half precision:
    `pezoo.adapters.attend` casts to the dtype of v.

    Class attributes say what the encoding claims; `pezoo.testing` holds it to them.
    """

    name: ClassVar[str] = ""  # set by @register
    version: ClassVar[int] = 1  # raised when the numbers change, so that old records stay apart
    wraps: ClassVar[str | None] = None  # of a wrapper: what it wraps by default
    also: ClassVar[tuple[tuple[str, str], ...]] = ()  # second names to type, and their specs
    summary: ClassVar[str] = ""
    paper: ClassVar[str] = ""
    prf_text: ClassVar[str] = ""  # its positional relation function in words; see `prf`
    modes: tuple[str, ...] = ()  # other ways to run trained weights; see Context.mode

    max_len: int | None = None  # positions 0..max_len-1; beyond it draw raises PositionError
    prefix_stable: bool = True  # False: later tokens change earlier values
    relative: bool = False  # True: shifting every position changes nothing
    reads_distance: bool = False  # True: reads ctx.distance(), never ctx.pos
    random_distances: bool = False  # True: `randomized` draws distances around it by default
    order_blind: bool = False  # the order of the earlier tokens changes nothing
    stochastic: bool = False  # True: draws at evaluation too
    needs_scale: bool = False  # True: reads ctx.scale
    oracle: bool = False  # True: receives part of the task's solution
    causal_only: bool = False  # True: meaningless without a causal mask

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape

    def draw(self, ctx: Context, **plan: Unpack[Plan]) -> dict[str, Tensor]:
        """All that is random in a pass, and all checks that need values; `prepare` calls it.

        A model calls it itself, and puts the result into ctx.drawn, to say more: its `Plan`.
        Tensors with two axes or more are (B|1, T, ...), an entry for each new token; (n,) and ()
        serve the whole batch. Names are the encoding's own, such as "randomized.table".

        Errors: PositionError for positions or a length that it cannot represent.
        """
        last = ctx.ask(ctx.pos.max()) if self.max_len is not None else -1
        if self.max_len is not None and last >= self.max_len:
            raise PositionError(
                f"{type(self).__name__} represents positions 0..{self.max_len - 1}, "
                f"was given position {last}"
            )
        return {}

    def prepare(self, ctx: Context) -> Context:
        """Rewrite positions, compute streams: once per forward pass; calls `draw` if needed.

        Errors: those of `draw`; ValueError without ctx.scale where the encoding reads it, for a
        context that prepare has returned, and for ctx.x or ctx.drawn of another pass.
        """
        if ctx.prepared:
            raise ValueError(
                "this context comes from prepare: give prepare the one that you made, with the "
                "positions of the new tokens after the others'"
            )
        if ctx.x is not None:
            self._check_x(ctx.x, ctx)
        if self.needs_scale:
            ctx.scale_for(self.name or type(self).__name__)
        drawn = self._draw(ctx) if ctx.drawn is None else ctx.drawn
        for name, x in drawn.items():
            if x.dim() > 1 and x.shape[1] != ctx.new:
                raise ValueError(
                    f"ctx.drawn is of another pass: {name} has {x.shape[1]} tokens, ctx has "
                    f"{ctx.new} new ones; call draw for every pass"
                )
        drawn = {name: x.to(ctx.pos.device) for name, x in drawn.items()}
        layer = 0 if self.shape.n_layers == 1 else UNKNOWN_LAYER
        return replace(ctx, drawn=drawn, layer=layer, prepared=True)

    def _check_x(self, x: Tensor, ctx: Context) -> None:
        if x.dim() != 3 or x.shape[2] != self.shape.d_model:
            raise ValueError(
                f"ctx.x must be (B, T, D) with D = {self.shape.d_model}, the model's width; was "
                f"{tuple(x.shape)}"
            )
        if x.shape[1] != ctx.new:
            raise ValueError(
                f"ctx.x has {x.shape[1]} tokens, but {ctx.new} are new: pos holds the "
                "positions of all tokens so far, n_new says how many of them are new"
            )
        if len(ctx.pos) not in (1, len(x)):
            raise ValueError(f"pos must have 1 row or {len(x)}, as x has; it has {len(ctx.pos)}")

    def _draw(self, ctx: Context) -> dict[str, Tensor]:
        """`draw` for a pass that nobody has drawn for; it looks at values, which no graph has."""
        plain = type(self).draw is Encoding.draw and self.max_len is None
        draw = self.draw if plain or not torch.compiler.is_compiling() else untraced(self.draw)
        return draw(ctx)

    def embed(self, x: Tensor, ctx: Context) -> Tensor:
        """(B, T, D) token embeddings -> (B, T, D)."""
        return x

    def transform(self, q: Tensor, k: Tensor, ctx: Context) -> tuple[Tensor, Tensor]:
        """New q and k, both (B, H, T, K), rotated, scaled or widened.

        k may have fewer heads, which groups of queries share: (B, G, T, K), or H of them returned.
        """
        return q, k

    def bias(self, q: Tensor, k: Tensor, ctx: Context) -> Tensor | None:
        """Added to the logits; broadcasts to (B, H, T, S). q and k come from `transform`."""
        return None

    def bias_pairs(self, q: Tensor, k: Tensor, ctx: Context) -> Pairs | None:
        """The same bias in factors, so that a fused kernel never holds (B, H, T, S).

        None where there are none, for these positions or sizes, or where they do not pay: `bias`
        is used.
        """
        return None

    def bias_columns(self, q: Tensor, k: Tensor, ctx: Context) -> Columns | None:
        """The same bias as further columns of q and k, for any kernel; None as in `bias_pairs`."""
        return None

    def weights(self, logits: Tensor, ctx: Context) -> Tensor | None:
        """Attention weights (B, H, T, S) from masked logits, in place of softmax; None keeps it."""
        return None

    @property
    def replaces_softmax(self) -> bool:
        """True when `weights` is overridden, so that fused attention kernels cannot be used."""
        return type(self).weights is not Encoding.weights

    def prf(self, ctx: Context) -> Tensor | None:
        """The positional relation function phi(i, j) of query i and key j, of one row of positions.

        ctx.pos (1, S) -> (S, S) int64, or (S, S, values) float, a distribution over kinds of pairs.
        Pairs with equal phi are treated alike: where q and k are the same, so is the logit. None
        where content decides, chance, or nothing but the causal mask. ctx has no text, no padding
        and no cache; it may have `scale`, `relation` and `layer`.
        """
        return None

    def param_groups(self) -> list[ParamGroup]:
        """Parameters that need their own optimiser settings."""
        return []

    def penalty(self) -> Tensor | None:
        """A scalar that the trainer adds to the loss."""
        return None

    def pictures(self, layers: Sequence[Context]) -> list[Picture]:
        """What there is to see inside, after a forward pass over one sequence without padding.

        layers[i] is the ctx that `transform` was given in layer i.
        """
        return []

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in vars(self.shape).items())
