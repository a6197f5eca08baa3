"""The gallery's curves agree with the formulas, and every encoding has a card."""

import math
import re

import pytest
import torch

from harness.settings.catalog import read_catalog
from harness.show import gallery
from harness.show.gallery import SHAPE, TOKENS, heads
from pezoo.registry import make

DISTANCE = torch.arange(TOKENS)


def rope() -> torch.Tensor:
    """The pairs of the token turn by d w, in complex numbers."""
    token = torch.randn(1, 1, 64, generator=torch.Generator().manual_seed(0)).view(4, 8, 2)
    w = 10_000.0 ** (-torch.arange(8) / 8)
    size = torch.view_as_complex(token).abs() ** 2
    turned = size[:, None] * (torch.polar(torch.ones(1), DISTANCE[:, None] * w).real - 1)
    return turned.sum(-1) / 4


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("nope", torch.zeros(4, TOKENS)),
        ("alibi", -(2.0 ** -torch.tensor([2.0, 4, 6, 8]))[:, None] * DISTANCE),
        ("rope", rope()),
        ("window(size=8,sinks=0):nope", torch.where(DISTANCE < 8, 0.0, -math.inf).expand(4, -1)),
    ],
)
def test_curves_are_those_of_the_formula(name, want):
    torch.testing.assert_close(heads(make(name, SHAPE).eval()), want, atol=2e-5, rtol=1e-5)


def test_weights_in_place_of_softmax_sum_to_one():
    found = heads(make("asentmax:nope", SHAPE).eval())
    torch.testing.assert_close((found.exp() / TOKENS).sum(-1), torch.ones(4))


def test_every_encoding_has_a_card():
    page = gallery.gallery(["alibi", "stick_breaking", "ideal", "cope"], read_catalog())
    assert re.findall(r'id="(\w+)"', page) == ["alibi", "stick_breaking", "cope", "ideal"]
    assert page.count("<path") == 12
    assert "No picture: ideal needs the task" in page
    assert re.search(r"reach: .*cost: \d\.\dx", page)
    assert "nan" not in page.lower()


def test_the_option_is_for_all_encodings(call, tmp_path):
    code, _, err = call("list", "tasks", "--gallery", tmp_path / "x.html")
    assert (code, "pezoo list encodings --gallery" in err) == (2, True)
