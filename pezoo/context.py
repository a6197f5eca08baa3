"""The context of a forward pass: positions, tokens, and what decoding carries along.

Shape letters are those of `pezoo.base`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad


class Memo(dict[str, Any]):
    """State that an encoding carries through decoding. It follows the model's key-value cache.

    Values with methods `reorder(rows)` and `crop(length)` are replaced by the results of these; any
    other value serves every row and every length.

    Example: `memo.reorder(torch.tensor([1, 1]))` continues with row 1 twice, as beam search does;
    `memo.crop(7)` keeps the first 7 tokens, `memo.crop(-2)` all but the last 2, as assisted
    decoding does. Reorder and crop the model's own cache, positions and ids with it.
    """

    def reorder(self, rows: Tensor) -> "Memo":
        """Replace row i by row rows[i]; rows (n,) may repeat and omit rows. Returns the memo."""
        self.update({k: v.reorder(rows) for k, v in self.items() if hasattr(v, "reorder")})
        return self

    def crop(self, length: int) -> "Memo":
        """Keep the first `length` tokens, including padding; if negative, all but the last ones."""
        self.update({k: v.crop(length) for k, v in self.items() if hasattr(v, "crop")})
        return self

    # An encoding, the layer whose `transform` ran last, and hooks that this layer has yet to call.
    owed: tuple[str, int, tuple[str, ...]] | None = None

    def check_owed(self, layer: int | None = None) -> None:
        """Raise ValueError if an attention left out `scores` or `weights` before this layer."""
        if self.owed is None or self.owed[1] == layer:
            return
        (name, last, hooks), self.owed = self.owed, None
        calls = " and ".join(_INSTEAD[hook] for hook in hooks)
        raise ValueError(
            f"layer {last} left out what {name} computes: use pezoo.attend there, or call {calls}"
        )


_INSTEAD = {
    "scores": "encoding.scores(q, k, ctx) instead of the product of q and k",
    "weights": "encoding.weights(logits, ctx) instead of softmax",
}


class _Kept(NamedTuple):
    """Values of every token so far, (..., S), in a memo."""

    values: Tensor

    def reorder(self, rows: Tensor) -> "_Kept":
        return _Kept(self.values[rows.to(self.values.device)])

    def crop(self, length: int) -> "_Kept":
        return _Kept(self.values[..., :length])


class _UnknownLayer:
    """Placeholder for the layer between `prepare` and `at`; using it raises ValueError."""

    def _refuse(self, *_: object) -> Any:
        raise ValueError("the layer is not set: pass ctx.at(layer, x) to the hooks of each layer")

    # torch calls __len__ on an index that is not an integer.
    __index__ = __int__ = __len__ = __getitem__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = _refuse

    def __repr__(self) -> str:
        return "unknown"


UNKNOWN_LAYER: Any = _UnknownLayer()

PRF = Callable[[Tensor, Tensor, Tensor | None], Tensor]


def continued(coords: Tensor, pos: Tensor, new: Tensor) -> Tensor:
    """Return coords (B|1, T, A) of new positions (B|1, T), after tokens at coords and pos.

    The first token after an image lies one beyond its largest coordinate, on every axis, and the
    next ones follow (Qwen2-VL's M-RoPE, Wang et al. 2024, Section 2.1).
    """
    last = coords.amax(-1).where(pos >= 0, -1).amax(1, keepdim=True)
    start = last - pos.amax(1, keepdim=True)
    return (new + start)[..., None].expand(-1, -1, coords.shape[-1])


def _check_coords(x: object) -> None:
    """Raise ValueError if x is neither None nor a tensor (B, S, A) of coordinates."""
    kinds = (torch.int64, torch.int32, torch.float32)
    if x is None or (isinstance(x, Tensor) and x.dim() == 3 and x.shape[2] and x.dtype in kinds):
        return
    given = f"{tuple(x.shape)} of {x.dtype}" if isinstance(x, Tensor) else x
    raise ValueError(f"coords must be (B, S, A), of int64, int32 or float32; got {given}")


def _check_whole(name: str, x: object) -> None:
    """Raise ValueError if x is neither None nor a tensor (B, S) of whole numbers."""
    if x is None:
        return
    if not isinstance(x, Tensor) or x.dim() != 2 or x.is_floating_point() or x.is_complex():
        given = f"{tuple(x.shape)} of {x.dtype}" if isinstance(x, Tensor) else x
        raise ValueError(f"{name} must hold whole numbers, (B, S); got {given}")


@dataclass(frozen=True)
class Context:
    """The tokens, the layer and the state that an encoding may read.

    The tokens
        pos       (B|1, S) int64. The last T belong to the queries. -1 marks padding: no token.
                  Where they do not rise, a new document begins (see `document`).
        ids       (B, S) token ids, for encodings that read the text (or None).
        n_new     T; None means that all S tokens are new.
        slots     (B|1, S) int64: ids or positions that the task supplies, from 0, such as those of
                  position coupling (or None). Documents are separated by pos, never by slots.
        coords    (B|1, S, A) where a token lies on A axes, such as row and column, int64, int32 or
                  float32 (or None: at pos, on every axis). pos stays the order of the tokens, which
                  encodings of a line read.
    The layer
        layer     its index, from 0; after `prepare`, unknown until `at`.
        x         (B, T, D) its input; in `prepare` the token embeddings. In a pre-norm model this
                  is the residual stream before the norm.
        w_key     (G K, D) weight of its projection to keys, G <= H, without its bias, for encodings
                  that add to the input of that projection (or None).
    For encodings that receive a hint or the solution
        scale     (B|1,) the instance scale n, for a scale hint (or None).
        task_prf  (i, j, n) -> int64: the task's positional relation function of query position i
                  (B|1, T, 1) and key position j (B|1, 1, S), for oracles (or None); n (B|1, 1, 1)
                  is the scale, None for encodings without a scale hint.
    The state
        memo      what the encoding carries through a forward pass and through decoding, a Memo.

    The hooks get a `Pass`, which `Encoding.prepare` returns: a Context with what wrappers set.

    Errors: ValueError for positions that are not two-dimensional or not int64 or int32, for
    ids, slots and coords of another shape or kind, for more new tokens than positions, and for an
    x, a scale or a memo of another type.
    """

    pos: Tensor
    ids: Tensor | None = None
    x: Tensor | None = None
    layer: int = 0
    n_new: int | None = None
    scale: Tensor | None = None
    memo: Memo = field(default_factory=lambda: Memo())  # torch.compile cannot call a class
    w_key: Tensor | None = None
    task_prf: PRF | None = None
    slots: Tensor | None = None
    coords: Tensor | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.pos, Tensor):
            raise ValueError(f"pos must be a tensor, torch.arange(10)[None]; got {self.pos!r}")
        kind = self.pos.dtype
        if self.pos.dim() != 2 or kind not in (torch.int64, torch.int32):
            raise ValueError(
                "pos must hold whole numbers, (1, S) or (B, S) of int64 or int32, such as "
                f"torch.arange(10)[None]; got {tuple(self.pos.shape)} of {kind}"
            )
        s = self.pos.shape[1]
        if self.n_new is not None and not 0 < self.n_new <= s:
            raise ValueError(
                f"n_new must be within 1..{s}, the number of positions; got {self.n_new}"
            )
        for name, own in (("ids", self.ids), ("slots", self.slots)):
            _check_whole(name, own)
        _check_coords(self.coords)
        if self.x is not None and not isinstance(self.x, Tensor):
            raise ValueError(f"x must be a tensor (B, T, D), got {type(self.x).__name__}")
        n = self.scale
        if n is not None and not (isinstance(n, Tensor) and n.dim() == 1):
            raise ValueError(f"scale must be a tensor (B,) or (1,), got {n!r}")
        if not isinstance(self.memo, Memo):
            raise ValueError(f"memo must be a pezoo.Memo, got {type(self.memo).__name__}")

    def scale_for(self, reader: str) -> Tensor:
        """Return the scale (B|1,). Errors: ValueError if it is not set."""
        if self.scale is None:
            raise ValueError(
                f"{reader} needs the scale of the instance: set ctx.scale, (B,) or (1,)"
            )
        return self.scale

    def slots_for(self, reader: str) -> Tensor:
        """Return the slots (B|1, S). Errors: ValueError if they are not set."""
        if self.slots is None:
            raise ValueError(
                f"{reader} needs the slots of the tokens: set ctx.slots, (B, S) or (1, S), which "
                "the task supplies"
            )
        return self.slots

    def x_for(self, reader: str) -> Tensor:
        """Return the layer's input (B, T, D). Errors: ValueError if it is not set."""
        if self.x is None:
            raise ValueError(
                f"{reader} reads the layer's input, at first the token embeddings: pass x, as in "
                "Context(pos, x=x) and ctx.at(layer, x)"
            )
        return self.x

    def with_earlier(self, name: str, new: Tensor) -> Tensor:
        """Prepend the values of the cached tokens to those of the new ones.

        new (B, ..., T) -> (B, ..., S). The memo keeps the result under `name`, one for each layer.
        """
        key, earlier = f"{name}.{self.layer}", self.pos.shape[1] - self.new
        if earlier:
            if key not in self.memo:
                raise ValueError(
                    f"the memo has no {name} of the {earlier} tokens before: pass the memo of "
                    "their pass, Context(..., memo=memo)"
                )
            kept = self.memo[key].values[..., :earlier]
            if kept.shape[-1] < earlier:
                raise ValueError(
                    f"the memo has {name} of {kept.shape[-1]} of the {earlier} tokens before: crop "
                    "it with the cache"
                )
            new = torch.cat([kept, new], -1)
        self.memo[key] = _Kept(new)
        return new

    @property
    def batch(self) -> int:
        """B, the rows of x or ids, or of pos if neither is set."""
        rows = self.ids if self.x is None else self.x
        return len(self.pos if rows is None else rows)

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
        """(B|1, S) bool, False at padding."""
        return self.pos >= 0

    @property
    def _true_pos(self) -> Tensor:
        """(B|1, S) the positions that separate documents."""
        return self.pos

    @property
    def document(self) -> Tensor:
        """(B|1, S) int64: the number of each token's document within its row, from 0.

        A document begins at a token whose position is not above that of the token before it:
        positions 0 1 2 0 1 are documents 0 0 0 1 1. Padding belongs to the document before it.
        """
        pos = self._true_pos
        column = torch.arange(pos.shape[1], device=pos.device)
        token = torch.where(self.key_mask, column, -1)
        if torch.compiler.is_exporting():  # ONNX has no cummax
            before = torch.where(column < column[:, None], token[:, None], -1).amax(-1)
        else:
            before = pad(token.cummax(1).values, (1, -1), value=-1)
        falls = pos <= pos.gather(1, before.clamp(min=0))
        return (falls & self.key_mask & (before >= 0)).cumsum(1)

    @property
    def packed(self) -> bool:
        """True if a row holds several documents. Reads tensor values, as `ask` does."""
        pos = self._true_pos
        highest, later = pos.cummax(1).values[:, :-1], pos[:, 1:]
        return bool(self.ask(((later <= highest) & (later >= 0)).any()))

    @staticmethod
    def ask(x: Tensor) -> int:
        """Return the value of x (). This synchronises with a GPU: use it in `draw` alone.

        Errors: ValueError under torch.export and torch.vmap, which have no values.
        """
        exporting = torch.compiler.is_exporting()
        try:
            if not exporting:
                return int(x)
        except RuntimeError as error:
            if "vmap" not in str(error):
                raise
        raise ValueError(
            f"torch.{'export' if exporting else 'vmap'} has no values for draw to read: call draw "
            "before, and pass its result on, prepare(Pass.of(ctx, drawn=drawn))"
        )

    def places(self, axes: int | None = None) -> Tensor:
        """Return where each token lies, (B|1, S, A), on all axes of coords or on A = `axes`.

        Without coords it is pos on every axis, as for text in M-RoPE. Coords of one axis are
        repeated too. Errors: ValueError for coords of another number of axes.
        """
        found = self.pos[..., None] if self.coords is None else self.coords
        axes = axes or found.shape[-1]
        if found.shape[-1] not in (1, axes):
            raise ValueError(
                f"expected coords of {axes} axes, (B, S, {axes}), or of one; got "
                f"{tuple(found.shape)}"
            )
        return found.expand(-1, -1, axes)

    def offset(self, axes: int | None = None) -> Tensor:
        """Return i - j on each of `axes` axes, (B|1, T, S, A), in the dtype of `places`."""
        found = self.places(axes)
        return found[:, found.shape[1] - self.new :, None] - found[:, None]

    def distance(
        self, i: Tensor | None = None, j: Tensor | None = None, axis: int | None = None
    ) -> Tensor:
        """Return i - j for query position i and key position j, int64, or along an axis of coords.

        Without i and j, (B|1, T, S): all pairs.
        """
        pos = self.pos if axis is None else self.places()[..., axis]
        i = pos[:, pos.shape[1] - self.new :, None] if i is None else i
        return i - (pos[:, None, :] if j is None else j)

    def check_prepared(self) -> None:
        """Raise ValueError for a context that `prepare` did not return."""
        raise ValueError(
            "this context was not returned by prepare: call ctx = encoding.prepare(ctx) once "
            "per forward pass, and pass its result to the hooks"
        )

    def at(self, layer: int, x: Tensor | None, w_key: Tensor | None = None) -> "Pass":
        """Return the context of a layer: `Pass.at`. Errors: ValueError before `prepare`."""
        self.check_prepared()
        raise AssertionError


@dataclass(frozen=True)
class Pass(Context):
    """A Context in a forward pass, with what models and wrappers set. `prepare` returns it.

    drawn      the result of `Encoding.draw` for this pass; None if it has not been called.
    distances  (L,) a table that replaces the distance d by sign(d) distances[|d|] (or None).
    mode       one of the encoding's own `modes`, another way to run trained weights (or None).
    true_pos   (B|1, S) the positions before a wrapper replaced them, which separate documents
               (or None).
    inner      the passes of what a wrapper wraps, where each layer has its own encoding.
    prepared   True once `Encoding.prepare` has returned it; a wrapper resets it for its inner one.
    n_layers   how many layers the encoding was made for, if it was told (or None).
    ran        a set to which `attend` adds the names of the kernels that ran (or None).
    """

    drawn: dict[str, Tensor] | None = None
    distances: Tensor | None = None
    mode: str | None = None
    true_pos: Tensor | None = None
    inner: tuple["Pass", ...] = ()
    prepared: bool = False
    n_layers: int | None = None
    ran: set[str] | None = None

    @classmethod
    def of(cls, ctx: Context, **changes: Any) -> "Pass":
        """Return a context as a Pass, with some fields changed.

        >>> ctx = Context(pos=torch.arange(3)[None])
        >>> Pass.of(ctx, drawn={}).drawn
        {}
        """
        if isinstance(ctx, cls):
            return replace(ctx, **changes) if changes else ctx
        return cls(**{f.name: getattr(ctx, f.name) for f in fields(ctx)} | changes)

    @property
    def _true_pos(self) -> Tensor:
        return self.pos if self.true_pos is None else self.true_pos

    def distance(
        self, i: Tensor | None = None, j: Tensor | None = None, axis: int | None = None
    ) -> Tensor:
        d = super().distance(i, j, axis)
        if self.distances is None or axis is not None:
            return d
        # Padding may lie outside the table; attention masks what it reads.
        index = d.abs().clamp(max=self.distances.shape[0] - 1)
        return d.sign() * self.distances[index]

    def check_prepared(self) -> None:
        if not self.prepared:
            super().check_prepared()

    def at(self, layer: int, x: Tensor | None, w_key: Tensor | None = None) -> "Pass":
        """Return the context for layer `layer`, whose input is x (B, T, D).

        `w_key` is the weight of the layer's projection to keys, for encodings that need it.

        Errors: ValueError for a context that `prepare` did not return, for a layer below 0 or not
        below the encoding's n_layers, and where the layer before left out a hook that the encoding
        replaces (`Encoding.weights`).
        """
        self.check_prepared()
        self.memo.check_owed(layer)
        if layer < 0:
            raise ValueError(f"layer must be at least 0, got {layer}")
        if self.n_layers is not None and layer >= self.n_layers:
            raise ValueError(f"layer {layer}: the encoding was made with n_layers={self.n_layers}")
        w_key = self.w_key if w_key is None else w_key
        if torch.compiler.is_compiling() or not (x is None or isinstance(x, Tensor)):
            return replace(self, layer=layer, x=x, w_key=w_key)
        found = object.__new__(type(self))  # all else has been checked
        vars(found).update(vars(self), layer=layer, x=x, w_key=w_key)
        return found
