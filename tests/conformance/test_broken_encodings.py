"""The conformance suite catches encodings that are deliberately broken."""

from dataclasses import replace
from time import time_ns

import pytest
import torch
from torch import nn

import pezoo
from pezoo import testing
from pezoo.base import Columns, Encoding, Pairs, ParamGroup
from pezoo.testing import (
    caches,
    check_encoding,
    derivatives,
    far,
    heads,
    hooks,
    parameters,
    parametrize_with_checks,
    run_check,
    sequences,
)


class AbsoluteInDisguise(Encoding):
    relative = True

    def bias(self, q, k, ctx):
        return (ctx.query_pos[:, :, None] * ctx.pos[:, None, :])[:, None].to(q.dtype) / 100


class LooksAhead(Encoding):
    def bias(self, q, k, ctx):
        return (ctx.ids[:, -1:] * ctx.pos)[:, None, None].to(q.dtype) / 10


class DependsOnLength(Encoding):
    def bias(self, q, k, ctx):
        return (ctx.pos / ctx.pos.shape[1])[:, None, None].to(q.dtype)


class UnusedParameter(Encoding):
    def __init__(self, shape):
        super().__init__(shape)
        self.forgotten = nn.Parameter(torch.ones(3))
        self.used = nn.Parameter(torch.ones(shape.d_model))

    def embed(self, x, ctx):
        return x * self.used.to(x.dtype)


class HalfPositions(Encoding):
    def embed(self, x, ctx):
        return x + torch.sin(ctx.query_pos.to(x.dtype))[..., None]


class WrongDtype(Encoding):
    def bias(self, q, k, ctx):
        return -ctx.distance()[:, None].bfloat16()


class InFactors(Encoding):
    """q times a sinusoid of the distance."""

    def __init__(self, shape):
        super().__init__(shape)
        self.w = nn.Parameter(torch.ones(shape.n_heads, shape.d_head))

    def rows(self, q, ctx):
        return ctx.distance()[..., None, None].to(q.dtype).sin() * self.w.to(q.dtype)

    def bias(self, q, k, ctx):
        return torch.einsum("bhtk,btshk->bhts", q, self.rows(q, ctx))

    def bias_pairs(self, q, k, ctx):
        return Pairs(q, self.rows(q, ctx)) if len(ctx.pos) == 1 else None


class OtherPairs(InFactors):
    def bias_pairs(self, q, k, ctx):
        return Pairs(q, 2 * self.rows(q, ctx))


class PairsOfSamples(InFactors):
    def bias_pairs(self, q, k, ctx):
        return Pairs(q, self.rows(q, ctx))


class PairsForColumns(InFactors):
    def bias_columns(self, q, k, ctx):
        return self.bias_pairs(q, k, ctx)


class PairsOfAllKeys(InFactors):
    def bias_pairs(self, q, k, ctx):
        rows = torch.arange(k.shape[2])[:, None] - torch.arange(k.shape[2])
        return Pairs(q, rows[None, ..., None, None].to(q.dtype).sin() * self.w.to(q.dtype))


class PairsWithoutGradient(InFactors):
    def bias_pairs(self, q, k, ctx):
        return Pairs(q, self.rows(q, ctx).detach())


class SinglePairs(InFactors):
    def bias_pairs(self, q, k, ctx):
        return Pairs(q, self.rows(q.float(), ctx)) if len(ctx.pos) == 1 else None


class Steep(Encoding):
    """A bias that grows with the key's position."""

    factor = 1.0

    def bias(self, q, k, ctx):
        return ctx.pos[:, None, None].to(q.dtype)

    def bias_columns(self, q, k, ctx):
        slope = torch.full_like(q[..., :1], self.factor * self.shape.d_head**0.5)
        pos = ctx.pos[:, None, :, None].to(k.dtype).expand(*k.shape[:3], 1)
        return Columns(torch.cat([q, slope], -1), torch.cat([k, pos], -1))


class SteepTwice(Steep):
    factor = 2.0


class IgnoresTheTable(Steep):
    relative = reads_distance = True

    def bias(self, q, k, ctx):
        return -ctx.distance()[:, None].to(q.dtype)

    def bias_columns(self, q, k, ctx):
        pos = ctx.query_pos[:, None, :, None].to(q.dtype).expand(*q.shape[:3], 1)
        q, k = super().bias_columns(q, k, ctx)
        root = self.shape.d_head**0.5
        ones = torch.ones_like(k[..., :1])
        return Columns(torch.cat([q, -root * pos], -1), torch.cat([k, ones], -1))


class SteepQueriesAlone(Steep):
    def bias_columns(self, q, k, ctx):
        return Columns(super().bias_columns(q, k, ctx).q, k)


