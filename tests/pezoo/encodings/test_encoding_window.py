import cmath
import math

import pytest
import torch

from pezoo import Context, Shape, attend, make
from pezoo.base import ScoreMod

D = torch.float64
SHAPE = Shape(d_model=8, n_heads=2, d_head=4, n_layers=1, train_len=8)


def rope(q, k, distance, head):
    """Return the logit of q and k at a distance, pair by pair."""
    turns = (cmath.exp(1j * distance * w) for w in (1.0, 0.01))
    pairs = ((complex(*q[m : m + 2]) * complex(*k[m : m + 2]).conjugate()) for m in (0, 2))
    return sum((pair * turn).real for pair, turn in zip(pairs, turns, strict=True)) / 2


def alibi(q, k, distance, head):
    return sum(a * b for a, b in zip(q, k, strict=True)) / 2 - distance * 2.0 ** (-4 * (head + 1))


def naive(q, k, v, logit, size, sinks, chunk):
    """Attention of one head, key by key."""
    out = []
    for i in range(len(q)):
        weights = []
        for j in range(i + 1):
            near = i // chunk == j // chunk if chunk else i - j < size
            last = (chunk or size) + sinks - 1
            distance = min(i, last) - j if j < sinks else i - j
            seen = near or j < sinks
            weights.append(math.exp(logit(q[i], k[j], distance)) if seen else 0.0)
        total = sum(weights)
        out.append(
            [sum(w * x[c] for w, x in zip(weights, v, strict=False)) / total for c in (0, 1, 2, 3)]
        )
    return out


@pytest.mark.parametrize("inner", [rope, alibi])
@pytest.mark.parametrize(
    ("options", "size", "sinks", "chunk"),
    [
        ("size=3,sinks=2", 3, 2, 0),
        ("sinks=2", 6, 2, 0),
        ("chunk=3,sinks=1", 0, 1, 3),
        ("size=1,sinks=4", 1, 4, 0),
        ("size=3", 3, 0, 0),
        ("", 8, 0, 0),
    ],
)
def test_attention_is_that_of_a_loop_over_keys(inner, options, size, sinks, chunk):
    one = make(f"window({options}):{inner.__name__}", SHAPE).eval()
    q, k, v = torch.randn(3, 1, 2, 17, 4, dtype=D, generator=torch.Generator().manual_seed(0))
    ctx = one.prepare(Context(torch.arange(17)[None])).at(0, None)
    for backend in ("sdpa", "eager", "flex"):
        got = attend(one, *one.transform(q, k, ctx), v, ctx, backend=backend)[0]
        for h in range(2):
            args = (x[0, h].tolist() for x in (q, k, v))
            want = naive(*args, lambda a, b, d, h=h: inner(a, b, d, h), size, sinks, chunk)
            torch.testing.assert_close(got[h], torch.tensor(want, dtype=D), atol=1e-5, rtol=0)


def test_by_default_no_distance_is_longer_than_in_training():
    one = make("window(sinks=4):rope", SHAPE.replaced(train_len=100))
    assert (one.size, one.last, one.rope_within) == (96, 99, 100)
    assert make("window:rope", SHAPE).rope_within == 8


def test_first_tokens_are_those_of_each_document():
    pos = torch.tensor([[-1, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4]])
    one = make("window(size=2,sinks=1):nope", SHAPE)
    bias = one.bias(None, None, one.prepare(Context(pos)).at(0, None))[0, 0]
    document = [0] * 6 + [1] * 5
    for i, p in enumerate(pos[0].tolist()):
        for j, r in enumerate(pos[0].tolist()):
            if document[i] == document[j] and min(p, r) >= 0:
                assert (bias[i, j] == 0) == (p - r < 2 or r == 0)


def test_a_window_around_coordinates():
    pos = torch.arange(9)[None]
    grid = torch.stack([pos // 3, pos % 3], -1)
    one, plain = make("window(size=4):alibi_2d", SHAPE), make("alibi_2d", SHAPE)
    bias, whole = (
        x.bias(None, None, x.prepare(Context(pos, coords=grid)).at(0, None)) for x in (one, plain)
    )
    assert torch.equal(bias, whole.masked_fill(pos.mT - pos >= 4, -torch.inf))
    ctx = one.prepare(Context(pos, coords=grid)).at(0, None)
    assert one.bias_form(None, None, ctx, ScoreMod) is None
    with pytest.raises(ValueError, match="window changes positions, and AxialRoPE reads coords"):
        make("window(sinks=2):axial_rope", SHAPE).prepare(Context(pos, coords=grid))


def test_sinks_need_the_product():
    with pytest.raises(ValueError, match="sinks need the product of q and k, which rerope"):
        make("window(sinks=4):rerope", SHAPE)
