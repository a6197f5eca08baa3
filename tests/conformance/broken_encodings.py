"""Encodings with one fault each, the check that must catch it, and words of its message."""

from dataclasses import replace
from time import time_ns
from typing import NamedTuple

import torch
from torch import nn

from pezoo import FoX, RoPE, Window, XPos
from pezoo.base import Columns, Encoding, ParamGroup, ScoreMod

BROKEN = []
RELATIVE = {"relative": True, "reads_distance": True}


class Case(NamedTuple):
    check: str
    words: str
    cls: type[Encoding]


def broken(check, words, base=Encoding, **body):
    """Add a subclass of `base` with this body, or `base` itself without one."""
    cls = type("Own", (base,), body) if body else base
    BROKEN.append(Case(f"check_{check}", words, cls))


def embeds(check, words, embed, **body):
    """Add an encoding by its embed(x, ctx)."""
    broken(check, words, embed=lambda self, x, ctx: embed(x, ctx).to(x.dtype), **body)


def biases(check, words, bias, **body):
    """Add an encoding by its bias(ctx), (B|1, T, S), which serves all heads."""
    broken(check, words, bias=lambda self, q, k, ctx: bias(ctx)[:, None].to(q.dtype), **body)


def built(do=lambda self, shape: None, **weights):
    """An __init__ that makes parameters, each by a function of the shape, and then does `do`."""

    def __init__(self, shape):
        Encoding.__init__(self, shape)
        for name, weight in weights.items():
            setattr(self, name, nn.Parameter(weight(shape)))
        do(self, shape)

    return {"__init__": __init__}


def falling(far=lambda self, distance: distance, factor=lambda self, ctx: 1):
    """A bias that falls with the distance."""

    def bias(self, q, k, ctx):
        distance = far(self, ctx.distance()[:, None].abs()).to(q.dtype)
        return -0.1 * factor(self, ctx) * distance

    return {**RELATIVE, "bias": bias}


class Raw(Encoding):
    """A number for each layer and head."""

    def __init__(self, shape):
        super().__init__(shape)
        self.raw = nn.Parameter(torch.ones(shape.n_layers, shape.n_heads))

    def factor(self, ctx):
        return self.raw[ctx.layer]

    def bias(self, q, k, ctx):
        return self.factor(ctx)[:, None, None].to(q.dtype) * ctx.distance()[:, None]


# How it is built.

broken("constructible", "version must be", version="2")
broken("constructible", "transfrom changes nothing; did you mean .*'transform'", transfrom=1)
broken("constructible", "bais changes nothing; did you mean .*'bias'", bais=1)
broken("constructible", "relatve changes nothing; did you mean .*'relative'", relatve=True)
broken("constructible", "max_len must be", max_len=20.5)
broken("constructible", "modes must be a tuple", modes="fast")
broken(
    "constructible", "seeds torch's generator", **built(lambda self, shape: torch.manual_seed(7))
)
broken(
    "constructible",
    "torch's default dtype",
    **built(lambda self, shape: torch.set_default_dtype(torch.float64)),
)


def options(words, init):
    broken("constructible", words, __init__=init)


options(r"not \*\*options", lambda self, shape, **options: Encoding.__init__(self, shape))
options("width needs an anno", lambda self, shape, *, width=3: Encoding.__init__(self, shape))
options("width must be keyword-only", lambda self, shape, width=3: Encoding.__init__(self, shape))

# Types and shapes of what hooks return.

broken("shapes", "draw: .* dict", draw=lambda self, ctx, **plan: [{}])
broken("shapes", r"super\(\)\.prepare\(ctx\)", prepare=lambda self, ctx: ctx)
broken("shapes", "transform: .* tuple", transform=lambda self, q, k, ctx: q)
broken("shapes", "transform: q", transform=lambda self, q, k, ctx: (q[..., :4], k[..., :4]))
broken("shapes", "bfloat16", bias=lambda self, q, k, ctx: -ctx.distance()[:, None].bfloat16())
broken(
    "shapes",
    r"\(B, H, T, S\) = \(2, 3, 9, 9\), got \(1, 9, 9, 1\)",
    bias=lambda self, q, k, ctx: ctx.distance()[..., None].to(q.dtype),
)
broken(
    "shapes",
    r"\(2, 3, 2, 9\), got \(2, 1, 2, 2\): the last 2 tokens .* ctx.with_earlier",
    bias=lambda self, q, k, ctx: -(ctx.x.sum(-1)[:, :, None] - ctx.x.sum(-1)[:, None])[:, None],
)


class WithoutHeads(Encoding):
    def bias(self, q, k, ctx):
        return torch.ones(3, 1, 1) * ctx.distance().expand(len(q), -1, -1)


