"""Picture: shapes are checked, and what it is about follows from its axes."""

import pytest
import torch

from pezoo.pictures import Axis, Picture

TOKENS, TWO = Axis("token"), Axis("head", ("0", "1"))


def picture(values=(2, 3, 2), rows=TOKENS, columns=TWO, **options):
    names = tuple(f"panel {i}" for i in range(values[0]))
    return Picture("Title", "Caption.", names, torch.zeros(values), rows, columns, **options)


def test_a_picture_with_a_token_axis_is_about_tokens():
    assert picture().of_tokens
    assert picture(rows=Axis("row", ("a", "b", "c")), columns=Axis("token")).of_tokens
    assert not picture(rows=Axis("row", ("a", "b", "c"))).of_tokens


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"columns": Axis("head", ("0",))}, r"needs 2 ticks of the columns .* got 1"),
        ({"rows": Axis("row", ("a",))}, r"needs 3 ticks of the rows .* got 1"),
        ({"lines": torch.zeros(2, 3)}, r"needs \(2, 2\) lines .* got \(2, 3\)"),
        ({"importance": torch.zeros(3)}, r"needs \(2,\) importance .* got \(3,\)"),
        ({"kind": "bars"}, "bars need one row .* 3 rows"),
        ({"kind": "bars", "values": (2, 1, 2), "columns": TOKENS}, "ticks for the columns"),
    ],
)
def test_shapes_that_do_not_fit(change, words):
    with pytest.raises(ValueError, match=words):
        picture(**change)


def test_values_and_panels_that_do_not_fit():
    with pytest.raises(ValueError, match="panel, row, column"):
        Picture("Title", "Caption.", ("a",), torch.zeros(3, 2), TOKENS, TWO)
    with pytest.raises(ValueError, match=r"needs 2 panels .* got 1"):
        Picture("Title", "Caption.", ("a",), torch.zeros(2, 3, 2), TOKENS, TWO)
