"""The one interface: Shape, Context, Encoding, PositionError.

Shape letters, used everywhere in this project:

    B  batch              T  new tokens (queries)     S  all tokens so far (keys), S >= T
    H  heads              D  model width              K  head width
    C  cursors (PRISM)    L  support (PRISM) or the largest position (randomized)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from pezoo.kernels.members import for_each
from pezoo.pictures import Picture


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
class Context:
    """Everything an encoding may know about the tokens in front of it.

    pos        (B|1, S) int64. The last T belong to the queries. -1 marks padding: no token.
    ids        (B, S) token ids, for encodings that read the text (or None).
    x          (B, T, D) input of the layer about to run; in `prepare` the token embeddings.
    layer      index of that layer, from 0.
    n_new      T; None means that all S tokens are new.
    scale      (B|1,) the instance scale n, for encodings with a scale hint (or None).
    memo       what the encoding carries through a forward pass and through decoding.
    total      the length planned for the whole sequence while decoding; None means S.
    generator  where random encodings draw from; None means torch's default generator.
    distances  (L,) a table that replaces the distance d by sign(d) distances[|d|] (or None).
    progress   the share of training that is done, 0 to 1, for what changes with it (or None).
    mode       one of the encoding's own `modes`, another way to run trained weights (or None).
    part       (first, of): these B rows are those from `first` on of a batch of `of` rows, which
               is computed in parts. None: this is the whole batch.
    padding    so many columns on the right are padding: they repeat their row's last position,
               and nobody reads what is computed for them.
    asked      so many of the last columns are all that the last layer was asked for (or None).
    dropout    where the model's dropout draws from; None means torch's default generator.
    members    the contexts of several models that run as one under torch.func.vmap (or None).

    What is drawn at random has to be that of the whole batch without such padding, and that of each
    member alone; see `drawn`, and `each` for a draw that depends on the number of tokens.
    """

    pos: Tensor
    ids: Tensor | None = None
    x: Tensor | None = None
    layer: int = 0
    n_new: int | None = None
    scale: Tensor | None = None
    memo: dict[str, Any] = field(default_factory=dict)
    total: int | None = None
    generator: torch.Generator | None = None
    distances: Tensor | None = None
    progress: float | None = None
    mode: str | None = None
    part: tuple[int, int] | None = None
    padding: int = 0
    asked: int | None = None
    dropout: torch.Generator | None = None
    members: Members | None = None

    def drawn(
        self,
        draw: Callable[[tuple[int, ...], Context], Tensor],
        shape: tuple[int, ...],
        final: bool = False,
    ) -> Tensor:
        """Random numbers for x of `shape` (B, T, ...), by draw(size, ctx) for the whole batch.

        The size has all rows and no padding on the right; `final` says that these are columns of
        the last layer, and leaves out those not asked for. Where nothing is drawn, numbers are 0.

        >>> ctx = Context(torch.arange(4)[None], part=(1, 2), padding=1, asked=3)
        >>> ctx.drawn(lambda size, ctx: torch.ones(size), (1, 4), final=True)
        tensor([[0., 1., 1., 0.]])
        """

        def numbers(one: Context) -> Tensor:
            first, of = one.part or (0, shape[0])
            skip = shape[1] - one.asked if final and one.asked is not None else 0
            columns = shape[1] - skip - one.padding
            found = draw((of, columns, *shape[2:]), one)[first : first + shape[0]]
            if not (skip or one.padding):
                return found
            return pad(found, (0, 0) * (len(shape) - 2) + (skip, one.padding))

        return self.each(numbers)

    def each(self, draw: Callable[[Context], Tensor]) -> Tensor:
        """draw(ctx); of several models each has its own draw, and its own ctx."""
        return draw(self) if self.members is None else self.members.each(draw)

    @property
    def models(self) -> Sequence[Context]:
        """This context, or those of the members: to ask for values, as int() and bool() do."""
        return (self,) if self.members is None else self.members.contexts

    @property
    def length(self) -> int:
        """How many tokens there are so far, S, without padding on the right."""
        if self.members is not None:
            raise ValueError("lengths differ between the members of a stack: ask within ctx.each")
        return self.pos.shape[1] - self.padding

    @property
    def new(self) -> int:
        """T, the number of new tokens."""
        return self.pos.shape[1] if self.n_new is None else self.n_new

    @property
    def query_pos(self) -> Tensor:
        """(B|1, T) positions of the queries."""
        return self.pos[:, self.pos.shape[1] - self.new :]

    @property
    def key_mask(self) -> Tensor:
        """(B|1, S) bool, True where a token is."""
        return self.pos >= 0

    def distance(self) -> Tensor:
        """(B|1, T, S) int64: i - j for query position i and key position j."""
        d = self.query_pos[:, :, None] - self.pos[:, None, :]
        if self.distances is None:
            return d
        # Padding lies outside the table; what it reads there is masked by attention.
        index = d.abs().clamp(max=self.distances.shape[0] - 1)
        return d.sign() * self.distances[index]

    def at(self, layer: int, x: Tensor) -> Context:
        """The same context before layer `layer`, whose input is x (B, T, D)."""
        return replace(self, layer=layer, x=x)


class Members(NamedTuple):
    """Several models that run as one: what is each one's own."""

    contexts: Sequence[Context]  # pos, padding, asked, and the generators
    number: Tensor  # which member this is, (): one number for each under vmap

    def each(self, draw: Callable[[Context], Tensor]) -> Tensor:
        """draw(ctx) of every member, outside of vmap."""
        return for_each(lambda number: draw(self.contexts[int(number)]), self.number)


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