broken("shapes", r"in bias: \[:, None\] gives ctx.distance\(\)", WithoutHeads)
embeds("shapes", "embed: NaN. Padding", lambda x, ctx: x + (ctx.query_pos - 0.5).log()[..., None])


def leads_astray(self, q, k, ctx):
    return ctx.querypos


def exits(self, x, ctx):
    raise SystemExit(0)


broken("shapes", r"'querypos', at broken_encodings.py:\d+ in leads_astray", bias=leads_astray)
broken("shapes", "SystemExit: 0, at broken_encodings.py", embed=exits)

# What they do to their inputs, and what they keep.

embeds("inputs", "embed changes x", lambda x, ctx: x.add_(ctx.query_pos[..., None]))
broken("inputs", "transform changes q", transform=lambda self, q, k, ctx: (q.mul_(2), k))
embeds("inputs", "ctx.scale in-", lambda x, ctx: x / ctx.scale.add_(1)[0], needs_scale=True)
embeds("inputs", "torch's default generator", lambda x, ctx: (torch.manual_seed(7), x)[1])
broken(
    "inputs",
    "prepare changes seen",
    **built(lambda self, shape: self.register_buffer("seen", torch.zeros(1))),
    prepare=lambda self, ctx: (self.seen.add_(1), Encoding.prepare(self, ctx))[1],
)


class AddsToData(Encoding):
    def embed(self, x, ctx):
        x.data += ctx.query_pos[..., None]
        return x


class KeepsThePass(Encoding):
    def prepare(self, ctx):
        ctx = super().prepare(ctx)
        self.back = lambda: ctx.distance()
        return ctx

    def bias(self, q, k, ctx):
        return -self.back().to(q.dtype)[:, None]


class RemembersTheLast(Encoding):
    """The longest sequence so far divides the distance."""

    longest = 1

    def bias(self, q, k, ctx):
        self.longest = max(self.longest, ctx.pos.shape[1])
        return -ctx.distance()[:, None].to(q.dtype) / self.longest


class RemembersChunks(Encoding):
    """The sum of the tokens so far, in self and not in ctx.memo."""

    def embed(self, x, ctx):
        first = ctx.new == ctx.pos.shape[1]
        sums = x.cumsum(1) + (0 if first else self.total)
        self.total = sums[:1, -1:] if len(x) == 1 else sums[:, -1:]
        return sums * (ctx.query_pos >= 0)[..., None]


broken("inputs", "embed changes x in-place", AddsToData)


class ScalesCachedKeys(Encoding):
    """Changes the keys of the cache, which a whole pass has not."""

    def bias(self, q, k, ctx):
        if ctx.new < k.shape[2]:
            k[:, :, : -ctx.new] *= 0.5


broken("inputs", "with a cache, bias changes k in-place", ScalesCachedKeys)
broken("stateless", "bias changes if", KeepsThePass)
broken("stateless", "changes later passes", RemembersTheLast)
broken("stateless", "if other passes run in between", RemembersChunks)


class StaysWithTheRow(Encoding):
    """Adds up the tokens, of all documents, in a tensor that `reorder` cannot reach."""

    keep = staticmethod(lambda sums: sums)

    def embed(self, x, ctx):
        before = torch.as_tensor(ctx.memo.get("sum", 0.0))
        sums = before + x[..., :1].cumsum(1)
        ctx.memo["sum"] = self.keep(sums[:, -1:])
        return x + sums


class Uncropped(torch.Tensor):
    def reorder(self, rows):
        return self[rows]


class AddsAtEachCall(Encoding):
    def bias(self, q, k, ctx):
        ctx.memo["sum"] = ctx.memo.get("sum", 0.0) + ctx.x.mean(-1)[:, None, :, None]
        return ctx.memo["sum"]


broken("recomputed", "activation checkpointing", AddsAtEachCall)
broken("cache", "memo.reorder", StaysWithTheRow)
broken(
    "cache",
    r"memo.crop\(-2\)",
    StaysWithTheRow,
    keep=staticmethod(lambda sums: sums.as_subclass(Uncropped)),
)
broken("documents", "packed documents", StaysWithTheRow)

# Determinism and what is saved.


class GlobalDraw(Encoding):
    stochastic = True

    def bias(self, q, k, ctx):
        return torch.rand(q.shape[1], 1, k.shape[2]).to(q.dtype)


