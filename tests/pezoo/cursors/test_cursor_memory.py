"""The memory of cursors follows the cache, and reads no token again that it need not."""

import pytest
import torch

from pezoo.base import Context, Memo, Shape
from pezoo.registry import make

D = torch.float64
SHAPE = Shape(6, 2, 4, 2, 8)
TEXTS = [
    f"{name}(cursors=1,d_pe=4,hidden=5,controller={controller},copy_every={copies})"
    for name, controller, copies in (
        ("prism", "gru", 0),
        ("prism", "latch", 1),
        ("prism_spectral", "latch", 1),
        ("prism_spectral", "gru", 0),
    )
]


@pytest.fixture(params=TEXTS)
def encoding(request):
    torch.manual_seed(0)
    return make(request.param, SHAPE).double().eval()


def feed(encoding, x, new, memo, pos=None):
    """The keys' streams of the last `new` of the tokens x, in the first layer."""
    pos = torch.arange(x.shape[1])[None] if pos is None else pos
    ctx = Context(pos, x=x[:, x.shape[1] - new :], n_new=new, memo=memo)
    with torch.no_grad():
        return encoding.memory(0, encoding.prepare(ctx)).streams[0][1]


def counted(encoding, monkeypatch):
    """Return the number of tokens that the controller has read, by pass."""
    (layer,), read = encoding.layers, []
    features = layer.features
    monkeypatch.setattr(layer, "features", lambda x, *a: read.append(x.shape[1]) or features(x, *a))
    return read


def test_only_what_was_forgotten_is_read_again(encoding, monkeypatch):
    read, memo = counted(encoding, monkeypatch), Memo()
    x = torch.randn(2, 20, 6, dtype=D, generator=torch.manual_seed(1))
    feed(encoding, x[:, :8], 8, memo)
    feed(encoding, x[:, :12], 4, memo)
    memo.crop(-4)  # the pass is taken back
    feed(encoding, x[:, :12], 4, memo)
    memo.crop(10)
    feed(encoding, x[:, :11], 1, memo)
    memo.crop(3)
    feed(encoding, x[:, :5], 2, memo)
    assert read == [8, 4, 4, 3, 5]


@pytest.mark.parametrize(
    "passes",
    [((4, 4), (4, 4), (6, 2), (6, 2), (9, 3), (9, 3)), ((6, 6), (7, 1), (6, 1))],
    ids=["prepare twice", "a step back without a crop"],
)
def test_a_pass_may_be_taken_again(encoding, passes):
    x = torch.randn(2, 9, 6, dtype=D, generator=torch.manual_seed(1))
    whole, memo = feed(encoding, x, 9, Memo()), Memo()
    for end, new in passes:
        torch.testing.assert_close(feed(encoding, x[:, :end], new, memo), whole[:, end - new : end])


def test_rows_are_repeated_left_out_and_padded(encoding):
    generator = torch.manual_seed(1)
    x, rows = torch.randn(3, 7, 6, dtype=D, generator=generator), torch.tensor([2, 2, 0, 1])
    pos = torch.arange(7) - torch.tensor([[0], [2], [1]])
    pos, memo = pos.clamp(min=-1), Memo()
    feed(encoding, x[:, :5], 5, memo, pos[:, :5])
    memo.reorder(rows)
    memo.crop(4)
    got = feed(encoding, x[rows], 3, memo, pos[rows])
    torch.testing.assert_close(got, feed(encoding, x, 7, Memo(), pos)[rows, 4:])


def test_noise_of_training_does_not_hinder_a_crop():
    encoding = make("prism_spectral(cursors=1,d_pe=4,hidden=5)", SHAPE).double().train()
    x, memo = torch.randn(2, 7, 6, dtype=D), Memo()
    feed(encoding, x[:, :5], 5, memo)
    memo.crop(3)
    assert feed(encoding, x, 4, memo).shape[1] == 4


@pytest.mark.parametrize(
    ("known", "rows", "words"),
    [
        (0, 2, "prism has 0 tokens of 2 rows"),
        (3, 2, "prism has 3 tokens of 2 rows"),
        (4, 3, "4 tokens of 3 rows"),
    ],
)
def test_a_memory_of_other_tokens_is_refused(known, rows, words):
    encoding, memo = make("prism_2025(cursors=1,d_pe=4,hidden=5)", SHAPE).double().eval(), Memo()
    if known:
        feed(encoding, torch.randn(rows, known, 6, dtype=D), known, memo)
    with pytest.raises(ValueError, match=words):
        feed(encoding, torch.randn(2, 5, 6, dtype=D), 1, memo)
