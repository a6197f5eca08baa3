"""Pictures of learned cursors, token by token: gates, positions, copies, score."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pezoo.base import Context
from pezoo.cursors.gates import steps_of
from pezoo.cursors.layer import CursorLayer
from pezoo.cursors.pictures_constants import constants, learned
from pezoo.kernels.histogram import Copy
from pezoo.pictures import Axis, Picture

if TYPE_CHECKING:
    from pezoo.cursors.encoding import CursorEncoding

TOKENS = Axis("token")
VISIBLE = 0.01  # offsets that no cursor holds with more than this are cut off


@dataclass(frozen=True)
class Seen:
    """One layer of cursors over one sequence: G of them, the queries' first, in T tokens."""

    layers: range  # of the model
    heads: int
    cursors: int
    suffix: str  # of titles
    reset: Tensor  # (T, G)
    moves: Tensor  # (T, G, J)
    copy: Copy | None
    held: Tensor  # (T, G, L) Pr(offset)
    offsets: Tensor  # (L,)
    spread: Tensor  # (G/2,)

    def names(self) -> list[str]:
        """layer.head.cursor for each of the G/2 pairs of a query cursor and a key cursor."""
        return [
            f"{layer}.{head}.{cursor}" if self.cursors > 1 else f"{layer}.{head}"
            for layer in self.layers
            for head in range(self.heads)
            for cursor in range(self.cursors)
        ]

    def long_names(self) -> list[str]:
        """The same pairs in words."""
        words = ("layer", "head", "cursor")
        parts = [zip(words, name.split("."), strict=False) for name in self.names()]
        return [", ".join(" ".join(pair) for pair in part) for part in parts]

    @property
    def unit(self) -> str:
        """How to read a name."""
        return "layer.head.cursor" if self.cursors > 1 else "layer.head"


@torch.no_grad()
def pictures(encoding: CursorEncoding, layers: Sequence[Context]) -> list[Picture]:
    """What `Encoding.pictures` promises, for cursors."""
    scores = [_scores(encoding, ctx) for ctx in layers]
    seen = [_see(encoding, group, layers, scores) for group in range(len(encoding.starts))]
    found = [constants(encoding)]
    for group, one in enumerate(seen):
        found.append([_gates(one, encoding), _modes(one), _histograms(one, encoding, group)])
        found.append([*_copies(one, encoding, group), *learned(one, encoding, group)])
    found.append([_by_position(scores)])
    return [picture for part in found for picture in part]


def _scores(encoding: CursorEncoding, ctx: Context) -> Tensor:
    """(H, C, T, T) what each cursor adds to the logits of one layer (Equation 9)."""
    group = max(i for i, start in enumerate(encoding.starts) if start <= ctx.layer)
    streams = ctx.memo[f"{encoding.name}.{group}.streams"][ctx.layer - encoding.starts[group]]
    q, k = (e[0].unflatten(-1, (-1, encoding.options.d_pe)) for e in streams)  # (T, H, C, d_pe)
    return torch.einsum("thcd,shcd->hcts", q, k) / math.sqrt(encoding.shape.d_head)


def _spread(score: Tensor) -> Tensor:
    """(H, C) how far a cursor's score (H, C, T, T) tells the keys apart: its deviation over keys,
    averaged over queries."""
    t = score.shape[-1]
    causal = torch.ones(t, t, dtype=score.dtype, device=score.device).tril()
    count = causal.sum(-1, keepdim=True)
    mean = (score * causal).sum(-1, keepdim=True) / count
    variance = ((score - mean).square() * causal).sum(-1) / count[:, 0]
    return variance.sqrt().mean(-1)


def _see(
    encoding: CursorEncoding, group: int, layers: Sequence[Context], scores: list[Tensor]
) -> Seen:
    own = range(*[*encoding.starts, len(layers)][group : group + 2])
    layer, ctx = encoding.layers[group], layers[own.start]
    assert isinstance(layer, CursorLayer)
    assert ctx.x is not None
    x = ctx.x if group == 0 else encoding.norms[group - 1](ctx.x)
    features = layer.features(x, ctx)
    reset, moves = layer.gates(features, ctx)
    copy = None
    if layer.copying:
        mask = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        copy, _ = layer.copy_branch(x, features, mask, None, ctx.mode == "snapped")
    held, offsets = layer.positions(reset, moves, copy)
    cursors = encoding.options.cursors
    spread = torch.cat([_spread(scores[i])[:, :cursors].flatten() for i in own])
    suffix = f", cursors before layer {own.start}" if len(encoding.starts) > 1 else ""
    return Seen(
        own, encoding.shape.n_heads, cursors, suffix,
        reset[0], moves[0], copy, held[0], offsets, spread,
    )  # fmt: skip