broken("deterministic", "only in draw", GlobalDraw)
broken(
    "deterministic",
    "sets self.last",
    bias=lambda self, q, k, ctx: setattr(self, "last", ctx.distance()[:, None].to(q.dtype)),
)
broken("state_dict", "after load_state_dict", GlobalDraw)
broken(
    "deterministic",
    "use torch's generator",
    **built(w=lambda shape: torch.rand(1, generator=torch.Generator().manual_seed(time_ns()))),
    embed=lambda self, x, ctx: x * self.w.to(x.dtype),
)
biases("deterministic", "any key", lambda ctx: torch.where(ctx.distance() == 0, -torch.inf, 0.0))
broken(
    "state_dict",
    "secret holds a tensor",
    **built(lambda self, shape: setattr(self, "secret", torch.randn(shape.d_model))),
    embed=lambda self, x, ctx: x + self.secret.to(x.dtype),
)
broken(
    "state_dict",
    "after load_state_dict",
    **built(lambda self, shape: setattr(self, "secret", torch.randn(()).item())),
    embed=lambda self, x, ctx: x + self.secret,
)
broken(
    "state_dict",
    "buffer slopes",
    **built(lambda self, shape: self.register_buffer("slopes", torch.ones(3), persistent=False)),
)

broken(
    "reset",
    r"\.item\(\) cannot",
    **built(lambda self, shape: torch.ones(shape.n_heads).sum().item()),
)
broken("reset", "raw has values", **built(raw=lambda shape: torch.ones(3, device="cpu")))
broken("reset", "gives raw other", Raw, reset_parameters=lambda self: nn.init.zeros_(self.raw))

# Parameters and gradients.

broken(
    "gradients",
    "forgotten gets no gradient",
    **built(forgotten=lambda shape: torch.ones(3), used=lambda shape: torch.ones(shape.d_model)),
    embed=lambda self, x, ctx: x * self.used.to(x.dtype),
)


broken("gradients", "no hook's output", Raw, bias=lambda self, q, k, ctx: None)
broken(
    "start",
    "one, two is zero",
    **built(
        one=lambda shape: torch.zeros(shape.n_layers), two=lambda shape: torch.zeros(shape.n_layers)
    ),
    **falling(factor=lambda self, ctx: 1 + self.one[ctx.layer] * self.two[ctx.layer]),
)
broken(
    "start",
    r"\['raw'\] is not",
    **built(raw=lambda shape: torch.zeros(shape.n_heads)),
    **falling(factor=lambda self, ctx: self.raw.abs().sqrt()[:, None, None]),
)
broken("layers", r"layer \[1, 2, 3, 4\]", Raw, factor=lambda self, ctx: self.raw[0])
broken("layers", r"head \[1, 2\]", Raw, factor=lambda self, ctx: self.raw[ctx.layer, :1])
broken("own_layer", r"of layers \[1, 2, 3, 4\]", Raw, factor=lambda self, ctx: self.raw.sum(0))
broken(
    "training",
    "not a parameter",
    Raw,
    param_groups=lambda self: [ParamGroup([nn.Parameter(torch.ones(1))], lr=0.1)],
)
broken(
    "training",
    "twice",
    Raw,
    param_groups=lambda self: [ParamGroup([self.raw]), ParamGroup([self.raw])],
)
broken("training", "ParamGroup", Raw, param_groups=lambda self: [{"params": [self.raw]}])
broken("training", "finite scalar", Raw, penalty=lambda self: self.raw.square())
broken("training", "no gradient reaches", Raw, penalty=lambda self: self.raw.detach().sum())
broken("training", "not finite", Raw, penalty=lambda self: (0 * self.raw).square().sum().sqrt())
broken("shapes", "weights: expected a Tensor", weights=lambda self, logits, ctx: "softmax")
embeds("derivatives", "embed: .* in x", lambda x, ctx: x.detach() + ctx.query_pos[..., None].sin())
broken(
    "derivatives",
    "transform: the gradient in k",
    transform=lambda self, q, k, ctx: (q, k.detach() * ctx.query_pos[:, None, :, None].cos()),
)
broken(
    "derivatives",
    "bias: the gradient in q",
    bias=lambda self, q, k, ctx: q.detach().sum(-1, keepdim=True) * ctx.distance()[:, None].cos(),
)
broken(
    "derivatives",
    "weights: the gradient in logits",
    weights=lambda self, logits, ctx: logits.detach().softmax(-1),
)
biases("derivatives", r"bias: .* in ctx\.x", lambda ctx: ctx.x.detach().sum(-1, keepdim=True))

biases("derivatives", r"ctx\.w_key", lambda ctx: ctx.w_key.detach().sum() * ctx.distance().cos())
broken(
    "derivatives",
    "penalty: the gradient in raw",
    Raw,
    penalty=lambda self: (self.raw * self.raw.detach()).sum(),
)


class PassesOn(Encoding):
    """Keeps in the memo, without its gradient, what `bias` adds to the logits."""

    def transform(self, q, k, ctx):
        ctx.memo[f"{ctx.layer}"] = q.detach().sum(-1, keepdim=True)
        return q, k

    def bias(self, q, k, ctx):
        return ctx.memo[f"{ctx.layer}"] * ctx.distance()[:, None].cos()