class Encoding(nn.Module):
    """A positional encoding. As it stands it encodes nothing (NoPE).

    A model calls, in this order: `prepare` once per forward pass with the token embeddings in
    ctx.x, `embed` once, then in every layer `transform` on the new queries and keys and `bias` on
    the new queries and all keys. The logits are q k^T / sqrt(d_head) + bias, also when `transform`
    has widened q and k. While decoding, the model caches the transformed keys and hands the
    extended ctx back with the same memo.

    Class attributes say what the encoding claims; `pezoo.testing` holds it to them.
    """

    name: ClassVar[str] = ""  # set by @register
    version: ClassVar[int] = 1  # raised when the numbers change, so that old records stay apart
    wraps: ClassVar[str | None] = (
        None  # for a wrapper: the name of the encoding it wraps by default
    )
    summary: ClassVar[str] = ""
    paper: ClassVar[str] = ""
    causal_only: ClassVar[bool] = False  # meaningless without a causal mask
    order_blind: ClassVar[bool] = False  # the order of the earlier tokens changes nothing

    modes: tuple[str, ...] = ()  # other ways to run trained weights; see Context.mode

    max_len: int | None = None  # positions 0..max_len-1; beyond it prepare raises PositionError
    prefix_stable: bool = True  # False: later tokens change earlier values
    relative: bool = False  # True: shifting every position changes nothing
    reads_distance: bool = False  # True: reads ctx.distance(), never ctx.pos
    stochastic: bool = False  # True: draws at evaluation too
    needs_scale: bool = False  # True: reads ctx.scale

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape

    def prepare(self, ctx: Context) -> Context:
        """Check and rewrite positions, compute streams. Called once per forward pass."""
        self._check_positions(ctx)
        return ctx

    def embed(self, x: Tensor, ctx: Context) -> Tensor:
        """(B, T, D) token embeddings -> (B, T, D)."""
        return x

    def transform(self, q: Tensor, k: Tensor, ctx: Context) -> tuple[Tensor, Tensor]:
        """New q and k, both (B, H, T, K), rotated, scaled or widened."""
        return q, k

    def bias(self, q: Tensor, k: Tensor, ctx: Context) -> Tensor | None:
        """Added to the logits; broadcasts to (B, H, T, S). q and k come from `transform`."""
        return None

    def pairs(self, q: Tensor, k: Tensor, ctx: Context) -> Pairs | None:
        """The same bias in factors, for attention that never holds (B, H, T, S) numbers.

        None where it has none, or where samples differ in their positions: `bias` is used.
        """
        return None

    def widened(self, q: Tensor, k: Tensor, ctx: Context) -> tuple[Tensor, Tensor] | None:
        """q (B, H, T, W) and k (B, H, S, W) whose products hold the bias, for fused attention.

        q' k'^T / sqrt(d_head) = q k^T / sqrt(d_head) + bias. None, also for some positions or
        sizes, where that cannot be or does not pay: `bias` is used.
        """
        return None

    def weights(self, logits: Tensor, ctx: Context) -> Tensor | None:
        """Attention weights (B, H, T, S) from masked logits, in place of softmax; None keeps it."""
        return None

    @property
    def replaces_softmax(self) -> bool:
        """True when `weights` is overridden, so that fused attention kernels cannot be used."""
        return type(self).weights is not Encoding.weights

    def param_groups(self) -> list[ParamGroup]:
        """Parameters that need their own optimiser settings."""
        return []

    def penalty(self) -> Tensor | None:
        """A scalar that the trainer adds to the loss."""
        return None

    def kernels(self) -> dict[str, str]:
        """The back end that each of its kernels runs on, for records."""
        return {}

    def pictures(self, layers: Sequence[Context]) -> list[Picture]:
        """What there is to see inside, after a forward pass over one sequence without padding.

        layers[i] is the ctx that `transform` was given in layer i.
        """
        return []

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in vars(self.shape).items())

    def _check_positions(self, ctx: Context) -> None:
        if self.max_len is None:
            return
        last = max(int(one.pos.max()) for one in ctx.models)
        if last >= self.max_len:
            raise PositionError(
                f"{type(self).__name__} represents positions 0..{self.max_len - 1}, "
                f"was given position {last}"
            )
