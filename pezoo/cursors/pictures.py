"""Pictures of learned cursors: their parameters; and token by token, what they do."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from einops import rearrange, repeat
from torch import Tensor

from pezoo.base import Pass
from pezoo.cursors.encoding import CursorEncoding
from pezoo.cursors.layer import CursorLayer
from pezoo.cursors.positions import Gates
from pezoo.kernels.histogram import Copy, steps_of
from pezoo.pictures import Axis, Picture

TOKENS = Axis("token")
VISIBLE = 0.01  # offsets that no cursor holds with more than this are cut off


@dataclass(frozen=True)
class Cursors:
    """One layer of cursors over a sequence of T tokens: G of them, the queries' first."""

    layer: CursorLayer
    unit: str  # "layer.head" or "layer.head.cursor"
    names: tuple[str, ...]  # of the G/2 pairs of a query cursor and a key cursor
    suffix: str  # of titles
    reset: Tensor  # (T, G)
    moves: Tensor  # (T, G, J)
    copy: Copy | None
    histograms: Tensor  # (T, G, L) Pr(offset)
    offsets: Tensor  # (L,)
    spread: Tensor  # (G/2,)

    @property
    def long_names(self) -> list[str]:
        """ "layer 0, head 1" for "0.1"."""
        pairs = [zip(self.unit.split("."), name.split("."), strict=True) for name in self.names]
        return [", ".join(map(" ".join, pair)) for pair in pairs]


@torch.no_grad()
def pictures(encoding: CursorEncoding, layers: Sequence[Pass]) -> list[Picture]:
    """Return the pictures of an encoding with cursors, see `Encoding.pictures`."""
    scores = [_scores(encoding, ctx) for ctx in layers]
    found = constants(encoding)
    for group in range(len(encoding.starts)):
        cursors = _cursors(encoding, group, layers, scores)
        found += [_gates(cursors), _modes(cursors), _histograms(cursors), *_copies(cursors)]
    return [*found, _attention_by_position(scores)]


def _scores(encoding: CursorEncoding, ctx: Pass) -> Tensor:
    """Return each cursor's share of the logits of one layer, (H, C, T, T) (Equation 9)."""
    group = encoding.group_of(ctx.layer)
    streams = encoding.memory(group, ctx).streams[ctx.layer - encoding.starts[group]]
    split = "t h (c d) -> h c t d"
    q, k = (rearrange(e[0], split, d=encoding.options.width) for e in streams)
    score: Tensor = q @ k.mT
    return score / math.sqrt(encoding.shape.d_head)


def _spread(score: Tensor) -> Tensor:
    """Return the deviation of a score (H, C, T, T) over keys, averaged over queries: (H, C)."""
    t = score.shape[-1]
    causal = torch.ones(t, t, dtype=score.dtype, device=score.device).tril()
    count = causal.sum(-1, keepdim=True)
    mean = (score * causal).sum(-1, keepdim=True) / count
    variance = ((score - mean).square() * causal).sum(-1) / count[:, 0]
    return variance.sqrt().mean(-1)


def _cursors(
    encoding: CursorEncoding, group: int, layers: Sequence[Pass], scores: Sequence[Tensor]
) -> Cursors:
    served = encoding.served(group)
    layer, ctx = encoding.layers[group], layers[served.start]
    assert isinstance(layer, CursorLayer)
    assert ctx.x is not None
    x = ctx.x if group == 0 else encoding.norms[group - 1](ctx.x)
    features = layer.features(x, ctx)
    reset, moves = layer.gates(features, ctx)
    copy = None
    if layer.copying:
        copy, _ = layer.copy_branch(x, features, None, None, ctx.mode == "snapped")
    histograms, offsets = layer.scan.positions(Gates(reset, moves, layer.gamma, copy))
    learned = [_spread(scores[i]).flatten() for i in served]
    return Cursors(
        layer, *cursor_names(encoding, group), title_suffix(encoding, group),
        reset[0], moves[0], copy, histograms[0], offsets, torch.cat(learned),
    )  # fmt: skip