broken("derivatives", "bias: the gradient in q of transform", PassesOn)


class CountsTraining(Raw):
    """Grows with each pass of training."""

    def __init__(self, shape):
        super().__init__(shape)
        self.passes = 0

    def bias(self, q, k, ctx):
        self.passes += self.training and torch.is_grad_enabled()
        return super().bias(q, k, ctx) * (1 + self.passes)


broken("stateless", "a pass changes later passes", CountsTraining)
biases(
    "batch", "the number of samples", lambda ctx: ctx.distance().cos() * (1 + (len(ctx.ids) > 4))
)


class OfLogs(Raw):
    """Has a gradient of NaN where a token is padding, though torch.where drops its value."""

    def bias(self, q, k, ctx):
        p = ctx.pos[:, None, None].to(q.dtype)
        return torch.where(p >= 0, self.raw.sum() * torch.log1p(p), 0.0).to(q.dtype)


broken("gradients", "with padding the gradient of raw is not finite", OfLogs)


class OnlyInFloat64(Raw):
    """Has a wrong gradient in the types that models are trained in."""

    def bias(self, q, k, ctx):
        raw = self.raw if q.dtype == torch.float64 else 2 * self.raw - self.raw.detach()
        return raw.sum().to(q.dtype) * ctx.distance()[:, None].cos().to(q.dtype)


broken("gradients", "in float32 the gradient of raw differs", OnlyInFloat64)


class FromEmbed(Encoding):
    """Keeps in the memo, without its gradient, what `bias` adds to the logits of all layers."""

    def embed(self, x, ctx):
        ctx.memo["own"] = x.detach().sum(-1)[:, None, :, None]
        return x

    def bias(self, q, k, ctx):
        return ctx.memo["own"] * ctx.distance()[:, None].cos()


broken("derivatives", "bias: the gradient in x of embed", FromEmbed)


class Flipped(torch.autograd.Function):
    """The identity, with a gradient of the wrong sign."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return -grad


def flips(when):
    """Add a bias with a gradient of the wrong sign where when(self, ctx) is true."""

    def factor(self, ctx):
        raw = self.raw[ctx.layer]
        return torch.where(when(self, ctx), Flipped.apply(raw), raw)

    broken("derivatives", "bias: the gradient in raw", Raw, factor=factor)


flips(lambda self, ctx: torch.tensor(True))
flips(lambda self, ctx: torch.arange(self.shape.n_heads) == self.shape.n_heads - 1)
flips(lambda self, ctx: torch.tensor(ctx.layer > 0))
flips(lambda self, ctx: torch.tensor(self.training))

# Other forms of the bias.


def in_form(kind, of, words, form):
    """Add a subclass of `of` by the form(self, q, k, ctx) that it returns for a kind."""
    broken(
        "bias_forms",
        words,
        of,
        bias_form=lambda self, q, k, ctx, asked: form(self, q, k, ctx) if asked is kind else None,
    )


class Steep(Encoding):
    """A bias that grows with the key's position."""

    factor = 1.0

    def bias(self, q, k, ctx):
        return ctx.pos[:, None, None].float()

    def columns(self, q, k, ctx):
        slope = torch.full_like(q[..., :1], self.factor * self.shape.d_head**0.5)
        pos = ctx.pos[:, None, :, None].to(k.dtype).expand(*k.shape[:3], 1)
        return Columns(torch.cat([q, slope], -1), torch.cat([k, pos], -1))

    def bias_form(self, q, k, ctx, kind):
        return self.columns(q, k, ctx) if kind is Columns else None


class IgnoresTheTable(Steep):
    relative = reads_distance = True

    def bias(self, q, k, ctx):
        return -ctx.distance()[:, None].to(q.dtype)

    def columns(self, q, k, ctx):
        pos = ctx.query_pos[:, None, :, None].to(q.dtype).expand(*q.shape[:3], 1)
        q, k = super().columns(q, k, ctx)
        ones = torch.ones_like(k[..., :1])
        return Columns(
            torch.cat([q, -(self.shape.d_head**0.5) * pos], -1), torch.cat([k, ones], -1)
        )


broken("bias_forms", "Columns differs", Steep, factor=2.0)
broken("bias_forms", "Columns differs", IgnoresTheTable)
broken(
    "bias_forms",
    "kind=ScoreMod.* got Columns",
    Steep,
    bias_form=lambda self, q, k, ctx, kind: self.columns(q, k, ctx),
)
in_form(
    Columns,
    Steep,
    r"Columns: k: .*\(B, H, S, W\)",
    lambda self, q, k, ctx: Columns(self.columns(q, k, ctx).q, k),
)


