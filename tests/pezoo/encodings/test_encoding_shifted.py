import pytest
import torch

from pezoo.base import Context, Pass, PositionError, Shape
from pezoo.encodings.shifted import Shifted
from pezoo.registry import make

SHAPE = Shape(d_model=8, n_heads=2, d_head=4, n_layers=1, train_len=10)


def embedded(encoding, pos, generator):
    ctx = Context(pos=pos)
    drawn = encoding.draw(ctx, generator=generator)
    ctx = encoding.prepare(Pass.of(ctx, drawn=drawn))
    return encoding.embed(torch.zeros(*pos.shape, 8), ctx)


def test_training_reads_a_window_of_rows_uniform_over_the_span():
    encoding, generator = Shifted(SHAPE, span=9).train(), torch.Generator().manual_seed(0)
    table = encoding.inner.table.detach()
    assert table.shape == (9, 8)
    pos = torch.tensor([[0, 1, 2, 3, 4, 5], [-1, -1, 0, 1, 2, 3]])
    counts = [0] * 4  # offsets 0..span - S
    for _ in range(400):
        out = embedded(encoding, pos, generator)
        (offset,) = [o for o in range(4) if torch.equal(out[0], table[o : o + 6])]
        assert torch.equal(out[1, 2:], table[offset : offset + 4])
        counts[offset] += 1
    assert min(counts) > 70


def test_evaluation_has_no_offset_and_the_whole_span():
    encoding = Shifted(SHAPE, span=12).eval()
    out = embedded(encoding, torch.arange(12)[None], None)
    assert torch.equal(out[0], encoding.inner.table)
    with pytest.raises(PositionError):
        embedded(encoding, torch.arange(13)[None], None)


def test_around_sinusoidal_it_is_shifted_sinusoidal():
    ours, theirs = (
        make("shifted(span=40):sinusoidal", SHAPE),
        make("shifted_sinusoidal(span=40)", SHAPE),
    )
    pos = torch.tensor([[0, 1, 2, 3], [-1, 0, 1, 2]])
    for seed in range(5):
        one, other = (
            embedded(e.train(), pos, torch.Generator().manual_seed(seed)) for e in (ours, theirs)
        )
        assert torch.equal(one[0], other[0])
        assert torch.equal(one[1, 1:], other[1, 1:])


def test_a_relative_encoding_does_not_notice():
    encoding = make("shifted:rope", SHAPE).train()
    assert encoding.relative
