"""The conformance suite catches every broken encoding, and passes what only looks like one."""

import pytest
import torch
from broken_encodings import BROKEN, ClampedTable, InScores, OwnColumns, Raw, Steep
from torch import nn

from pezoo import testing
from pezoo.base import Encoding
from pezoo.testing import check_encoding, parametrize_with_checks, run_check

CHECKS = {check.__name__: check for check in testing.CHECKS}


@pytest.mark.parametrize("case", BROKEN, ids=lambda case: f"{case.check[6:]}-{case.words}")
def test_a_broken_encoding_is_caught(case):
    with pytest.raises(AssertionError, match=f"^{case.check}: .*{case.words}"):
        run_check(CHECKS[case.check], case.cls)
    with pytest.raises(AssertionError, match=r"^check_"):
        check_encoding(case.cls)


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
]


@pytest.mark.parametrize(("cls", "words"), FIRST)
def test_the_first_complaint_is_the_plain_one(cls, words):
    with pytest.raises(AssertionError, match=f"^check_{words}"):
        check_encoding(cls)


# What passes.


@pytest.mark.parametrize("cls", [Steep, InScores])
def test_a_bias_in_another_form_passes(cls):
    check_encoding(cls)


def test_a_first_token_that_differs_is_no_clamped_table():
    class WithTheTokenBefore(Encoding):
        def embed(self, x, ctx):
            return x + nn.functional.pad(x, (0, 0, 1, 0))[:, :-1]

    run_check(CHECKS["check_far_values"], WithTheTokenBefore)
    with pytest.raises(AssertionError, match="max_len"):
        run_check(CHECKS["check_far_values"], ClampedTable)


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

    for check in ("check_derivatives", "check_cache"):
        run_check(CHECKS[check], RunningSum)


def test_a_number_for_each_layer_and_head_passes():
    for check in ("check_layers", "check_own_layer"):
        run_check(CHECKS[check], Raw)


def test_a_bias_may_read_the_input_of_its_layer():
    class Forgets(Encoding):
        def __init__(self, shape):
            super().__init__(shape)
            self.gate = nn.Parameter(torch.ones(shape.n_layers, shape.d_model))

        def bias(self, q, k, ctx):
            gate = (ctx.x @ self.gate[ctx.layer].to(ctx.x.dtype)).sigmoid()  # (B, T)
            return -gate[:, None, :, None] * ctx.distance()[:, None].abs()

    run_check(CHECKS["check_shapes"], Forgets)


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