class InScores(Encoding):
    """A slope of each head times the distance, as a function of one pair."""

    relative = reads_distance = True

    def __init__(self, shape):
        super().__init__(shape)
        self.slope = nn.Parameter(torch.ones(shape.n_layers, shape.n_heads))

    def bias(self, q, k, ctx):
        return -self.slope[ctx.layer][:, None, None].to(q.dtype) * ctx.distance().abs()[:, None]

    def bias_form(self, q, k, ctx, kind):
        slope = self.slope[ctx.layer].to(q.dtype)
        form = ScoreMod(lambda h, i, j: -slope[h] * ctx.distance(i, j).abs())
        return form if kind is ScoreMod else None


def in_scores(words, value):
    """Add an encoding by its value(slope, ctx, h, i, j)."""

    def form(self, q, k, ctx):
        slope = self.slope[ctx.layer].to(q.dtype)
        return ScoreMod(lambda h, i, j: value(slope, ctx, h, i, j))

    in_form(ScoreMod, InScores, words, form)


in_scores("ScoreMod differs", lambda slope, ctx, h, i, j: slope[h] * ctx.distance(i, j).abs())
in_scores("ScoreMod differs", lambda slope, ctx, h, i, j: -slope[h] * (i - j).abs())
in_scores(
    "gradient of slope", lambda slope, ctx, h, i, j: -slope.data[h] * ctx.distance(i, j).abs()
)
in_scores(
    "of one pair", lambda slope, ctx, h, i, j: -slope[h] * ctx.distance(i, j).abs() * j.ne(j.min())
)
in_form(
    ScoreMod,
    InScores,
    "in layer 1",
    lambda self, q, k, ctx: InScores.bias_form(self, q, k, replace(ctx, layer=0), ScoreMod),
)
broken("bias_forms", "bias returns None", InScores, bias=lambda self, q, k, ctx: None)


class AnglesOfKeyHeads(Encoding):
    def transform(self, q, k, ctx):
        heads = torch.arange(self.shape.n_heads)[:, None, None]
        angle = ctx.query_pos[:, None, :, None] / 2.0 ** (1 + heads)
        return q * angle.cos().to(q.dtype), k * angle.cos().to(q.dtype)[:, : k.shape[1]]


broken("grouped_heads", "1 key heads", AnglesOfKeyHeads)

# Order, length and shift.

broken("order", "order_blind = True")
broken("order", "order_blind is True", order_blind=True, **falling())
biases("prefix_stability", "later tokens", lambda ctx: (ctx.ids[:, -1:] * ctx.pos / 10)[:, None])
biases("prefix_stability", "a longer", lambda ctx: (ctx.pos / ctx.pos.shape[1])[:, None])
broken("prefix_stability", "260", **falling(factor=lambda self, ctx: 1 + (ctx.pos.shape[1] > 64)))


class SteeperBeforeTheFar(Encoding):
    bias = falling(factor=lambda self, ctx: 1 + (ctx.pos.amax() > 1000))["bias"]


broken("prefix_stability", "70,000", SteeperBeforeTheFar)
broken("batch", "positions of another", SteeperBeforeTheFar)
biases(
    "shift_invariance",
    "positions by 1 ",
    lambda ctx: ctx.query_pos[:, :, None] * ctx.pos[:, None] / 100,
    relative=True,
)


class AnglesInSixteenBits(Encoding):
    relative = True

    def transform(self, q, k, ctx):
        turn = torch.exp(1j * ctx.query_pos.to(torch.int16)[:, None, :, None].double())
        turned = (torch.view_as_complex(x.double().unflatten(-1, (-1, 2))) * turn for x in (q, k))
        return tuple(torch.view_as_real(x).flatten(-2) for x in turned)


broken("shift_invariance", "32763", AnglesInSixteenBits)
broken("far_values", r"q: position 65536 \+ p", AnglesInSixteenBits)
broken("far_values", r"256 \+ d", **falling(lambda self, distance: distance.to(torch.int8)))
broken("far_values", r"65536 \+ d", **falling(lambda self, distance: distance.to(torch.int16)))
broken("far_values", r"300 \+ d", **falling(lambda self, distance: distance % 300))
broken(
    "far_values",
    r"100 \+ d equals .* set max_len",
    **falling(lambda self, distance: distance % 100),
)


class ClampedTable(Encoding):
    lengths = 1

    def __init__(self, shape):
        super().__init__(shape)
        self.table = nn.Parameter(torch.randn(self.lengths * shape.train_len, shape.d_model))

    def embed(self, x, ctx):
        row = ctx.query_pos.clamp(min=0, max=len(self.table) - 1)
        return x + nn.functional.embedding(row, self.table).to(x.dtype)