class GlobalDraw(Encoding):
    stochastic = True

    def bias(self, q, k, ctx):
        return torch.rand(q.shape[1], 1, k.shape[2]).to(q.dtype)


class RandomStart(Encoding):
    def __init__(self, shape):
        super().__init__(shape)
        self.w = nn.Parameter(torch.rand(1, generator=torch.Generator().manual_seed(time_ns())))

    def embed(self, x, ctx):
        return x * self.w.to(x.dtype)


class OwnColumns(Encoding):
    """A distance between columns, counted from the end of both: right in every cache."""

    relative = True

    def bias(self, q, k, ctx):
        return -self.columns(ctx).abs().to(q.dtype)[None, None]

    def columns(self, ctx):
        column = torch.arange(ctx.pos.shape[1], device=ctx.pos.device)
        return column[-ctx.new :, None] - column


class ReadsPositions(Encoding):
    relative = reads_distance = True

    def bias(self, q, k, ctx):
        return -(ctx.query_pos[:, :, None] - ctx.pos[:, None]).abs()[:, None].to(q.dtype)


class FirstLayerAlone(Encoding):
    def __init__(self, shape):
        super().__init__(shape)
        self.raw = nn.Parameter(torch.ones(shape.n_layers, shape.n_heads))

    def bias(self, q, k, ctx):
        return self.raw[0][:, None, None].to(q.dtype) * ctx.distance()[:, None]


class FirstHeadAlone(FirstLayerAlone):
    def bias(self, q, k, ctx):
        return self.raw[ctx.layer, :1, None, None].to(q.dtype) * ctx.distance()[:, None]


class DrawnToTheFuture(Encoding):
    relative = reads_distance = True

    def bias(self, q, k, ctx):
        return -ctx.distance()[:, None].to(q.dtype)


class LooksNowhere(Encoding):
    def bias(self, q, k, ctx):
        return torch.where(ctx.distance()[:, None] == 0, -torch.inf, 0.0)


class NoLongest(Encoding):
    max_len = 12

    def prepare(self, ctx):
        return replace(ctx, drawn=ctx.drawn or {})


class DrawsUnchecked(Encoding):
    max_len = 12

    def draw(self, ctx, *, generator=None, length=None, progress=None):
        return {}


class CountsFromOne(Encoding):
    max_len = 12

    def draw(self, ctx, *, generator=None, length=None, progress=None):
        return super().draw(replace(ctx, pos=ctx.pos + 1))


class AddsInPlace(Encoding):
    def embed(self, x, ctx):
        return x.add_(ctx.query_pos[..., None])


class AddsToData(Encoding):
    def embed(self, x, ctx):
        x.data += ctx.query_pos[..., None]
        return x


class ScalesInPlace(Encoding):
    def transform(self, q, k, ctx):
        q[..., 0] *= 2
        return q, k


class CountsPasses(Encoding):
    def __init__(self, shape):
        super().__init__(shape)
        self.register_buffer("seen", torch.zeros(1))

    def prepare(self, ctx):
        self.seen += 1
        return super().prepare(ctx)


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


class Overflows(Encoding):
    """xPos: keys grow as queries shrink."""

    relative = True

    def transform(self, q, k, ctx):
        power = torch.tensor(0.3, dtype=q.dtype).log() / 512
        grow = ctx.query_pos[:, None, :, None].to(q.dtype)
        return q * (grow * power).exp(), k * (-grow * power).exp()


class OverflowsInHalf(Encoding):
    def embed(self, x, ctx):
        return x * (1 + 2 * ctx.query_pos[..., None]).to(x.dtype)


class ReadsScale(Encoding):
    def bias(self, q, k, ctx):
        return (ctx.pos / ctx.scale[:, None])[:, None, None].to(q.dtype)


class DoesWithoutScale(ReadsScale):
    needs_scale = True

    def prepare(self, ctx):
        scale = ctx.pos.new_ones(1) if ctx.scale is None else ctx.scale
        return super().prepare(replace(ctx, scale=scale))


class OnTheCPU(Encoding):
    def embed(self, x, ctx):
        return x + torch.linspace(0, 1, x.shape[-1], dtype=x.dtype)


class RowsOnTheCPU(Encoding):
    def __init__(self, shape):
        super().__init__(shape)
        self.table = nn.Parameter(torch.ones(99, shape.d_model))

    def embed(self, x, ctx):
        rows = torch.arange(x.shape[1])
        return x + nn.functional.embedding(rows, self.table).to(x.dtype)


class AlwaysOnTheCPU(Encoding):
    def bias(self, q, k, ctx):
        return torch.zeros(q.shape[2], k.shape[2], dtype=q.dtype)


class GroupsOthers(FirstLayerAlone):
    def param_groups(self):
        return [ParamGroup([nn.Parameter(torch.ones(1))], lr=0.1)]


