"""That a relation function of the wrong form is named, and what it should be is said."""

import pytest
import torch

from pezoo.base import Context, Encoding, PositionError, Shape
from pezoo.encodings.learned import Learned
from pezoo.encodings.rope import RoPE
from pezoo.relation import RelationError, relation_function

SHAPE = Shape(d_model=16, n_heads=2, d_head=8, n_layers=1, train_len=6)


def told(phi):
    own = type("Own", (Encoding,), {"prf": lambda self, ctx: phi})
    return relation_function(own(SHAPE), 6)


def test_what_has_the_form_is_passed_on():
    assert relation_function(RoPE(SHAPE), 6)[3, 1] == 2
    assert relation_function(Encoding(SHAPE), 6) is None
    assert told(torch.full((6, 6, 4), 0.25)).shape == (6, 6, 4)


@pytest.mark.parametrize(
    ("phi", "words"),
    [
        (torch.zeros(1, 6, 6, dtype=torch.long), r"returns \(1, 6, 6\) of torch.int64"),
        (torch.zeros(6, 6), r"returns \(6, 6\) of torch.float32"),
        (torch.zeros(6, 6, dtype=torch.bool), "of torch.bool"),
        (torch.zeros(6, 5, dtype=torch.long), r"returns \(6, 5\)"),
        ([[0]], "returns list"),
    ],
)
def test_another_form_is_refused(phi, words):
    with pytest.raises(RelationError, match=f"prf of Own .*{words}.*expected \\(6, 6\\) of int64"):
        told(phi)


def test_a_prf_that_takes_no_context_is_named():
    class Old(Encoding):
        def prf(self, n, *, scale=None):
            return torch.zeros(n, n)

    with pytest.raises(RelationError, match=r"prf\(ctx\) of Old fails: TypeError"):
        relation_function(Old(SHAPE), 6)


def test_positions_beyond_a_table_are_said_as_prepare_says_them():
    learned = Learned(SHAPE, max_len=6)
    assert relation_function(learned, 6).unique().numel() == 36
    far = Context(pos=100 + torch.arange(3)[None])
    for refuses in (learned.prepare, learned.prf):
        with pytest.raises(PositionError):
            refuses(far)