broken("far_values", "from 15 on .* set max_len", ClampedTable)
broken("far_values", "from 65536 on", ClampedTable, lengths=40)


class Wanders(Encoding):
    """Only beyond the training length is it wrong."""

    def bias(self, q, k, ctx):
        far = (torch.arange(k.shape[2]) - ctx.pos[0, -1] + ctx.new).clamp(min=20)
        return far.to(q.dtype).expand(ctx.new, -1)[None, None]


class Overflows(Encoding):
    """xPos: keys grow as queries shrink."""

    relative = True

    def transform(self, q, k, ctx):
        power = torch.tensor(0.3, dtype=q.dtype).log() / 512
        grow = ctx.query_pos[:, None, :, None].to(q.dtype)
        return q * (grow * power).exp(), k * (-grow * power).exp()


broken("long", "beyond the training length", Wanders)
embeds("long", "not finite at four", lambda x, ctx: x * (20.0 * ctx.query_pos[..., None]).exp())
broken("far", "position 50,000 in torch.float32", Overflows)
embeds("far", "in torch.float16", lambda x, ctx: x * (1 + 2 * ctx.query_pos[..., None]).to(x.dtype))
embeds(
    "far",
    "5,990 in torch.float16",
    lambda x, ctx: x * (1 + 20 * ctx.query_pos[..., None]).to(x.dtype),
    max_len=6000,
)
embeds("bfloat16", "in bfloat16", lambda x, ctx: x + ctx.query_pos.to(x.dtype).sin()[..., None])


class SumsInBfloat16(FoX):
    def bias(self, q, k, ctx):
        return super().bias(q, k, replace(ctx, x=ctx.x.to(q.dtype)))

    def log_gates(self, ctx):
        return super().log_gates(ctx).to(ctx.x.dtype)


broken("bfloat16", "attention to 200 tokens", SumsInBfloat16)
biases("bfloat16", "large constants", lambda ctx: 300 - ctx.distance() / 9, causal_only=True)
broken(
    "bfloat16",
    "under bfloat16 autocast",
    bias=lambda self, q, k, ctx: (ctx.distance()[..., None].float() @ torch.full((1,), 7.7)).sin()[
        :, None
    ],
)
broken(
    "default_dtype",
    "logits: off by .* of its size if torch.bfloat16 is the default",
    **built(rate=lambda shape: torch.ones(1)),
    bias=lambda self, q, k, ctx: -self.rate * (ctx.distance()[:, None] / 7),
)
embeds(
    "default_dtype",
    "embedded: infinite .* torch.float16",
    lambda x, ctx: x + (ctx.query_pos * 20.0).frac()[..., None],
)
broken(
    "default_dtype",
    "NotImplementedError: .*BFloat16",
    **built(turn=lambda shape: nn.init.orthogonal_(torch.empty(8, 8))),
)

# Batches, padding and decoding.

embeds("batch", "samples of a batch", lambda x, ctx: x + x.roll(1, 0))
embeds(
    "batch",
    "scale of another",
    lambda x, ctx: x + ctx.query_pos[..., None] / ctx.scale[0],
    needs_scale=True,
)


class OwnColumns(Encoding):
    """A distance between columns, counted from the end of both: right in every cache."""

    relative = True

    def bias(self, q, k, ctx):
        column = torch.arange(ctx.pos.shape[1], device=ctx.pos.device)
        return -(column[-ctx.new :, None] - column).abs().to(q.dtype)[None, None]


broken("positions", "take positions from ctx.pos", OwnColumns)
embeds(
    "positions",
    "padding changes",
    lambda x, ctx: x + torch.arange(ctx.pos.shape[1])[-ctx.new :, None],
)
embeds("streaming", "in chunks of", lambda x, ctx: x + torch.arange(x.shape[1])[:, None])


class SharesItsLaterLayers(FoX):
    def sums(self, ctx):
        return super().sums(replace(ctx, layer=min(ctx.layer, 1)))


broken("streaming", "a key of its own in each layer", SharesItsLaterLayers)


def slots_of_the_first_columns(x, ctx):
    return x + ctx.slots[:, : ctx.new, None]


def slots_from_the_first(x, ctx):
    """Count slots from the first token of the row, across documents."""
    return x + (ctx.slots - ctx.slots[:, :1])[:, -ctx.new :, None]


for check, words in (("streaming", "not 0 to T - 1"), ("cache", "after ctx.memo.reorder")):
    embeds(check, words, slots_of_the_first_columns, needs_slots=True)
for check, words in (("documents", "ctx.document rises"), ("positions", "padding changes")):
    embeds(check, words, slots_from_the_first, needs_slots=True)