class GroupsTwice(FirstLayerAlone):
    def param_groups(self):
        return [ParamGroup([self.raw], lr=0.1), ParamGroup([self.raw], weight_decay=0.0)]


class PenaltyOfRows(FirstLayerAlone):
    def penalty(self):
        return self.raw.square()


class MixesBatch(Encoding):
    def embed(self, x, ctx):
        return x + x.roll(1, 0)


class Draws(Encoding):
    """What a subclass draws in training is added to the embedding."""

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


class DrawsForPadding(Draws):
    def embed(self, x, ctx):
        return super().embed(x, ctx) / ctx.pos.shape[1]


class DrawsTheWrongSize(Draws):
    def noise(self, ctx, generator):
        return torch.randn(ctx.new, ctx.batch, generator=generator)


class DrawsFromItsOwn(Draws):
    def noise(self, ctx, generator):
        return torch.randn(ctx.batch, ctx.new, 1)


class DrawsTwice(Draws):
    def embed(self, x, ctx):
        return super().embed(x, ctx) + 0.1 * torch.randn(1)


class DrawsInEvaluation(Draws):
    stochastic = False

    def draw(self, ctx, *, generator=None, length=None, progress=None):
        return {"draws.noise": self.noise(ctx, generator)}

    def embed(self, x, ctx):
        return x + ctx.drawn["draws.noise"].to(x.dtype)


class DrawnForNobody(Encoding):
    def prepare(self, ctx):
        return ctx


class DrawsForNobody(Draws):
    def prepare(self, ctx):
        return replace(ctx, drawn=ctx.drawn or {"draws.noise": torch.zeros(1)})


class AsksForValues(Encoding):
    def bias(self, q, k, ctx):
        return -ctx.distance()[:, None].float() / float(ctx.pos.max())


class ChoosesByAMask(Encoding):
    def bias(self, q, k, ctx):
        far = -ctx.distance()[:, None].float()
        far[far > 0] = 1.0
        return far - (far[far > 0].sum() if len(far[far > 0]) else 0)


class Blind(Encoding):
    pass


class TellsOfOne(Encoding):
    def prf(self, ctx):
        return torch.zeros_like(ctx.distance()[0])  # the bias knows many distances

    def bias(self, q, k, ctx):
        return (ctx.pos[:, None] - ctx.query_pos[:, :, None])[:, None].to(q.dtype)


class Infinite(Encoding):
    def embed(self, x, ctx):
        return x * torch.exp(20.0 * ctx.query_pos)[..., None].to(x.dtype)


class Forgets(Encoding):
    def __init__(self, shape):
        super().__init__(shape)
        self.secret = torch.randn(shape.d_model)  # neither a parameter nor a buffer

    def embed(self, x, ctx):
        return x + self.secret.to(x.dtype)


class ForgetsItsSeed(Encoding):
    def __init__(self, shape):
        super().__init__(shape)
        self.secret = torch.randn(()).item()

    def embed(self, x, ctx):
        return x + self.secret


class LeadsAstray(Encoding):
    def bias(self, q, k, ctx):
        return ctx.querypos


class NotAPair(Encoding):
    def transform(self, q, k, ctx):
        return q


class Keyless(Encoding):
    def bias(self, q, k, ctx):
        return ctx.distance()[..., None].to(q.dtype)


class ForgetsToReturn(Encoding):
    def __init__(self, shape):
        super().__init__(shape)
        self.w = nn.Parameter(torch.ones(shape.n_layers))

    def bias(self, q, k, ctx):
        self.w[ctx.layer] * ctx.distance()


class Wanders(Encoding):
    """Only beyond the training length is it wrong."""

    def bias(self, q, k, ctx):
        far = (torch.arange(k.shape[2]) - ctx.pos[0, -1] + ctx.new).clamp(min=20)
        return far.to(q.dtype).expand(ctx.new, -1)[None, None]


class HidesOptions(Encoding):
    def __init__(self, shape, **options):
        super().__init__(shape)


class Unannotated(Encoding):
    def __init__(self, shape, *, width=3):
        super().__init__(shape)


class Positional(Encoding):
    def __init__(self, shape, width: int = 3):
        super().__init__(shape)


class CountsPadding(Encoding):
    def embed(self, x, ctx):
        s = ctx.pos.shape[1]
        index = torch.arange(s)[None, s - ctx.new :]
        return x + index[..., None].to(x.dtype)


class StaysWithTheRow(Encoding):
    """Adds up the tokens in a tensor of the memo, which nobody can reorder."""

    keep = staticmethod(lambda sums: sums)

    def embed(self, x, ctx):
        before = torch.as_tensor(ctx.memo.get("sum", 0.0))
        sums = before + x[..., :1].cumsum(1)
        ctx.memo["sum"] = self.keep(sums[:, -1:])
        return x + sums


