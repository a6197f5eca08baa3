from dataclasses import fields

import pytest
import torch

from pezoo.base import Context, Memo
from pezoo.encodings.nope import NoPE
from pezoo.testing import SHAPE


def test_a_contributor_reads_eleven_fields():
    own = [
        "pos",
        "ids",
        "n_new",
        "slots",
        "layer",
        "x",
        "w_key",
        "scale",
        "task_prf",
        "memo",
        "coords",
    ]
    assert sorted(field.name for field in fields(Context)) == sorted(own)


def test_slots_are_given_for_every_position():
    slots = torch.zeros(1, 1, dtype=torch.long)
    with pytest.raises(ValueError, match=r"slots must be .* 10\), .*cached"):
        NoPE(SHAPE).prepare(Context(torch.arange(10)[None], n_new=1, slots=slots))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"ids": torch.zeros(2, 7, dtype=torch.long)}, r"ids must be .* 10\).*got \(2, 7\)"),
        ({"x": [[1.0]]}, r"x must be a tensor .*got list"),
        ({"scale": 8}, r"scale must be a tensor .*got 8"),
        ({"scale": torch.ones(2, 1)}, r"scale must be a tensor \(B,\)"),
    ],
)
def test_other_kinds_are_refused(given, expected):
    with pytest.raises(ValueError, match=expected):
        NoPE(SHAPE).prepare(Context(torch.arange(10)[None], **given))


def test_slots_begin_no_documents():
    ctx = Context(torch.arange(4)[None], slots=torch.tensor([[0, 1, 0, 1]]))
    assert ctx.document.tolist() == [[0, 0, 0, 0]]


@pytest.mark.parametrize(
    ("pos", "given"),
    [
        (torch.arange(10), r"\(10,\) of torch.int64"),
        (torch.zeros(2, 3, 4, dtype=torch.long), r"\(2, 3, 4\)"),
        *[
            (torch.ones(1, 10, dtype=kind), rf"\(1, 10\) of {kind}")
            for kind in (torch.bool, torch.uint8, torch.float32, torch.complex64)
        ],
    ],
)
def test_positions_of_another_shape_or_kind_are_refused(pos, given):
    with pytest.raises(ValueError, match=rf"pos must hold whole numbers.*{given}"):
        Context(pos=pos)


class Sums:
    """The sum of every token's row so far, in the order of the tokens."""

    def __init__(self, values):
        self.values = values

    def reorder(self, rows):
        return Sums(self.values[rows])

    def crop(self, length):
        return Sums(self.values[:, :length])


def test_a_memo_passes_on_what_happens_to_the_cache():
    table = torch.arange(9)
    memo = Memo({"sums": Sums(torch.tensor([[1, 2, 3], [4, 5, 6]])), "table": table})
    memo.reorder(torch.tensor([1, 1, 0]))
    memo.crop(-1)
    assert memo["sums"].values.tolist() == [[4, 5], [4, 5], [1, 2]]
    memo.crop(1)
    assert memo["sums"].values.tolist() == [[4], [4], [1]]
    assert memo["table"] is table


@pytest.mark.parametrize(
    ("pos", "documents"),
    [
        ([0, 1, 2, 3], [0, 0, 0, 0]),
        ([0, 1, 2, 0, 1], [0, 0, 0, 1, 1]),
        ([0, 0, 0], [0, 1, 2]),
        ([7, 9, 8, 9], [0, 0, 1, 1]),
        ([-1, -1, 0, 1], [0, 0, 0, 0]),
        ([-1, 4, -1, 5, -1], [0, 0, 0, 0, 0]),
        ([-1, 4, -1, 4, -1], [0, 0, 0, 1, 1]),
        ([5, 6, 0, 1, 6, -1, 2], [0, 0, 1, 1, 1, 1, 2]),
        ([-1, -1], [0, 0]),
    ],
)
def test_a_document_begins_where_positions_do_not_rise(pos, documents):
    ctx = Context(torch.tensor([pos]))
    assert ctx.document.tolist() == [documents]
    assert ctx.packed is (max(documents) > 0)
