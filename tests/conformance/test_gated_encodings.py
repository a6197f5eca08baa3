"""Correct encodings whose bias reads x, q, k or the memo pass every check."""

import pytest
import torch
from torch import nn

from pezoo.adapters import attention_mask
from pezoo.base import Columns, Encoding
from pezoo.testing import check_encoding, parametrize_with_checks, run_check, sequences


class Forgetting(Encoding):
    """c = cumsum(log sigmoid(W LN(x) + b)), bias_ij = c_i - c_j (Forgetting Transformer)."""

    causal_only = relative = True

    def __init__(self, shape):
        super().__init__(shape)
        self.weight = nn.Parameter(0.1 * torch.randn(shape.n_layers, shape.n_heads, shape.d_model))
        self.offset = nn.Parameter(torch.full((shape.n_layers, shape.n_heads), 2.0))

    def sums(self, ctx):
        """Return the sums of the log gates up to each token, (B, H, S)."""
        x = nn.functional.layer_norm(ctx.x, ctx.x.shape[-1:])
        weight, offset = (p[ctx.layer].to(x.dtype) for p in (self.weight, self.offset))
        gate = nn.functional.logsigmoid((x @ weight.mT + offset).float()).mT
        gate = gate * (ctx.query_pos >= 0)[:, None]  # padding has no gate
        return ctx.with_earlier("forgetting", gate).cumsum(-1)

    def bias(self, q, k, ctx):
        sums = self.sums(ctx)
        return sums[..., -ctx.new :, None] - sums[..., None, :]


class ForgettingInColumns(Forgetting):
    def bias_form(self, q, k, ctx, kind):
        if kind is not Columns:
            return None
        sums = self.sums(ctx)[..., None].to(q.dtype)
        root, ones = self.shape.d_head**0.5, torch.ones_like(sums)
        new = sums[:, :, -ctx.new :] * root
        q = torch.cat([q, new, -root * torch.ones_like(new)], -1)
        return Columns(q, torch.cat([k, ones, sums], -1))


class ForgettingInTransform(Forgetting):
    """`transform` writes the memo, and `bias` reads it."""

    def transform(self, q, k, ctx):
        self.sums(ctx)
        return q, k

    def bias(self, q, k, ctx):
        sums = ctx.memo[f"forgetting.{ctx.layer}"].values.cumsum(-1)
        return sums[..., -ctx.new :, None] - sums[..., None, :]


class Contextual(Encoding):
    """Positions counted by gates sigmoid(q k) over the keys between (CoPE), in float32."""

    causal_only = relative = True
    length = 6

    def __init__(self, shape):
        super().__init__(shape)
        self.table = nn.Parameter(torch.zeros(shape.n_layers, self.length, shape.d_head))

    def bias(self, q, k, ctx):
        q, k, table = q.float(), k.float(), self.table[ctx.layer].float()
        gate = (q @ k.mT * self.shape.d_head**-0.5).sigmoid() * attention_mask(ctx)
        pos = gate.flip(-1).cumsum(-1).flip(-1).clamp(max=self.length - 1)  # (B, H, T, S)
        values = q @ table.mT  # (B, H, T, length)
        low, high = (values.gather(-1, p.long()) for p in (pos.floor(), pos.ceil()))
        return low + (pos - pos.floor()) * (high - low)


class Coupled(Encoding):
    """A learned vector for each slot, which tokens of equal significance share."""

    needs_slots = True

    def __init__(self, shape):
        super().__init__(shape)
        self.table = nn.Parameter(torch.randn(8, shape.d_model))

    def slots(self, ctx):
        return ctx.slots[:, -ctx.new :]

    def embed(self, x, ctx):
        row = nn.functional.embedding(self.slots(ctx).clamp(min=0), self.table)
        return x + row.to(x.dtype)


class CoupledByColumn(Coupled):
    """Takes the slots of the first tokens while decoding."""

    def slots(self, ctx):
        return ctx.slots[:, : ctx.new]


class CoupledToTheFirst(Coupled):
    """Takes slots from the first token of the row, across documents."""

    def slots(self, ctx):
        return (ctx.slots - ctx.slots[:, :1])[:, -ctx.new :]


GATED = (Forgetting, ForgettingInColumns, ForgettingInTransform, Contextual, Coupled)


@parametrize_with_checks({cls.__name__: cls for cls in GATED})
def test_conformance(check, factory):
    check(factory)


@pytest.mark.parametrize(
    ("check", "cls"),
    [
        ("streaming", CoupledByColumn),
        ("cache", CoupledByColumn),
        ("documents", CoupledToTheFirst),
        ("positions", CoupledToTheFirst),
    ],
)
def test_an_encoding_that_reads_the_wrong_slots_is_caught(check, cls):
    with pytest.raises(AssertionError, match=f"check_{check}"):
        run_check(getattr(sequences, f"check_{check}"), cls)


def test_a_gate_that_computes_in_the_dtype_of_its_parameters_passes():
    class Strict(Encoding):
        """Casts nothing, so that x of another dtype is an error."""

        def __init__(self, shape):
            super().__init__(shape)
            self.gate = nn.Parameter(torch.randn(shape.n_layers, shape.d_model))

        def bias(self, q, k, ctx):
            gate = (ctx.x @ self.gate[ctx.layer]).sigmoid()[:, None, :, None]
            return -gate * ctx.distance()[:, None].to(q.dtype)

    check_encoding(Strict)
