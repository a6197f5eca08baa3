"""What an encoding may know about the tokens in front of it.

Shape letters are those of `pezoo.base`, which has this as part of the interface.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad


class Memo(dict[str, Any]):
    """What an encoding carries through decoding. It follows the model's cache of keys and values.

    Values with methods `reorder(rows)` and `crop(length)` are replaced by what these return; any
    other value serves every row and every length.

    Example: `memo.reorder(torch.tensor([1, 1]))` goes on with row 1 twice, as beam search does;
    `memo.crop(7)` keeps the first 7 tokens, `memo.crop(-2)` all but the last 2, as assisted
    decoding does. The model's own cache, positions and ids are reordered and cropped beside it.
    """

    def reorder(self, rows: Tensor) -> None:
        """Row i becomes what row rows[i] is; rows (n,) may repeat rows and leave some out."""
        self.update({k: v.reorder(rows) for k, v in self.items() if hasattr(v, "reorder")})

    def crop(self, length: int) -> None:
        """Keep the first `length` tokens, padding counted; all but the last -length below 0."""
        self.update({k: v.crop(length) for k, v in self.items() if hasattr(v, "crop")})


class _UnknownLayer:
    """Stands for the layer between `prepare` and `at`; whoever uses it is told what is missing."""

    def _refuse(self, *_: object) -> Any:
        raise ValueError("no layer is known yet: give the hooks of each layer ctx.at(layer, x)")

    # As an index, torch asks for the length of what is no number.
    __index__ = __int__ = __len__ = __getitem__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = _refuse

    def __repr__(self) -> str:
        return "unknown"


UNKNOWN_LAYER: Any = _UnknownLayer()

Relation = Callable[[Tensor, Tensor, Tensor | None], Tensor]


@dataclass(frozen=True)
class Context:
    """Everything an encoding may know about the tokens in front of it.

    pos        (B|1, S) int64. The last T belong to the queries. -1 marks padding: no token. Where
               they do not rise, a new document begins (see `document`).
    ids        (B, S) token ids, for encodings that read the text (or None).
    x          (B, T, D) input of the layer about to run; in `prepare` the token embeddings.
    layer      index of that layer, from 0; after `prepare`, unknown until `at`.
    n_new      T; None means that all S tokens are new.
    scale      (B|1,) the instance scale n, for encodings with a scale hint (or None).
    memo       what the encoding carries through a forward pass and through decoding, a Memo.
    distances  (L,) a table that replaces the distance d by sign(d) distances[|d|] (or None).
    mode       one of the encoding's own `modes`, another way to run trained weights (or None).
    drawn      what `Encoding.draw` returned for this pass; None until somebody has called it.
    prepared   whether `Encoding.prepare` has returned it; a wrapper sets it back for what it wraps.
    true_pos   (B|1, S) the positions before a wrapper replaced them: documents are told by them
               (or None).
    w_key      (G K, D) what projects the layer's input to its keys, G <= H, without its offset, for
               encodings that add to what a layer reads before that projection (or None).
    relation   (i, j, n) -> int64: the kind of the pair of query position i (B|1, T, 1) and key
               position j (B|1, 1, S) in the task at hand, for encodings that are told (or None);
               n (B|1, 1, 1) is the scale, None for those without a scale hint.

    Errors: ValueError for positions that are not two-dimensional or not signed whole numbers, and
    for more new tokens than positions.
    """

    pos: Tensor
    ids: Tensor | None = None
    x: Tensor | None = None
    layer: int = 0
    n_new: int | None = None
    scale: Tensor | None = None
    memo: Memo = field(default_factory=Memo)
    distances: Tensor | None = None
    mode: str | None = None
    drawn: dict[str, Tensor] | None = None
    prepared: bool = False
    true_pos: Tensor | None = None
    w_key: Tensor | None = None
    relation: Relation | None = None

    def __post_init__(self) -> None:
        kind = self.pos.dtype
        real = kind.is_floating_point or kind.is_complex
        if self.pos.dim() != 2 or real or not kind.is_signed:
            raise ValueError(
                "pos must hold whole numbers, (1, S) or (B, S), such as torch.arange(10)[None]; "
                f"was given {tuple(self.pos.shape)} of {kind}"
            )
        if self.n_new is not None and not 0 < self.n_new <= self.pos.shape[1]:
            raise ValueError(
                f"n_new={self.n_new} new tokens need as many positions; pos has {self.pos.shape[1]}"
            )

    def scale_for(self, reader: str) -> Tensor:
        """The scale (B|1,), which an encoding reads. Errors: ValueError when there is none."""
        if self.scale is None:
            raise ValueError(
                f"{reader} reads the scale of the instance: set ctx.scale, (B,) or (1,)"
            )
        return self.scale

    @property
    def batch(self) -> int:
        """B, as far as this context tells: without x and ids, the rows of pos."""
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
        """(B|1, S) bool, True where a token is."""
        return self.pos >= 0

    @property
    def _true_pos(self) -> Tensor:
        """(B|1, S) the positions that say where documents begin."""
        return self.pos if self.true_pos is None else self.true_pos

    @property
    def document(self) -> Tensor:
        """(B|1, S) int64: in which of its row's documents a token is, from 0.

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
        """Whether a row holds several documents. It asks for values, as `ask` does."""
        pos = self._true_pos
        highest, later = pos.cummax(1).values[:, :-1], pos[:, 1:]
        return bool(self.ask(((later <= highest) & (later >= 0)).any()))

    @staticmethod
    def ask(x: Tensor) -> int:
        """The number in x (). A GPU has to be waited for: this is for `draw`, not for the hooks.

        Errors: ValueError under torch.export, which knows no numbers.
        """
        if torch.compiler.is_exporting():
            raise ValueError(
                "torch.export knows no positions, which draw looks at: put what it returns for "
                "such positions into ctx.drawn"
            )
        return int(x)

    def distance(self) -> Tensor:
        """(B|1, T, S) int64: i - j for query position i and key position j."""
        d = self.query_pos[:, :, None] - self.pos[:, None, :]
        if self.distances is None:
            return d
        # Padding lies outside the table; what it reads there is masked by attention.
        index = d.abs().clamp(max=self.distances.shape[0] - 1)
        return d.sign() * self.distances[index]

    def check_prepared(self) -> None:
        """Errors: ValueError for a context that does not come from `prepare`."""
        if not self.prepared:
            raise ValueError(
                "this context does not come from prepare: call ctx = encoding.prepare(ctx) once "
                "per forward pass, and give the hooks what it returns"
            )

    def at(self, layer: int, x: Tensor, w_key: Tensor | None = None) -> Context:
        """The same context before layer `layer`, whose input is x (B, T, D).

        `w_key`, where an encoding asks for it, is the weight of its projection to keys.

        Errors: ValueError for a context that does not come from `prepare`, and for a layer below 0.
        """
        self.check_prepared()
        if layer < 0:
            raise ValueError(f"layers count from 0, was given layer {layer}")
        w_key = self.w_key if w_key is None else w_key
        return replace(self, layer=layer, x=x, w_key=w_key)