# What is drawn.


ZERO = torch.zeros(1, 1, 1)


class Draws(Encoding):
    """Adds to the embedding what a subclass draws in training."""

    stochastic = True

    def draw(self, ctx, *, generator=None, length=None, progress=None):
        drawn = super().draw(ctx)
        return {"draws.noise": self.noise(ctx, generator)} if self.training else drawn

    def noise(self, ctx, generator):
        return torch.randn(ctx.batch, ctx.new, 1, generator=generator)

    def embed(self, x, ctx):
        return x + ctx.drawn["draws.noise"].to(x.dtype) if self.training else x


class DrawsForThePart(Draws):
    """A number for each row, which is no size that a row can be told from."""

    def noise(self, ctx, generator):
        return torch.randn(ctx.batch, generator=generator)

    def embed(self, x, ctx):
        noise = ctx.drawn["draws.noise"][: len(x), None, None] if self.training else 0
        return x + noise


class DrawsTwice(Draws):
    def embed(self, x, ctx):
        return super().embed(x, ctx) + 0.1 * torch.randn(1)


class DrawsInEvaluation(Draws):
    stochastic = False

    def draw(self, ctx, *, generator=None, length=None, progress=None):
        return {"draws.noise": self.noise(ctx, generator)}

    def embed(self, x, ctx):
        return x + ctx.drawn["draws.noise"].to(x.dtype)


broken("parts", "a batch in parts", DrawsForThePart)
broken(
    "right_padding",
    "padding on the right",
    Draws,
    embed=lambda self, x, ctx: Draws.embed(self, x, ctx) / ctx.pos.shape[1],
)
broken(
    "drawn",
    r"B, T = 3, 10",
    Draws,
    noise=lambda self, ctx, generator: torch.randn(ctx.new, ctx.batch, generator=generator),
)
broken(
    "drawn",
    "default generator",
    Draws,
    noise=lambda self, ctx, generator: torch.randn(ctx.batch, ctx.new, 1),
)
broken("drawn", "in draw only", DrawsTwice)
broken(
    "drawn",
    r"super\(\)\.prepare",
    Draws,
    prepare=lambda self, ctx: replace(ctx, drawn=ctx.drawn or {"draws.noise": ZERO}, prepared=True),
)
broken("pure", "draws random numbers", DrawsTwice)
biases("pure", "reads values", lambda ctx: -ctx.distance() / float(ctx.pos.max()))


class ChoosesByAMask(Encoding):
    def bias(self, q, k, ctx):
        far = -ctx.distance()[:, None].float()
        far[far > 0] = 1.0
        return far - (far[far > 0].sum() if len(far[far > 0]) else 0)


broken("pure", "index reads values", ChoosesByAMask)
broken("stochastic", "stochastic = True", DrawsInEvaluation)
broken(
    "stochastic",
    "training and evaluation",
    **falling(lambda self, distance: distance * (2 if self.training else 1)),
)

# Claims.


class TakesAnyPosition(Encoding):
    max_len = 12

    def prepare(self, ctx):
        return replace(ctx, drawn=ctx.drawn or {})


class ReadsScale(Encoding):
    def bias(self, q, k, ctx):
        return (ctx.pos / ctx.scale[:, None])[:, None, None].to(q.dtype)


class DoesWithoutScale(ReadsScale):
    needs_scale = True

    def prepare(self, ctx):
        scale = ctx.pos.new_ones(1) if ctx.scale is None else ctx.scale
        return super().prepare(replace(ctx, scale=scale))


class DoesWithoutSlots(Encoding):
    needs_slots = True

    def prepare(self, ctx):
        return super().prepare(ctx if ctx.slots is not None else replace(ctx, slots=ctx.pos))


class RefusesItsMode(Encoding):
    modes = ("other",)

    def embed(self, x, ctx):
        if ctx.mode == "other":
            raise RuntimeError("not yet")
        return x


class TurnsPairs(Encoding):
    """As rope, but for the options that it ignores."""

    rope_within = 0

    def __init__(self, shape, *, base=1e4, layout="half", rope_parameters="default"):
        super().__init__(shape)
        self.rope = RoPE(
            shape, **self.kept(base=base, layout=layout, rope_parameters=rope_parameters)
        )

    def kept(self, **options):
        return options

    def prepare(self, ctx):
        return self.rope.prepare(ctx)

    def transform(self, q, k, ctx):
        return self.rope.transform(q, k, ctx)


class WindowOfNine(Window):
    def __init__(self, shape):
        super().__init__(shape, size=9)
        self.rope_within = 20


