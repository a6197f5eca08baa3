"""Random numbers drawn for a batch and for its parts."""

import torch

from harness.data.drawn import dropout_masks, rows

DRAWN = {
    "own": torch.arange(24.0).view(4, 3, 2),
    "shared": torch.arange(6).view(1, 3, 2),
    "table": torch.arange(5),
    "number": torch.tensor(7),
}


def test_rows_take_their_share_of_what_rows_have():
    part = rows(DRAWN, 1, 3)
    assert torch.equal(part["own"], DRAWN["own"][1:3])
    for name in ("shared", "table", "number"):
        assert part[name] is DRAWN[name]


def test_dropout_is_that_of_torch_layer_by_layer():
    """The last layer draws for its last tokens alone; the mask of the embeddings is the last."""
    masks = dropout_masks((2, 5, 8), 2, 3, 0.25, torch.Generator().manual_seed(0))
    assert masks.shape == (2, 5, 5, 8)
    torch.manual_seed(0)
    for number, columns in enumerate((5, 5, 3, 3, 5)):
        want = torch.nn.functional.dropout(torch.ones(2, columns, 8), 0.25) > 0
        assert torch.equal(masks[:, 5 - columns :, number], want)