class Uncropped(torch.Tensor):
    def reorder(self, rows):
        return self[rows]


class StaysWithTheLength(StaysWithTheRow):
    keep = staticmethod(lambda sums: sums.as_subclass(Uncropped))


class ReadsOn(StaysWithTheRow):
    """Adds up the tokens of all documents."""


class CountsChunks(Encoding):
    def embed(self, x, ctx):
        return x + torch.arange(x.shape[1], dtype=x.dtype)[None, :, None]


class FallsWithDistance(Encoding):
    relative = reads_distance = True

    def bias(self, q, k, ctx):
        return -0.1 * self.far(ctx.distance()[:, None].abs()).to(q.dtype)


class DistancesInEightBits(FallsWithDistance):
    def far(self, distance):
        return distance.to(torch.int8)


class DistancesInSixteenBits(FallsWithDistance):
    def far(self, distance):
        return distance.to(torch.int16)


class DistancesFoldedBack(FallsWithDistance):
    def far(self, distance):
        return distance % 100


class AnglesInSixteenBits(Encoding):
    relative = True

    def transform(self, q, k, ctx):
        turn = torch.exp(1j * ctx.query_pos.to(torch.int16)[:, None, :, None].double())
        turned = (torch.view_as_complex(x.double().unflatten(-1, (-1, 2))) * turn for x in (q, k))
        return tuple(torch.view_as_real(x).flatten(-2) for x in turned)


class ClampedTable(Encoding):
    def __init__(self, shape):
        super().__init__(shape)
        self.table = nn.Parameter(torch.randn(shape.train_len, shape.d_model))

    def embed(self, x, ctx):
        row = ctx.query_pos.clamp(min=0, max=len(self.table) - 1)
        return x + nn.functional.embedding(row, self.table).to(x.dtype)


class LongClampedTable(ClampedTable):
    def __init__(self, shape):
        super().__init__(shape)
        self.table = nn.Parameter(torch.randn(40 * shape.train_len, shape.d_model))


class LogOfPadding(Encoding):
    def embed(self, x, ctx):
        return x + (ctx.query_pos - 0.5).log()[..., None].to(x.dtype)


class NarrowKeys(Encoding):
    def transform(self, q, k, ctx):
        return q[..., :4], k[..., :4]


class VersionInWords(Encoding):
    version = "2"


class SteeperWhenLong(FallsWithDistance):
    def bias(self, q, k, ctx):
        return (1 + (ctx.pos.shape[1] > 64)) * super().bias(q, k, ctx)

    def far(self, distance):
        return distance


class SteeperBeforeTheFar(FallsWithDistance):
    def bias(self, q, k, ctx):
        return (1 + (ctx.pos.amax() > 1000)) * super().bias(q, k, ctx)

    def far(self, distance):
        return distance


class CutsTheInput(Encoding):
    def embed(self, x, ctx):
        return x.detach() + ctx.query_pos[..., None].sin()


class CutsTheKeys(Encoding):
    def transform(self, q, k, ctx):
        return q, k.detach() * ctx.query_pos[:, None, :, None].cos()


class CutsTheBias(Encoding):
    def bias(self, q, k, ctx):
        with torch.no_grad():
            return q.sum(-1, keepdim=True) * ctx.distance()[:, None].cos()


class PenaltyWithoutGradient(FirstLayerAlone):
    def penalty(self):
        return self.raw.detach().square().sum()


class RefusesItsMode(Encoding):
    modes = ("other",)

    def embed(self, x, ctx):
        if ctx.mode == "other":
            raise RuntimeError("not yet")
        return x


class ChunksInAMode(Encoding):
    modes = ("other",)

    def embed(self, x, ctx):
        return x + (ctx.new if ctx.mode == "other" else 0)


class AnglesOfKeyHeads(Encoding):
    def transform(self, q, k, ctx):
        heads = torch.arange(self.shape.n_heads)[:, None, None]
        angle = ctx.query_pos[:, None, :, None] / 2.0 ** (1 + heads)
        return q * angle.cos().to(q.dtype), k * angle.cos().to(q.dtype)[:, : k.shape[1]]


class SumsOverLayers(FirstLayerAlone):
    def bias(self, q, k, ctx):
        return self.raw.sum(0)[:, None, None].to(q.dtype) * ctx.distance()[:, None]


class BufferNotSaved(Encoding):
    def __init__(self, shape):
        super().__init__(shape)
        self.register_buffer("slopes", torch.ones(shape.n_heads), persistent=False)


class KeepsThePass(FallsWithDistance):
    def prepare(self, ctx):
        ctx = super().prepare(ctx)
        self.back = lambda: ctx.distance()
        return ctx

    def bias(self, q, k, ctx):
        return -self.back().to(q.dtype)[:, None]


