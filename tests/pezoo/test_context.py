import pytest
import torch

from pezoo import Context


@pytest.mark.parametrize(
    ("pos", "given"),
    [
        (torch.arange(10), r"\(10,\) of torch.int64"),
        (torch.zeros(2, 3, 4, dtype=torch.long), r"\(2, 3, 4\)"),
        (torch.arange(10.0)[None], r"\(1, 10\) of torch.float32"),
    ],
)
def test_positions_of_another_shape_or_kind_are_refused(pos, given):
    with pytest.raises(ValueError, match=rf"pos must hold whole numbers.*{given}"):
        Context(pos=pos)
