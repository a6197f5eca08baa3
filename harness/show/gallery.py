"""One page with a picture of every encoding: what it does to equal tokens, over the distance."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.resources import files

import torch
from jinja2 import Environment
from torch import Tensor

from leaderboard.catalog import Catalog
from leaderboard.record.read import RECORDS, load
from leaderboard.stats.costs import by_encoding
from leaderboard.stats.tables import tables
from leaderboard.text import reach_text
from pezoo.base import Context, Encoding, Shape
from pezoo.registry import make

TOKENS, TASK = 64, "copy"
SHAPE = Shape(d_model=64, n_heads=4, d_head=16, n_layers=2, train_len=TOKENS)
KINDS = {
    "distance": "Reading the distance",
    "position": "Reading positions",
    "text": "Reading the text",
    "": "Others",
}
WIDTH, HEIGHT = 200, 90  # of a thumbnail, in pixels


@dataclass(frozen=True)
class Card:
    """One encoding of the gallery; `lines` are of the heads, `why` says why there are none."""

    name: str
    summary: str
    kind: str
    lines: tuple[str, ...]
    low: float
    high: float
    why: str
    reach: str
    cost: str


def heads(encoding: Encoding) -> Tensor:
    """Return what the last of TOKENS equal tokens gives to the one d back, (H, TOKENS) over d.

    q and k are the token's embedding, cut into heads, with what the encoding adds to it; the result
    is the logit less that without positions, or where the encoding replaces softmax the logarithm
    of the weight over that of equal weights. Weights are those of a new encoding, in evaluation.
    """
    draw = torch.Generator().manual_seed(0)
    token = torch.randn(1, 1, SHAPE.d_model, generator=draw)
    x, line = token.expand(1, TOKENS, -1), torch.arange(TOKENS)[None]
    told = {"ids": torch.zeros_like(line), "slots": line, "scale": torch.tensor([TOKENS])}
    w_key = torch.eye(SHAPE.d_model)
    ctx = encoding.prepare(Context(line, x=x, w_key=w_key, **told))
    embedded = encoding.embed(x, ctx)
    ctx = ctx.at(0, embedded, w_key)
    cut = embedded.unflatten(-1, (SHAPE.n_heads, -1)).transpose(1, 2)
    q, k = encoding.transform(cut, cut, ctx)
    plain = token.unflatten(-1, (SHAPE.n_heads, -1)).square().sum(-1).flatten()[:, None]
    scores = encoding.scores(q, k, ctx)
    logits = q @ k.mT / math.sqrt(SHAPE.d_head) if scores is None else scores
    bias = encoding.bias(q, k, ctx)
    logits = logits if bias is None else logits + bias
    later = torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1)
    logits = logits.expand(1, SHAPE.n_heads, -1, -1).masked_fill(later, -math.inf)
    weights = encoding.weights(logits, ctx) if encoding.replaces_softmax else None
    if weights is None:
        return (logits[0, :, -1] - plain / math.sqrt(SHAPE.d_head)).flip(-1)
    return (weights[0, :, -1] * TOKENS).log().flip(-1)


def gallery(names: Iterable[str], catalog: Catalog) -> str:
    """Return the page of these encodings, with reach and cost where records have them."""
    found, _ = load([RECORDS / "quick" / TASK])
    rows = {row.label: reach_text(row) for table in tables(found, catalog) for row in table.rows}
    costs = {name: f"{one.train:.1f}x" for name, one in by_encoding().items()}
    every = [card(name, rows.get(name, ""), costs.get(name, "")) for name in names]
    groups = [(head, [one for one in every if one.kind == kind]) for kind, head in KINDS.items()]
    text = files("harness.show").joinpath("gallery.html").read_text("utf-8")
    page = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(text)
    return page.render(groups=groups, tokens=TOKENS, task=TASK, width=WIDTH, height=HEIGHT)


def card(name: str, reach: str = "", cost: str = "") -> Card:
    """Return the card of one encoding."""
    torch.manual_seed(0)
    encoding = make(name, SHAPE).eval()
    kind = next(kind for kind in KINDS if encoding.reads.startswith(kind))
    try:
        with torch.no_grad():
            curves, why = heads(encoding).round(decimals=5) + 0.0, ""
    except ValueError as error:
        curves, why = torch.zeros(0, TOKENS), str(error)
    seen = curves[curves.isfinite()]
    low, high = (float(seen.min()), float(seen.max())) if len(seen) else (0.0, 0.0)
    lines = tuple(_path(curve, low, high) for curve in curves.tolist())
    return Card(name, encoding.summary, kind, lines, low, high, why, reach, cost)


def _path(curve: list[float], low: float, high: float) -> str:
    """Return an SVG path through (distance, value); hidden keys are gaps."""

    def points() -> Iterator[str]:
        begun = False
        for distance, value in enumerate(curve):
            x = distance * WIDTH / (len(curve) - 1)
            y = HEIGHT * ((high - value) / (high - low) if high - low > 1e-6 else 0.5)
            if math.isfinite(value):
                yield f"{'L' if begun else 'M'}{x:.1f} {y:.1f}"
            begun = math.isfinite(value)

    return "".join(points())