class ScaleOfTheFirstRow(Encoding):
    needs_scale = True

    def embed(self, x, ctx):
        return x + ctx.query_pos[..., None].to(x.dtype) / ctx.scale[0]


class AddsToTheScale(ScaleOfTheFirstRow):
    def embed(self, x, ctx):
        ctx.scale.add_(1)
        return super().embed(x, ctx)


class SeedsInAHook(Encoding):
    def embed(self, x, ctx):
        torch.manual_seed(7)
        return x


class SeedsWhenBuilt(Encoding):
    def __init__(self, shape):
        super().__init__(shape)
        torch.manual_seed(7)


class ChangesTheDtype(Encoding):
    def __init__(self, shape):
        super().__init__(shape)
        torch.set_default_dtype(torch.float64)


class StartsAtZeroTwice(FallsWithDistance):
    def __init__(self, shape):
        super().__init__(shape)
        self.one = nn.Parameter(torch.zeros(shape.n_layers))
        self.two = nn.Parameter(torch.zeros(shape.n_layers))

    def far(self, distance):
        return distance

    def bias(self, q, k, ctx):
        return super().bias(q, k, ctx) * (1 + self.one[ctx.layer] * self.two[ctx.layer])


class SteepAtTheStart(FallsWithDistance):
    def __init__(self, shape):
        super().__init__(shape)
        self.raw = nn.Parameter(torch.zeros(shape.n_heads))

    def bias(self, q, k, ctx):
        return -self.raw.abs().sqrt()[:, None, None].to(q.dtype) * ctx.distance()[:, None].abs()


class OtherInTraining(FallsWithDistance):
    def far(self, distance):
        return distance * (2 if self.training else 1)


class Exits(Encoding):
    def embed(self, x, ctx):
        raise SystemExit(0)


class HalfALength(Encoding):
    max_len = 20.5


class OneMode(Encoding):
    modes = "fast"


class DrawsAList(Encoding):
    def draw(self, ctx, **plan):
        return [super().draw(ctx, **plan)]


class GroupsInDicts(FirstLayerAlone):
    def param_groups(self):
        return [{"params": [self.raw]}]


