"""The conformance suite catches every broken encoding, and passes what only looks like one."""

import pytest
import torch
from broken_encodings import BROKEN, InScores, OwnColumns, Raw, Steep
from torch import nn

from pezoo import FoX, testing
from pezoo.base import Encoding
from pezoo.testing import check_encoding, parametrize_with_checks, run_check

CHECKS = {check.__name__: check for check in testing.CHECKS}


@pytest.mark.parametrize("case", BROKEN, ids=lambda case: f"{case.check[6:]}-{case.words}")
def test_a_broken_encoding_is_caught(case):
    with pytest.raises(AssertionError, match=f"^{case.check}: .*{case.words}"):
        run_check(CHECKS[case.check], case.cls)


def test_every_check_has_caught_something_broken():
    assert {case.check for case in BROKEN} == CHECKS.keys()


def of(**body):
    return type("Own", (Encoding,), body)


def of_the_first_row(self, q, k, ctx):
    return -0.1 * (ctx.query_pos[:1, :, None] - ctx.pos[:1, None]).abs()[:, None].to(q.dtype)


FIRST = [
    (of(transform=lambda self, q, k, ctx: (q.mul_(2), k)), "inputs: transform changes q"),
    (of(bias=lambda self, q, k, ctx: -ctx.distance().to(q.dtype)), "shapes: bias: expected"),
    (of(bias=of_the_first_row), "batch: a row uses the positions of another"),
    (OwnColumns, "positions: padding changes"),
    (next(case.cls for case in BROKEN if "NaN" in case.words), "shapes: embed: NaN"),
    (of(bias=lambda self, q, k, ctx: -ctx.distance()[:, None].to(q.dtype).log1p()), "shapes: bias"),
]


@pytest.mark.parametrize(("cls", "words"), FIRST)
def test_the_first_complaint_is_the_plain_one(cls, words):
    with pytest.raises(AssertionError, match=f"^check_{words}"):
        check_encoding(cls)


@pytest.mark.parametrize("check", ["check_stateless", "check_recomputed"])
def test_what_is_no_number_is_no_state(check):
    CHECKS[check](of(bias=lambda self, q, k, ctx: ctx.distance()[:, None].to(q.dtype).log1p()))


# What passes.


class InTransform(FoX):
    """`transform` writes the memo, and `bias` reads it."""

    def transform(self, q, k, ctx):
        self.sums(ctx)
        return q, k

    def bias(self, q, k, ctx):
        c = ctx.memo[f"{self.name}.{ctx.layer}"].values.cumsum(-1)
        return c[..., -ctx.new :, None] - c[..., None, :]


class Strict(Encoding):
    """Casts nothing, so that x of another dtype is an error."""

    def __init__(self, shape):
        super().__init__(shape)
        self.gate = nn.Parameter(torch.randn(shape.n_layers, shape.d_model))

    def bias(self, q, k, ctx):
        gate = (ctx.x @ self.gate[ctx.layer]).sigmoid()[:, None, :, None]
        return -gate * ctx.distance()[:, None].to(q.dtype)


class LargeMask(Raw):
    """Hides far keys by the smallest number instead of -inf."""

    def bias(self, q, k, ctx):
        bias, far = super().bias(q, k, ctx), ctx.distance()[:, None] > 3
        return bias.masked_fill(far, torch.finfo(bias.dtype).min)


def test_a_mask_of_large_numbers_has_no_derivative():
    run_check(CHECKS["check_derivatives"], LargeMask)


@pytest.mark.parametrize("cls", [Steep, InScores, InTransform, Strict])
def test_a_correct_encoding_passes(cls):
    check_encoding(cls)


def test_a_first_token_that_differs_is_no_clamped_table():
    class WithTheTokenBefore(Encoding):
        def embed(self, x, ctx):
            return x + nn.functional.pad(x, (0, 0, 1, 0))[:, :-1]

    run_check(CHECKS["check_far_values"], WithTheTokenBefore)


def test_a_short_period_is_meant():
    hours = of(
        relative=True, bias=lambda self, q, k, ctx: -(ctx.distance() % 7)[:, None].to(q.dtype)
    )
    run_check(CHECKS["check_far_values"], hours)


def test_a_bias_that_tells_the_sides_apart_is_allowed():
    side = of(
        relative=True, bias=lambda self, q, k, ctx: ctx.distance().sign()[:, None].to(q.dtype)
    )
    run_check(CHECKS["check_future"], side)


# How the suite is run.


def test_not_constructible():
    def picky(shape):
        if shape.n_layers == 1:
            raise RuntimeError("one layer is too few")
        return Encoding(shape)

    with pytest.raises(AssertionError, match="check_constructible: RuntimeError: one layer"):
        check_encoding(picky)
    with pytest.raises(AssertionError, match="Encoding, got Linear"):
        check_encoding(lambda shape: nn.Linear(1, 1))


def test_expected_failures():
    blind = Encoding
    check_encoding(blind, expected_failures={"check_order": "it encodes nothing"})
    with pytest.raises(AssertionError, match="check_long passes now"):
        check_encoding(of(order_blind=True), expected_failures={"check_long": "it was too long"})
    for reason in ("", "   "):
        with pytest.raises(ValueError, match="reason"):
            check_encoding(blind, expected_failures={"check_order": reason})
    with pytest.raises(ValueError, match="check_ordr"):
        check_encoding(blind, expected_failures={"check_ordr": "a typing error"})


def test_expected_failures_of_parametrize_with_checks():
    blind = {"blind": Encoding}
    with pytest.raises(ValueError, match="reason"):
        parametrize_with_checks(blind, {"blind": {"check_order": ""}})
    with pytest.raises(ValueError, match="blnd"):
        parametrize_with_checks(blind, {"blnd": {"check_order": "misspelt"}})
    mark = parametrize_with_checks(blind, {"blind": {"check_order": "nothing there"}})
    cases = {case.id: case.values for case in mark.args[1]}
    assert len(cases) == len(CHECKS)
    check, factory = cases["blind-order"]
    check(factory)


def test_building_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    testing.build(Raw)
    assert torch.equal(before, torch.get_rng_state())
