"""The one interface: Shape, Context, Encoding, PositionError.

Shape letters, used everywhere in this project:

    B  batch              T  new tokens (queries)     S  all tokens so far (keys), S >= T
    H  heads              D  model width              K  head width
    C  cursors (PRISM)    L  support (PRISM) or the largest position (randomized)
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import wraps
from inspect import signature
from typing import Any, ClassVar, NamedTuple, TypedDict, Unpack

import torch
from torch import Tensor

from pezoo.compiling import untraced
from pezoo.context import PRF, UNKNOWN_LAYER, Context, Memo, Pass
from pezoo.extras import Extras, ParamGroup
from pezoo.initial import Remade
from pezoo.spec import SpecError, unknown

__all__ = [
    "PRF",
    "Columns",
    "Context",
    "Encoding",
    "Memo",
    "ParamGroup",
    "Pass",
    "Plan",
    "PositionError",
    "ScoreMod",
    "Shape",
    "Sizes",
]


class PositionError(ValueError):
    """Raised for a position or a length that an encoding cannot represent."""


class Sizes(TypedDict, total=False):
    """The sizes of a Shape as keywords; an encoding needs only those that it reads."""

    d_model: int
    n_heads: int
    d_head: int
    n_layers: int
    train_len: int


@dataclass(frozen=True, repr=False, eq=False)
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
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name} must be a whole number, at least 1; got {value!r}")

    def replaced(self, **sizes: Unpack[Sizes]) -> "Shape":
        """Return a shape with some sizes changed."""
        return replace(self, **sizes)

    def __repr__(self) -> str:
        return f"Shape({', '.join(f'{name}={value}' for name, value in vars(self).items())})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Shape) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(frozenset(vars(self).items()))


class PartialShape(Shape):
    """A Shape of some sizes. d_head follows from d_model and n_heads.

    >>> PartialShape("RoPE", d_head=16).d_head
    16

    Errors: ValueError for reading a size that was not given, for one that is not a whole number of
    at least 1, and for a d_model that n_heads does not divide.
    """

    __slots__ = ("reader",)
    reader: str

    def __init__(self, reader: str, **sizes: Unpack[Sizes]) -> None:
        width, heads = sizes.get("d_model"), sizes.get("n_heads")
        if isinstance(width, int) and isinstance(heads, int) and heads and "d_head" not in sizes:
            if width % heads:
                raise ValueError(f"{reader}: n_heads={heads} does not divide d_model={width}")
            sizes["d_head"] = width // heads
        object.__setattr__(self, "reader", reader)
        vars(self).update(sizes)
        self.__post_init__()

    def replaced(self, **sizes: Unpack[Sizes]) -> Shape:
        return PartialShape(self.reader, **{**vars(self), **sizes})

    def __getattr__(self, name: str) -> int:  # called for what is missing
        if name not in Sizes.__annotations__:
            raise AttributeError(name)
        known = "".join(f", {key}={value}" for key, value in vars(self).items())
        more = "n_heads" if name == "d_head" and "d_model" in vars(self) else name
        raise SpecError(
            f"{self.reader} reads {name}: add the keyword {more}=...{known and f' to{known[1:]}'}, "
            "or pass a Shape"
        )


class Columns(NamedTuple):
    """A bias expressed by widening q and k, so that any attention kernel can use it.

        q' k'^T / sqrt(d_head) = q k^T / sqrt(d_head) + bias

    q' (B, H, T, W) and k' (B, H, S, W), for any W.
    """

    q: Tensor
    k: Tensor


class ScoreMod(NamedTuple):
    """A bias that is a function of the head and of two positions, for FlexAttention.

        bias_hij = value(h, i, j)

    h is the head, i the query's position and j the key's, int64. The function gets scalars in
    FlexAttention and tensors that broadcast in `dense`: use elementwise operations and indexing by
    tensors alone, as in slope[h], and index a tensor that needs a gradient once, which is what
    torch supports. `ctx.distance(i, j)` is i - j. With `axes`, i and j are tuples of as many
    coordinates, those of the tokens on each axis of ctx.coords.

    >>> ctx = Context(torch.arange(3)[None], n_new=1)
    >>> ScoreMod(lambda h, i, j: j - (h + 1) * i).dense(2, ctx)
    tensor([[[[-2, -1,  0]],
    <BLANKLINE>
             [[-4, -3, -2]]]])
    """

    value: Callable[[Tensor, Any, Any], Tensor]
    axes: int = 0

    def dense(self, heads: int, ctx: Context) -> Tensor:
        """Return the bias, which broadcasts to (B, H, T, S)."""
        h = torch.arange(heads, device=ctx.pos.device)[:, None, None]
        if self.axes:
            places = ctx.places(self.axes)[:, None].unbind(-1)  # (B|1, 1, S) of each axis
            first = ctx.pos.shape[1] - ctx.new
            i = tuple(place[:, :, first:, None] for place in places)
            return self.value(h, i, tuple(place[:, :, None] for place in places))
        return self.value(h, ctx.query_pos[:, None, :, None], ctx.pos[:, None, None])


BiasForm = Columns | ScoreMod


class Way(NamedTuple):
    """A product of queries and keys for some pairs of tokens: one of several that scores have.

    q (B, H, T, W) and k (B, H, S, W), scaled; meets(i, j), of positions that broadcast, is True
    where a query at i and a key at j have this product.
    """

    q: Tensor
    k: Tensor
    meets: Callable[[Tensor, Tensor], Tensor]


FormKind = type[BiasForm]


class Plan(TypedDict, total=False):
    """Optional arguments of `Encoding.draw`, with their defaults in parentheses.

    generator  random generator to draw from (torch's default generator)
    length     tokens planned for the whole sequence while decoding (S)
    progress   progress of training, from 0 to 1 (1)
    """

    generator: torch.Generator | None
    length: int | None
    progress: float | None


_REPLACING = {"scores": "replaces_scores", "weights": "replaces_softmax"}


def _reporting(name: str, hook: Callable[..., Any]) -> Callable[..., Any]:
    """Return a hook that notes in ctx.memo that it ran: see `Memo.check_owed`."""

    @wraps(hook)
    def reports(self: "Encoding", *given: Any, **named: Any) -> Any:
        ctx: Pass = named["ctx"] if "ctx" in named else given[-1]
        owner, layer, owed = ctx.memo.owed or ("", 0, ())
        if name == "transform":
            owner, layer = self.name or type(self).__name__, ctx.layer
            owed = tuple(key for key, property in _REPLACING.items() if getattr(self, property))
        left = tuple(key for key in owed if key != name)
        # A compiled `transform` expects no hooks: a graph that follows cannot report its calls.
        if ctx.memo.owed and not left:
            ctx.memo.owed = None
        elif left and not torch.compiler.is_compiling():
            ctx.memo.owed = owner, layer, left
        return hook(self, *given, **named)

    return reports


class Encoding(Extras, Remade):
    """Base class for positional encodings. Without overrides it encodes nothing (NoPE).

    A model calls, in this order: `prepare` once per forward pass with the token embeddings in
    ctx.x, `embed` once, then in every layer `transform` on the new queries and keys and `bias` on
    the new queries and all keys. The logits are q k^T / sqrt(d_head) + bias, also when `transform`
    has widened q and k; `scores` replaces the product, and `weights` softmax. While decoding, the
    model caches the transformed keys and passes the extended ctx with the same memo.

    `draw` runs on the host, before the forward pass. All other hooks run on the model's device and
    are pure: they draw nothing at random and never read a tensor's value, as int(), bool() and
    .item() do, which would synchronise with the host. They may return float32 for half precision:
    `pezoo.adapters.attend` casts to the dtype of v.

    Class attributes state properties of the encoding; `pezoo.testing` checks them. `Extras` lists
    further ones, and hooks for training, pictures and theory, which most encodings leave alone.
    """

    name: ClassVar[str] = ""  # set by @register
    summary: ClassVar[str] = ""
    paper: ClassVar[str] = ""
    reports: ClassVar[str] = ""  # what its paper reports, in a line
    picture: ClassVar[tuple[str, ...]] = ()  # an SVG file in docs that explains it, and a caption
    reads: ClassVar[str] = ""  # such as "distance" or "text"; "": what the wrapped one reads

    max_len: int | None = None  # positions 0..max_len-1; beyond them draw raises PositionError
    prefix_stable: bool = True  # False: later tokens change earlier values
    reads_length: bool = False  # True: only by their number, which a Plan's length settles
    relative: bool = False  # True: shifting every position changes nothing
    reads_distance: bool = False  # True: reads ctx.distance(), never ctx.pos
    axes: int = 1  # of ctx.coords that it reads; 1: it reads ctx.pos alone
    order_blind: bool = False  # True: the order of the earlier tokens changes nothing
    stochastic: bool = False  # True: draws at evaluation too
    causal_only: bool = False  # True: meaningless without a causal mask

    def __init__(self, shape: Shape | None = None, **sizes: Unpack[Sizes]) -> None:
        """Take a Shape, or the sizes that the encoding reads as keywords: RoPE(d_head=64)."""
        super().__init__()
        if shape is not None and (sizes or not isinstance(shape, Shape)):
            raise TypeError(
                f"{type(self).__name__} takes either a Shape or sizes as keywords, as in "
                f"{type(self).__name__}(d_head=64); got {shape!r}"
            )
        for name in sizes.keys() - Sizes.__annotations__:
            taken = signature(type(self)).parameters.values()
            known = [x.name for x in taken if x.kind is x.KEYWORD_ONLY] + [*Sizes.__annotations__]
            raise TypeError(unknown(f"keyword of {type(self).__name__}", name, known))
        self.shape = PartialShape(type(self).__name__, **sizes) if shape is None else shape

    def __init_subclass__(cls, **options: Any) -> None:
        """Make the hooks of a class that overrides `scores` or `weights` report that they ran."""
        super().__init_subclass__(**options)
        own = [hook for hook in _REPLACING if getattr(cls, hook) is not getattr(Encoding, hook)]
        for hook in [*own, "transform"] if own else ():
            setattr(cls, hook, _reporting(hook, getattr(cls, hook)))
        if cls.ways is not Encoding.ways:
            cls.ways = _reporting("scores", cls.ways)  # type: ignore[method-assign]

    def draw(self, ctx: Context, **plan: Unpack[Plan]) -> dict[str, Tensor]:
        """Draw everything random for one forward pass, and validate positions.

        `prepare` calls it. To pass a `Plan`, a model calls it first and passes the result on:
        prepare(Pass.of(ctx, drawn=drawn)). Tensors with two axes or more are (B|1, T, ...), with an
        entry for each new token; (n,) and () serve the whole batch. Their names begin with the
        encoding's, as in "randomized.table".

        Errors: PositionError for positions or a length that the encoding cannot represent.
        """
        if self.max_len is None:
            return {}
        last = ctx.ask((ctx.pos if self.axes == 1 else ctx.places(self.axes)).max())
        if last >= self.max_len:
            raise PositionError(
                f"{type(self).__name__} represents positions 0..{self.max_len - 1}, "
                f"was given position {last}"
            )
        return {}

    def prepare(self, ctx: Context) -> Pass:
        """Prepare a forward pass: rewrite positions, compute streams. Calls `draw` if needed.

        Errors: those of `draw`; ValueError if ctx.scale or ctx.slots is missing where the encoding
        needs it, for a context returned by prepare, and for fields of another pass or length.
        """
        ctx = Pass.of(ctx)
        if ctx.prepared:
            raise ValueError(
                "this context was returned by prepare: pass prepare a context of your own, in "
                "which ctx.pos is extended by the positions of the new tokens"
            )
        ctx.memo.check_owed()
        if ctx.x is not None:
            self._check_x(ctx.x, ctx)
        for name, x in (("ids", ctx.ids), ("slots", ctx.slots), ("coords", ctx.coords)):
            if x is not None and x.shape[1] != ctx.pos.shape[1]:
                raise ValueError(
                    f"{name} must be (B, {ctx.pos.shape[1]}), one for each position, those of "
                    f"cached tokens too; got {tuple(x.shape)}"
                )
        if self.needs_scale:
            ctx.scale_for(self.name or type(self).__name__)
        if self.needs_slots:
            ctx.slots_for(self.name or type(self).__name__)
        drawn = self._draw(ctx) if ctx.drawn is None else ctx.drawn
        for name, x in drawn.items():
            if x.dim() > 1 and x.shape[1] != ctx.new:
                raise ValueError(
                    f"ctx.drawn belongs to another pass: {name} has {x.shape[1]} tokens, ctx has "
                    f"{ctx.new} new tokens; call draw for every pass"
                )
        drawn = {name: x.to(ctx.pos.device) for name, x in drawn.items()}
        n_layers = vars(self.shape).get("n_layers")
        layer = 0 if n_layers == 1 else UNKNOWN_LAYER
        return Pass.of(ctx, drawn=drawn, layer=layer, prepared=True, n_layers=n_layers)

    def _check_x(self, x: Tensor, ctx: Context) -> None:
        width = vars(self.shape).get("d_model", x.shape[-1])
        if x.dim() != 3 or x.shape[2] != width:
            raise ValueError(
                f"ctx.x must be (B, T, D) with D = {width}, the model's width; got {tuple(x.shape)}"
            )
        if x.shape[1] != ctx.new:
            raise ValueError(
                f"ctx.x has {x.shape[1]} tokens, but ctx has {ctx.new} new ones: pos holds the "
                "positions of all tokens so far, and n_new is the number of new tokens"
            )
        if len(ctx.pos) not in (1, len(x)):
            raise ValueError(f"pos must have 1 row, or {len(x)} as x has; got {len(ctx.pos)}")

    def _draw(self, ctx: Context) -> dict[str, Tensor]:
        """Call `draw` outside torch.compile, because it reads tensor values."""
        plain = type(self).draw is Encoding.draw and self.max_len is None
        draw = self.draw if plain or not torch.compiler.is_compiling() else untraced(self.draw)
        return draw(ctx)

    def embed(self, x: Tensor, ctx: Pass) -> Tensor:
        """Encode positions in the token embeddings: (B, T, D) -> (B, T, D)."""
        return x

    def transform(self, q: Tensor, k: Tensor, ctx: Pass) -> tuple[Tensor, Tensor]:
        """Rotate, scale or widen the new q and k, both (B, H, T, K).

        With grouped-query attention k has G < H heads; it may be returned with G or H of them.
        """
        return q, k

    def bias(self, q: Tensor, k: Tensor, ctx: Pass) -> Tensor | None:
        """Return what is added to the logits; broadcasts to (B, H, T, S).

        q and k come from `transform`. By default, what `bias_form` gives as a ScoreMod.
        """
        form = self.bias_form(q, k, ctx, ScoreMod)
        return form.dense(self.shape.n_heads, ctx) if isinstance(form, ScoreMod) else None

    def bias_form(self, q: Tensor, k: Tensor, ctx: Pass, kind: FormKind) -> BiasForm | None:
        """Return the bias as Columns or ScoreMod, so that no kernel holds (B, H, T, S).

        `kind` is the form that the attention kernel takes. None where the encoding does not have
        it, or where it is not faster; the kernel then asks for another kind or calls `bias`.
        """
        return None

    def scores(self, q: Tensor, k: Tensor, ctx: Pass) -> Tensor | None:
        """Return scores (B, H, T, S) in place of q k^T / sqrt(d_head); None keeps the product.

        q (B, H, T, K') and k (B, H, S, K') come from `transform`. The scores need no mask. `bias`
        is called after, and added. An attention kernel that computes the product itself is refused.
        """
        return None

    def ways(self, q: Tensor, k: Tensor, ctx: Pass) -> Iterable[Way]:
        """Return the products of which `scores` takes one for each pair, for FlexAttention.

        It computes a softmax for each and joins them. By default there are none.
        """
        return ()

    def weights(self, logits: Tensor, ctx: Pass) -> Tensor | None:
        """Return attention weights (B, H, T, S) for masked logits; None keeps softmax.

        A model that calls `transform` has to call this hook too, and `scores`, where an encoding
        overrides them: otherwise `Pass.at` of the next layer, or the next `prepare` with the same
        memo, raises ValueError. Not seen are the last layer of a pass without a cache, compiled
        and exported models, and layers with a memo of their own, as in gradient checkpointing.
        """
        return None

    @property
    def replaces_scores(self) -> bool:
        """True when `scores` is overridden: of fused attention kernels flex alone takes `ways`."""
        return type(self).scores is not Encoding.scores

    @property
    def replaces_softmax(self) -> bool:
        """True when `weights` is overridden, so that fused attention kernels cannot be used."""
        return type(self).weights is not Encoding.weights

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in vars(self.shape).items())