BROKEN = [
    (KeepsThePass, "check_stateless", "bias changes when the hooks of another pass come between"),
    (ScaleOfTheFirstRow, "check_batch", "a row has the scale of another"),
    (AddsToTheScale, "check_inputs", "embed changes ctx.scale in place"),
    (SeedsInAHook, "check_inputs", "embed draws from torch's own generator, or seeds it"),
    (SeedsWhenBuilt, "check_constructible", "building it seeds torch's generator"),
    (ChangesTheDtype, "check_constructible", "building it changes torch's default dtype"),
    (StartsAtZeroTwice, "check_start", "the gradient of one, two is zero"),
    (SteepAtTheStart, "check_start", r"at its initial values the gradient of \['raw'\] is not"),
    (OtherInTraining, "check_stochastic", "computes something else in training"),
    (Exits, "check_shapes", "SystemExit: 0, at test_broken_encodings.py"),
    (HalfALength, "check_constructible", "max_len must be a whole number from 1 on, or None, was"),
    (OneMode, "check_constructible", "modes must be a tuple of names, was 'fast'"),
    (DrawsAList, "check_shapes", "draw: expected a dict, got list"),
    (GroupsInDicts, "check_training", "expected a list of pezoo.base.ParamGroup"),
    (AbsoluteInDisguise, "check_shift_invariance", "claims to be relative, but a shift by 1"),
    (AnglesInSixteenBits, "check_shift_invariance", "relative, but a shift by 32763"),
    (AnglesInSixteenBits, "check_far_values", r"transform: q: position 65536 \+ p is taken for p"),
    (DistancesInEightBits, "check_far_values", r"the logit at distance 256 \+ d is that at d"),
    (DistancesInSixteenBits, "check_far_values", r"the logit at distance 65536 \+ d is that"),
    (DistancesFoldedBack, "check_far_values", r"the logit at distance 100 \+ d is that at d"),
    (ClampedTable, "check_far_values", "embed: all positions from 15 on are alike, .* set max_len"),
    (LongClampedTable, "check_far_values", "embed: all positions from 65536 on are alike"),
    (LogOfPadding, "check_shapes", "embed: NaN. Padding has position -1: clamp it before"),
    (NarrowKeys, "check_shapes", r"transform: q \(2, 3, 9, 8\) became \(2, 3, 9, 4\)"),
    (VersionInWords, "check_constructible", "version must be a whole number from 1 on, was '2'"),
    (SteeperWhenLong, "check_prefix_stability", "a sequence of 260 tokens changes earlier"),
    (SteeperBeforeTheFar, "check_prefix_stability", "a later position of 70,000 changes earlier"),
    (SteeperBeforeTheFar, "check_batch", "far positions in another row of the batch change this"),
    (CutsTheInput, "check_derivatives", r"embed: the gradient in x is 0 .* keep detach\(\)"),
    (CutsTheKeys, "check_derivatives", "transform: the gradient in k is 0 where the value"),
    (CutsTheBias, "check_derivatives", "bias: the gradient in q is 0 where the value"),
    (PenaltyWithoutGradient, "check_training", "penalty: no gradient reaches a parameter"),
    (RefusesItsMode, "check_modes", r"RuntimeError: not yet, at .* in embed .*ctx.mode"),
    (ChunksInAMode, "check_modes", "in mode 'other', decoding in chunks differs"),
    (AnglesOfKeyHeads, "check_grouped_heads", "4 heads of queries share 1 of keys: other logits"),
    (SumsOverLayers, "check_own_layer", r"layer 0 reads that of layer \[1, 2, 3, 4\]: index it"),
    (BufferNotSaved, "check_state_dict", r"buffer slopes is not in state_dict\(\)"),
    (LooksAhead, "check_prefix_stability", "later tokens change earlier outputs"),
    (DependsOnLength, "check_prefix_stability", "a longer sequence changes earlier outputs"),
    (UnusedParameter, "check_gradients", "parameter forgotten gets no gradient"),
    (HalfPositions, "check_bfloat16", "in bfloat16 at position 20,000"),
    (WrongDtype, "check_shapes", "as q, float32 or float64, got torch.bfloat16"),
    (OtherPairs, "check_bias_forms", "Pairs differs from bias"),
    (PairsOfSamples, "check_bias_forms", "return None where samples differ"),
    (PairsForColumns, "check_bias_forms", "bias_columns: expected a Columns, got Pairs"),
    (PairsOfAllKeys, "check_bias_forms", r"rows must be \(1, T, S, H, P\)"),
    (PairsWithoutGradient, "check_bias_forms", "another gradient of w than bias"),
    (SteepTwice, "check_bias_forms", "Columns differs from bias"),
    (SteepQueriesAlone, "check_bias_forms", r"must be \(B, H, T, W\) and \(B, H, S, W\)"),
    (SinglePairs, "check_bias_forms", "expected the dtype of q"),
    (GlobalDraw, "check_deterministic", "draw at random in draw alone"),
    (GlobalDraw, "check_state_dict", "two passes over the same tokens differ"),
    (RandomStart, "check_deterministic", "draw initial values from torch's generator"),
    (OwnColumns, "check_positions", "take positions from ctx.pos and ctx.distance"),
    (ReadsPositions, "check_distances", "reads_distance is claimed, but ctx.distances"),
    (IgnoresTheTable, "check_bias_forms", "Columns differs from bias"),
    (FirstLayerAlone, "check_layers", r"but layer \[1, 2, 3, 4\] gets no gradient: index it"),
    (FirstHeadAlone, "check_layers", r"but head \[1, 2\] gets no gradient: read all heads"),
    (DrawnToTheFuture, "check_future", r"take ctx.distance\(\).abs\(\), or set causal_only"),
    (LooksNowhere, "check_deterministic", "not finite: a query may look at no key"),
    (AddsToData, "check_inputs", "embed changes x in place"),
    (NoLongest, "check_max_len", r"prepare takes position 12 .* ctx = super\(\).prepare\(ctx\)"),
    (DrawsUnchecked, "check_max_len", r"draw takes position 12 .* super\(\).draw\(ctx\)"),
    (CountsFromOne, "check_max_len", "max_len is 12, but draw refuses 11"),
    (AddsInPlace, "check_inputs", "embed changes x in place, which the model still needs"),
    (ScalesInPlace, "check_inputs", "transform changes q in place"),
    (CountsPasses, "check_inputs", "prepare changes seen in place"),
    (RemembersTheLast, "check_stateless", "a pass changes the passes after it"),
    (RemembersChunks, "check_stateless", "decoding changes when other passes come between"),
    (Overflows, "check_far", "not finite at position 50,000 in torch.float32"),
    (OverflowsInHalf, "check_far", "not finite at position 50,000 in torch.float16"),
    (ReadsScale, "check_scale", "set needs_scale = True"),
    (DoesWithoutScale, "check_scale", r"begin it with ctx = super\(\).prepare\(ctx\)"),
    (DrawsInEvaluation, "check_stochastic", "set stochastic = True"),
    (OnTheCPU, "check_device", "add meets tensors of two devices: make tensors with device"),
    (RowsOnTheCPU, "check_device", "embedding meets tensors of two devices"),
    (AlwaysOnTheCPU, "check_device", "bias: on the CPU, q elsewhere"),
    (GroupsOthers, "check_training", "a tensor that is none of its parameters"),
    (GroupsTwice, "check_training", "holds a parameter twice"),
    (PenaltyOfRows, "check_training", "expected a finite scalar tensor"),
    (DrawnForNobody, "check_shapes", r"prepare: begin it with ctx = super\(\).prepare\(ctx\)"),
    (MixesBatch, "check_batch", "samples of a batch see each other"),
    (DrawsForThePart, "check_parts", "a batch in parts is not the whole"),
    (DrawsTheWrongSize, "check_drawn", r"must be \(B\|1, T, ...\) with B, T = 3, 10"),
    (DrawsFromItsOwn, "check_drawn", "use the generator it is given"),
    (DrawsTwice, "check_drawn", "all randomness belongs in draw"),
    (DrawsForNobody, "check_drawn", r"prepare must begin with ctx = super\(\).prepare"),
    (DrawsTwice, "check_pure", "randn draws random numbers: do that in draw"),
    (AsksForValues, "check_pure", "_local_scalar_dense asks for values of a tensor"),
    (ChoosesByAMask, "check_pure", "index asks for values of a tensor"),
    (DrawsForPadding, "check_right_padding", "padding on the right changes what is before it"),
    (Blind, "check_order", "set order_blind = True"),
    (Infinite, "check_long", "not finite at four times the training length"),
    (Forgets, "check_state_dict", "secret holds a tensor or a module that state_dict"),
    (ForgetsItsSeed, "check_state_dict", "a loaded state_dict computes something else"),
    (LeadsAstray, "check_shapes", r"'querypos', at test_broken_encodings.py:\d+ in bias"),
    (NotAPair, "check_shapes", "transform: expected a tuple, got Tensor"),
    (Keyless, "check_shapes", r"\(B, H, T, S\) = \(2, 3, 9, 9\), got \(1, 9, 9, 1\)"),
    (ForgetsToReturn, "check_gradients", "no hook returns what depends on them"),
    (Wanders, "check_long", "decoding beyond the training length of 16 differs"),
    (HidesOptions, "check_constructible", r"\*\*options hides which there are"),
    (Unannotated, "check_constructible", "option width needs an annotation, such as width: int"),
    (Positional, "check_constructible", "option width must be keyword-only"),
    (CountsPadding, "check_left_padding", "padding on the left moves positions"),
    (StaysWithTheRow, "check_cache", r"decoding differs after ctx.memo.reorder, see .*Memo"),
    (StaysWithTheLength, "check_cache", r"decoding differs after ctx.memo.crop\(-2\)"),
    (ReadsOn, "check_documents", r"packed documents see each other: begin anew where ctx.document"),
    (TellsOfOne, "check_prf", "pairs of positions the same value, but their logits"),
    (CountsChunks, "check_streaming", "decoding in chunks of"),
]