def _gates(cursors: Cursors) -> Picture:
    words = {1: "increment", -1: "decrement", 0: "keep"}
    steps = steps_of(cursors.layer.options.stride)
    order = [*range(2), len(steps) - 1, *range(2, len(steps) - 1)]  # increment, decrement, keep
    gates = [cursors.reset, *(cursors.moves[..., j] for j in order)]
    return Picture(
        f"Gates{cursors.suffix}",
        "The probability of each move at each token (paper's Figures 11 and 12): a cursor resets "
        f"or not, then makes one of the other moves. A row is a cursor, {cursors.unit}: q "
        "moves for queries, k for keys. A column that stands out is a token that cursors react to.",
        ("reset", *(words.get(steps[j], f"step {steps[j]:+d}") for j in order)),
        rearrange(gates, "gate token cursor -> gate cursor token"),
        Axis("cursor", tuple(f"{role} {name}" for role in "qk" for name in cursors.names)),
        TOKENS,
        limits=(0.0, 1.0),
    )


def _modes(cursors: Cursors) -> Picture:
    modes = cursors.offsets[cursors.histograms.argmax(-1)].float()  # (T, G)
    return Picture(
        f"Most probable positions{cursors.suffix}",
        "The most probable offset of each cursor after each token. A query attends to the keys "
        f"whose cursor of the same name ({cursors.unit}) has the same offset as its own, plus its "
        "lead where it learns one: look for equal colours in the two panels.",
        ("queries", "keys"),
        rearrange(modes, "token (role cursor) -> role cursor token", role=2),
        Axis("cursor", cursors.names),
        TOKENS,
    )


def _histograms(cursors: Cursors) -> Picture:
    used = (cursors.histograms > VISIBLE).any(0).any(0).nonzero()[:, 0]
    visible = torch.arange(int(used.max()), int(used.min()) - 1, -1)  # the largest offset on top
    values = rearrange(
        cursors.histograms[..., visible],
        "token (role cursor) offset -> (cursor role) offset token",
        role=2,
    )
    return Picture(
        f"Positions that cursors hold{cursors.suffix}",
        "Pr(offset) after each token, a column each, and the most probable offset as a line "
        f"(paper's Figures 13 to 17), from the {cursors.layer.scan.source}. Each pair of panels is "
        "a query cursor and the key cursor that it is compared with: the query at a token finds "
        "the keys at which the second line is as high as the first line is at the query, plus the "
        "pair's lead where it learns one. Pairs are "
        "sorted by how far their score tells keys apart on the last example.",
        tuple(f"{name}: {role}" for name in cursors.long_names for role in ("query", "key")),
        values,
        Axis("offset", tuple(str(int(d)) for d in cursors.offsets[visible])),
        TOKENS,
        limits=(0.0, 1.0),
        lines=values.argmax(1),
        importance=repeat(cursors.spread, "cursor -> (cursor role)", role=2),
        group=2,
        meets=True,
    )


def _copies(cursors: Cursors) -> list[Picture]:
    if cursors.copy is None:
        return []
    source = rearrange(cursors.copy.source[0], "token cursor earlier -> cursor token earlier")
    later = torch.ones_like(source[0], dtype=torch.bool).triu()
    return [
        Picture(
            f"Copy branch{cursors.suffix}",
            "The probability that a query cursor takes the position of an earlier token. A row is "
            "the token at which it does, a column the earlier token; what a row lacks to 1 is the "
            "probability of no copy. Grey: not an earlier token.",
            tuple(cursors.long_names[c] for c in cursors.layer.copying),
            source.masked_fill(later, math.nan),
            TOKENS,
            Axis("earlier token"),
            limits=(0.0, 1.0),
        )
    ]


def _attention_by_position(scores: Sequence[Tensor]) -> Picture:
    total = torch.stack([score.sum(1) for score in scores])  # (layers, H, T, T)
    future = torch.ones_like(total[0, 0], dtype=torch.bool).triu(1)
    alone = total.masked_fill(future, -math.inf).softmax(-1).masked_fill(future, math.nan)
    layers, heads = map(range, total.shape[:2])
    return Picture(
        "Attention by position alone",
        "The softmax of what the cursors of a head add to its logits: its attention if the content "
        "of the tokens added nothing. Compare it with the attention above.",
        tuple(f"layer {i}, head {j}" for i in layers for j in heads),
        rearrange(alone, "layer head query key -> (layer head) query key"),
        Axis("query"),
        Axis("key"),
        limits=(0.0, 1.0),
    )


