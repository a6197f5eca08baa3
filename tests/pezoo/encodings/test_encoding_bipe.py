import pytest
import torch

from pezoo import Context, PositionError, Shape, make
from pezoo.adapters import attention_mask

SHAPE = Shape(d_model=8, n_heads=2, d_head=4, n_layers=1, train_len=8)
IDS = torch.tensor([[1, 2, 10, 3, 10, 4, 5, 10, 10, 6]])


def prepared(text, ids=IDS, pos=None):
    encoding, x = make(text, SHAPE), torch.zeros(1, ids.shape[1], 8)
    pos = torch.arange(ids.shape[1])[None] if pos is None else pos
    return encoding, encoding.prepare(Context(pos, ids=ids, x=x)), x


def bilevel(ids, separators):
    """Places and segments, token by token."""
    places, segments, place, segment = [], [], 0, 0
    for one in ids:
        places.append(place)
        segments.append(segment)
        place, segment = (0, segment + 1) if one in separators else (place + 1, segment)
    return places, segments


@pytest.mark.parametrize("separators", [(10,), (3, 10), (5,)])
def test_places_and_segments(separators):
    encoding, ctx, x = prepared(f"bipe(separators={list(separators)})")
    places, segments = bilevel(IDS[0].tolist(), separators)
    assert ctx.pos[0].tolist() == segments
    assert torch.equal(encoding.embed(x, ctx)[0], encoding.table[places])


def test_documents_begin_anew_and_padding_is_skipped():
    pos = torch.tensor([[0, 1, 2, -1, 3, 4, 0, 1, -1, 2]])
    encoding, ctx, x = prepared("bipe", pos=pos)
    first, second = bilevel([1, 2, 10, 10, 4], {10}), bilevel([5, 10, 6], {10})
    real = pos[0] >= 0
    assert ctx.pos[0][real].tolist() == [*first[1], *second[1]]
    places = torch.tensor([*first[0], *second[0]])
    assert torch.equal(encoding.embed(x, ctx)[0][real], encoding.table[places])


@pytest.mark.parametrize("inner", ["rope", "alibi"])
def test_the_inner_encoding_gets_segments(inner):
    encoding, ctx, _ = prepared(f"bipe:{inner}")
    own = make(inner, SHAPE)
    segments = torch.tensor([bilevel(IDS[0].tolist(), {10})[1]])
    q, k = torch.randn(2, 1, 2, 10, 4)
    here = own.prepare(Context(segments)).at(0, None)
    there = ctx.at(0, None)
    for a, b in zip(encoding.transform(q, k, there), own.transform(q, k, here), strict=True):
        assert torch.equal(a, b)
    a, b = encoding.bias(q, k, there), own.bias(q, k, here)
    assert a is b is None or torch.equal(a, b)


@pytest.mark.parametrize("text", ["bipe:randomized:rope", "randomized:bipe:rope"])
def test_segments_are_no_documents(text):
    _, ctx, _ = prepared(text)
    assert torch.equal(attention_mask(ctx), attention_mask(prepared("rope")[1]))


def test_a_segment_beyond_the_table():
    with pytest.raises(PositionError):
        prepared("bipe(separators=[11],max_pos=9)")
    with pytest.raises(ValueError, match="ids"):
        make("bipe", SHAPE).prepare(Context(torch.arange(3)[None]))
