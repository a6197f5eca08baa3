"""The form of a positional relation function is checked, and errors name the encoding."""

import pytest
import torch

from pezoo.base import Context, Encoding, PositionError, Shape
from pezoo.encodings.learned import Learned
from pezoo.encodings.rope import RoPE
from pezoo.prf import PRFError, prf_of

SHAPE = Shape(d_model=16, n_heads=2, d_head=8, n_layers=1, train_len=6)


def returning(prf):
    own = type("Own", (Encoding,), {"prf": lambda self, ctx: prf})
    return prf_of(own(SHAPE), 6)


def test_what_has_the_form_is_passed_on():
    assert prf_of(RoPE(SHAPE), 6)[3, 1] == 2
    assert prf_of(Encoding(SHAPE), 6) is None
    assert returning(torch.full((6, 6, 4), 0.25)).shape == (6, 6, 4)


@pytest.mark.parametrize(
    "prf",
    [
        torch.zeros(1, 6, 6, dtype=torch.long),
        torch.zeros(6, 6),
        torch.zeros(6, 6, dtype=torch.bool),
        torch.zeros(6, 5, dtype=torch.long),
        [[0]],
    ],
    ids=["3d", "float", "bool", "narrow", "list"],
)
def test_another_form_is_refused(prf):
    with pytest.raises(PRFError, match="Own"):
        returning(prf)


def test_a_prf_that_takes_no_context_is_named():
    class Old(Encoding):
        def prf(self, n, *, scale=None):
            return torch.zeros(n, n)

    with pytest.raises(PRFError, match="Old fails: TypeError"):
        prf_of(Old(SHAPE), 6)


def test_positions_beyond_a_table_are_refused_as_prepare_does():
    learned = Learned(SHAPE, max_len=6)
    assert prf_of(learned, 6).unique().numel() == 36
    far = Context(pos=100 + torch.arange(3)[None])
    for refuses in (learned.prepare, learned.prf):
        with pytest.raises(PositionError):
            refuses(far)