def _gates(seen: Seen, encoding: CursorEncoding) -> Picture:
    words = {1: "increment", -1: "decrement", 0: "keep"}
    steps = steps_of(encoding.options.stride)
    order = [*range(2), len(steps) - 1, *range(2, len(steps) - 1)]  # increment, decrement, keep
    values = [seen.moves[..., j] for j in order]
    ticks = [f"{role} {name}" for role in "qk" for name in seen.names()]
    return Picture(
        f"Gates{seen.suffix}",
        "The probability of each move at each token (paper's Figures 11 and 12): reset is tossed "
        f"first, then one of the others. A row is a cursor, {seen.unit}: q moves for queries, "
        "k for keys. A column that stands out is a token at which cursors react.",
        ("reset", *(words.get(steps[j], f"step {steps[j]:+d}") for j in order)),
        torch.stack([seen.reset, *values]).mT,
        Axis("cursor", tuple(ticks)),
        TOKENS,
        span=(0.0, 1.0),
    )


def _modes(seen: Seen) -> Picture:
    modes = seen.offsets[seen.held.argmax(-1)].float()  # (T, G)
    return Picture(
        f"Where every cursor stands{seen.suffix}",
        "The likeliest offset of each cursor after each token, its mode. A query finds the keys "
        f"whose cursor of the same name ({seen.unit}) stands where its own does: look for equal "
        "colours in the two panels.",
        ("queries", "keys"),
        modes.T.reshape(2, -1, len(modes)),
        Axis("cursor", tuple(seen.names())),
        TOKENS,
    )


def _histograms(seen: Seen, encoding: CursorEncoding, group: int) -> Picture:
    layer = encoding.layers[group]
    assert isinstance(layer, CursorLayer)
    used = (seen.held > VISIBLE).any(0).any(0).nonzero()[:, 0]
    first, last = int(used.min()), int(used.max())
    h = seen.held[..., first : last + 1].flip(-1)  # the largest offset on top
    offsets = seen.offsets[first : last + 1].flip(0)
    both = h.permute(1, 2, 0).reshape(2, -1, len(offsets), len(h))  # queries, keys
    values = both.transpose(0, 1).flatten(0, 1)
    return Picture(
        f"Positions that cursors hold{seen.suffix}",
        "Pr(offset) after each token, a column each, and its mode as a line (paper's Figures 13 to "
        f"17), from the {layer.scan.source}. Each pair of panels is a query cursor and the key "
        "cursor that it is compared with: the query at a token finds the keys at which the second "
        "line stands as high as the first line does at the query. Pairs are in the order of how "
        "far their score tells keys apart on the last example.",
        tuple(f"{name}: {role}" for name in seen.long_names() for role in ("query", "key")),
        values,
        Axis("offset", tuple(str(int(d)) for d in offsets)),
        TOKENS,
        span=(0.0, 1.0),
        marks=values.argmax(1),
        weights=seen.spread.repeat_interleave(2),
        group=2,
    )


def _copies(seen: Seen, encoding: CursorEncoding, group: int) -> list[Picture]:
    layer = encoding.layers[group]
    assert isinstance(layer, CursorLayer)
    if seen.copy is None:
        return []
    names, source = seen.long_names(), seen.copy.source[0].transpose(0, 1)
    later = torch.ones_like(source[0], dtype=torch.bool).triu()
    return [
        Picture(
            f"Copy branch{seen.suffix}",
            "The probability that a query cursor takes the position of an earlier token. A row is "
            "the token at which it would, a column the earlier token; what a row lacks to 1 is the "
            "probability of no copy. Empty: not an earlier token.",
            tuple(names[c] for c in layer.copying),
            source.masked_fill(later, math.nan),
            TOKENS,
            Axis("earlier token"),
            span=(0.0, 1.0),
        )
    ]


def _by_position(scores: list[Tensor]) -> Picture:
    total = torch.cat([score.sum(1) for score in scores])  # (layers H, T, T)
    future = torch.ones_like(total[0], dtype=torch.bool).triu(1)
    heads = scores[0].shape[0]
    alone = total.masked_fill(future, -math.inf).softmax(-1)
    return Picture(
        "Attention by position alone",
        "The softmax of what the cursors of a head add to its logits: where it would look if the "
        "content of the tokens added nothing. Compare it with the attention above.",
        tuple(f"layer {i // heads}, head {i % heads}" for i in range(len(total))),
        alone.masked_fill(future, math.nan),
        Axis("query"),
        Axis("key"),
        span=(0.0, 1.0),
    )