@pytest.mark.parametrize(("cls", "check", "words"), BROKEN, ids=lambda x: getattr(x, "__name__", x))
def test_a_broken_encoding_is_caught(cls, check, words):
    with pytest.raises(AssertionError, match=words) as caught:
        run_check(next(one for one in testing.CHECKS if one.__name__ == check), cls)
    assert str(caught.value).startswith(f"{check}: ")
    with pytest.raises(AssertionError, match=r"^check_"):
        check_encoding(cls)


class WithTheTokenBefore(Encoding):
    def embed(self, x, ctx):
        return x + nn.functional.pad(x, (0, 0, 1, 0))[:, :-1]


def test_a_first_token_that_differs_is_no_clamped_table():
    run_check(far.check_far_values, WithTheTokenBefore)
    with pytest.raises(AssertionError, match="set max_len"):
        run_check(far.check_far_values, ClampedTable)


class ColumnsOfTheFirstRow(FallsWithDistance):
    def bias(self, q, k, ctx):
        return super().bias(q, k, replace(ctx, pos=ctx.pos[:1]))

    def far(self, distance):
        return distance


class BiasWithoutHeads(FallsWithDistance):
    def bias(self, q, k, ctx):
        return -ctx.distance().to(q.dtype)


class SquaresInPlace(Encoding):
    def transform(self, q, k, ctx):
        return q.mul_(2), k


FIRST = [
    (ColumnsOfTheFirstRow, "check_batch: a row has the positions of another"),
    (BiasWithoutHeads, r"check_shapes: bias: expected what broadcasts to \(B, H, T, S\)"),
    (SquaresInPlace, "check_inputs: transform changes q in place"),
    (OwnColumns, "check_positions: padding between tokens moves them"),
    (LogOfPadding, "check_shapes: embed: NaN. Padding has position -1"),
]