broken("rotation", "holds a rope", **built(lambda self, shape: setattr(self, "rope", RoPE(shape))))
broken("rotation", "lacks the options base, layout, rope_parameters", rope_within=0)
broken("rotation", "is 9, but the output for 9 tokens is not that of rope", XPos, rope_within=9)
for name in ("base", "layout", "rope_parameters"):
    broken(
        "rotation",
        "ignores one of the options",
        TurnsPairs,
        kept=lambda self, name=name, **options: {k: x for k, x in options.items() if k != name},
    )
broken("rotation", "is 20, but the output for 20 tokens is not that of rope", WindowOfNine)
broken("max_len", r"prepare accepts position 12 .* super\(\)\.prepare", TakesAnyPosition)
broken("max_len", "draw accepts position 12", max_len=12, draw=lambda self, ctx, **plan: {})
broken(
    "max_len",
    "draw refuses position 11",
    max_len=12,
    draw=lambda self, ctx, **plan: Encoding.draw(self, replace(ctx, pos=ctx.pos + 1)),
)
broken(
    "causal_only",
    "FoX within it is causal_only",
    **built(lambda self, shape: setattr(self, "inner", FoX(shape))),
    bias=lambda self, q, k, ctx: self.inner.bias(q, k, ctx),
)
broken(
    "causal_only",
    "not finite without a causal mask",
    weights=lambda self, logits, ctx: (
        logits.softmax(-1) * (logits.softmax(-1).tril().sum(-1, True) - 0.9).sqrt()
    ),
)
broken("scale", "needs_scale = True", ReadsScale)
broken("scale", r"super\(\)\.prepare\(ctx\)", DoesWithoutScale)
embeds("slots", "needs_slots = True", lambda x, ctx: x + ctx.slots[:, -ctx.new :, None])
broken("slots", r"super\(\)\.prepare\(ctx\)", DoesWithoutSlots)
broken("modes", "RuntimeError: not yet, at .* in embed", RefusesItsMode)
embeds(
    "modes",
    "in chunks .* in mode 'other'",
    lambda x, ctx: x + (ctx.new if ctx.mode == "other" else 0),
    modes=("other",),
)
biases(
    "distances",
    "reads_distance is True",
    lambda ctx: -(ctx.query_pos[:, :, None] - ctx.pos[:, None]).abs(),
    **RELATIVE,
)
biases(
    "heads",
    "of a later head",
    lambda ctx: -ctx.distance().abs(),
    **RELATIVE,
    heads_with_positions=1,
)
embeds("axes", "set axes to how many", lambda x, ctx: x + ctx.places()[:, -ctx.new :, :1])
broken("axes", "but coords do not change the output", axes=2)
embeds(
    "axes",
    "coords that equal pos on 2 axes",
    lambda x, ctx: x + ctx.query_pos[..., None] + ctx.places()[:, -ctx.new :].sum(-1, True),
    axes=2,
)
biases(
    "axes",
    "shifting axis 1 by 1 ",
    lambda ctx: ctx.offset(2)[..., 0] * ctx.places(2)[:, None, :, 1],
    axes=2,
    relative=True,
)
biases(
    "axes",
    "in chunks .* with coords",
    lambda ctx: ctx.offset(2)[..., 1] * ctx.places(2)[..., 1].amax(),
    axes=2,
)
biases("future", r"abs\(\), or set causal_only", lambda ctx: -ctx.distance(), **RELATIVE)
broken(
    "future",
    r"abs\(\), or set causal_only",
    **RELATIVE,
    **built(rate=lambda shape: torch.full((shape.n_heads, 1, 1), 0.1)),  # the checks turn some
    bias=lambda self, q, k, ctx: -self.rate * ctx.distance()[:, None],
)
broken(
    "both_sides",
    "0 earlier and 39 later ones differ .* absolute distance",
    **RELATIVE,
    bias=lambda self, q, k, ctx: -ctx.distance().clamp(max=4).abs()[:, None].to(q.dtype),
)
biases(
    "prf",
    "prf is the same",
    lambda ctx: ctx.pos[:, None] - ctx.query_pos[:, :, None],
    prf=lambda self, ctx: torch.zeros_like(ctx.distance()[0]),  # the bias knows many distances
)

# Devices.

embeds("device", "add gets tensors of two", lambda x, ctx: x + torch.linspace(0, 1, x.shape[-1]))
broken(
    "device",
    "embedding gets tensors",
    **built(table=lambda shape: torch.ones(99, shape.d_model)),
    embed=lambda self, x, ctx: (
        x + nn.functional.embedding(torch.arange(x.shape[1]), self.table).to(x.dtype)
    ),
)
broken(
    "device",
    "bias: is on the CPU",
    bias=lambda self, q, k, ctx: torch.zeros(q.shape[2], k.shape[2], dtype=q.dtype),
)