def constants(encoding: CursorEncoding) -> list[Picture]:
    """Return pictures of content's share, of each cursor's weight (Eq. 9), and of sharpness."""
    layers = tuple(f"layer {i}" for i in range(encoding.shape.n_layers))
    heads, one = range(encoding.shape.n_heads), [str(c) for c in range(encoding.options.cursors)]
    names = [f"{head}.{c}" if len(one) > 1 else str(head) for head in heads for c in one]
    cursors = Axis("head.cursor" if len(one) > 1 else "head", tuple(names))
    mu = rearrange(encoding.mu.sigmoid(), "layer head -> layer head 1")
    alpha = encoding.alpha.abs()
    row = "layer head cursor -> layer 1 (head cursor)"
    return [
        Picture(
            "Content against position: mu",
            "The share mu of content in each head's score, 1 - mu is that of position.",
            layers, rearrange(mu, row), Axis("mu", ("",)), Axis("head", tuple(map(str, heads))),
            "bars", (0.0, 1.0),
        ),
        Picture(
            "Weights of the cursors: (1 - mu) |alpha|",
            "The factor of each cursor's score (Equation 9).",
            layers, rearrange(alpha * (1 - mu), row), Axis("(1 - mu) |alpha|", ("",)), cursors,
            "bars",
        ),
        Picture(
            "Weights of the cursors: |alpha|",
            "The learned weight of each cursor within its head.",
            layers, rearrange(alpha, row), Axis("|alpha|", ("",)), cursors, "bars",
        ),
        *_leads(encoding, layers, cursors),
        *[one for group in range(len(encoding.starts)) for one in _sharpness(encoding, group)],
    ]  # fmt: skip


def _leads(encoding: CursorEncoding, layers: tuple[str, ...], cursors: Axis) -> list[Picture]:
    if encoding.lead is None:
        return []
    return [
        Picture(
            "Leads of the cursors",
            "What is added to a query cursor's offset where it is compared with its key cursor's.",
            layers, rearrange(encoding.lead.detach(), "layer head cursor -> layer 1 (head cursor)"),
            Axis("lead", ("",)), cursors, "bars",
        )
    ]  # fmt: skip


def _sharpness(encoding: CursorEncoding, group: int) -> list[Picture]:
    """Return a picture of the sharpness of one layer of cursors, if it is learned."""
    layer, suffix = encoding.layers[group], title_suffix(encoding, group)
    assert isinstance(layer, CursorLayer)
    gamma = layer.gamma
    if gamma is None:
        return []
    return [
        Picture(
            f"Sharpness of the cursors: gamma{suffix}",
            "After each move a histogram is raised to this power. 1 is the minimum: no sharpening.",
            ("queries", "keys"),
            rearrange(gamma, "(role cursor) -> role 1 cursor", role=2),
            Axis("gamma", ("",)),
            Axis(*cursor_names(encoding, group)),
            "bars",
        )
    ]


def title_suffix(encoding: CursorEncoding, group: int) -> str:
    start = encoding.starts[group]
    return f", cursors before layer {start}" if len(encoding.starts) > 1 else ""


def cursor_names(encoding: CursorEncoding, group: int) -> tuple[str, tuple[str, ...]]:
    """Return the format of names, and a name for each pair of a query and a key cursor."""
    cursors, heads = encoding.options.cursors, range(encoding.shape.n_heads)
    pairs = [(layer, head) for layer in encoding.served(group) for head in heads]
    if cursors == 1:
        return "layer.head", tuple(f"{layer}.{head}" for layer, head in pairs)
    names = (f"{layer}.{head}.{c}" for layer, head in pairs for c in range(cursors))
    return "layer.head.cursor", tuple(names)