@pytest.mark.parametrize(("cls", "words"), FIRST, ids=lambda x: getattr(x, "__name__", ""))
def test_the_first_complaint_is_the_plain_one(cls, words):
    with pytest.raises(AssertionError, match=f"^{words}"):
        check_encoding(cls)


def test_state_may_be_kept_by_any_hook():
    class Sums:
        def __init__(self, each):
            self.each = each  # (B, S) what each token added

        def reorder(self, rows):
            return Sums(self.each[rows])

        def crop(self, length):
            return Sums(self.each[:, :length])

    class RunningSum(Encoding):
        def embed(self, x, ctx):
            new = x.mean(-1) * (ctx.query_pos >= 0)
            seen = ctx.memo["sum"].each if "sum" in ctx.memo else new[:, :0]
            every = torch.cat([seen.to(new.dtype), new], 1)
            ctx.memo["sum"] = Sums(every)
            return x + every.cumsum(1)[:, -new.shape[1] :, None]

    run_check(derivatives.check_derivatives, RunningSum)
    run_check(caches.check_cache, RunningSum)


def test_every_check_has_caught_something_broken():
    caught = {check for _, check, _ in BROKEN}
    assert caught == {check.__name__ for check in testing.CHECKS}


def test_a_bias_in_factors_passes():
    check_encoding(InFactors)


def test_a_bias_in_columns_passes():
    check_encoding(Steep)


def test_a_number_for_each_layer_and_head_passes():
    class OfLayersAndHeads(FallsWithDistance):
        def __init__(self, shape):
            super().__init__(shape)
            self.layers = nn.Parameter(torch.ones(shape.n_layers))
            self.heads = nn.Parameter(torch.ones(shape.n_heads))

        def bias(self, q, k, ctx):
            factors = self.layers[ctx.layer] * self.heads[:, None, None]
            return factors.to(q.dtype) * super().bias(q, k, ctx)

        def far(self, distance):
            return distance

    run_check(parameters.check_layers, OfLayersAndHeads)
    run_check(heads.check_own_layer, OfLayersAndHeads)


def test_a_bias_may_read_the_input_of_its_layer():
    class Forgets(FallsWithDistance):
        def __init__(self, shape):
            super().__init__(shape)
            self.gate = nn.Parameter(torch.ones(shape.n_layers, shape.d_model))

        def bias(self, q, k, ctx):
            gate = (ctx.x @ self.gate[ctx.layer].to(ctx.x.dtype)).sigmoid()  # (B, T)
            return gate[:, None, :, None] * super().bias(q, k, ctx)

        def far(self, distance):
            return distance

    run_check(hooks.check_shapes, Forgets)


def test_not_constructible():
    def picky(shape):
        if shape.n_layers == 1:
            raise RuntimeError("one layer is too few")
        return Blind(shape)

    with pytest.raises(AssertionError, match="check_constructible: RuntimeError: one layer"):
        check_encoding(picky)
    with pytest.raises(AssertionError, match="expected an Encoding, got Linear"):
        check_encoding(lambda shape: nn.Linear(1, 1))


def test_a_lie_about_order_blindness_is_caught():
    class Liar(WrongDtype):
        order_blind = True

        def bias(self, q, k, ctx):
            return super().bias(q, k, ctx).to(q.dtype)

    with pytest.raises(AssertionError, match="declared order-blind, but the order changes"):
        run_check(sequences.check_order, Liar)


def test_expected_failures():
    def nope(shape):
        return pezoo.make("nope", shape)

    check_encoding(Blind, expected_failures={"check_order": "it encodes nothing"})
    with pytest.raises(AssertionError, match="check_long passes now"):
        check_encoding(nope, expected_failures={"check_long": "it was too long"})
    for reason in ("", "   "):
        with pytest.raises(ValueError, match="check_order needs a written reason"):
            check_encoding(Blind, expected_failures={"check_order": reason})
    with pytest.raises(ValueError, match="no check is called 'check_ordr'"):
        check_encoding(Blind, expected_failures={"check_ordr": "a typing error"})


def test_expected_failures_of_parametrize_with_checks():
    with pytest.raises(ValueError, match="needs a written reason"):
        parametrize_with_checks({"blind": Blind}, {"blind": {"check_order": ""}})
    with pytest.raises(ValueError, match="names no such encoding: blnd"):
        parametrize_with_checks({"blind": Blind}, {"blnd": {"check_order": "misspelt"}})
    mark = parametrize_with_checks({"blind": Blind}, {"blind": {"check_order": "nothing there"}})
    cases = {case.id: case.values for case in mark.args[1]}
    assert len(cases) == len(testing.CHECKS)
    check, factory = cases["blind-order"]
    check(factory)


def test_building_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    testing.build(lambda shape: pezoo.make("learned", shape))
    assert torch.equal(before, torch.get_rng_state())
