"""Coordinates on several axes: what a context says, kernels, and decoding with a cache."""

import pytest
import torch

import pezoo
from pezoo import Cache, Context, attend, attention
from pezoo.adapters import attention_mask, block_mask
from pezoo.base import Encoding, ScoreMod, Shape

SHAPE = Shape(d_model=8, n_heads=2, d_head=4, n_layers=1, train_len=32)
GRID = torch.cartesian_prod(torch.arange(2), torch.arange(3))[None]  # (1, 6, 2)


class Far(Encoding):
    """Subtract rows, and twice the columns, between two tokens."""

    axes = 2

    def bias_form(self, q, k, ctx, kind):
        def value(h, i, j):
            (y, x), (u, v) = i, j
            return -(h + 1.0) * ((y - u).abs() + 2 * (x - v).abs())

        return ScoreMod(value, axes=2) if kind is ScoreMod else None


def test_distances_and_offsets_along_axes():
    ctx = Context(torch.arange(6)[None], coords=GRID, n_new=2)
    assert ctx.offset().shape == (1, 2, 6, 2)
    for t in range(2):
        for s in range(6):
            for axis in range(2):
                expected = GRID[0, 4 + t, axis] - GRID[0, s, axis]
                assert ctx.offset()[0, t, s, axis] == ctx.distance(axis=axis)[0, t, s] == expected
    assert ctx.distance()[0, 0].tolist() == [4, 3, 2, 1, 0, -1]  # of the order
    text = Context(torch.arange(6)[None], n_new=2)
    assert (text.places(3) == torch.arange(6)[None, :, None]).all()
    assert torch.equal(text.offset(2)[..., 1], text.distance())


@pytest.mark.parametrize(
    "coords", [GRID[0], GRID.short(), GRID.double(), GRID[..., :0], [[[0, 1]]], GRID.half()]
)
def test_coordinates_of_another_kind_are_refused(coords):
    with pytest.raises(ValueError, match=r"coords must be \(B, S, A\), of int64.*got"):
        Context(torch.arange(6)[None], coords=coords)


def test_coordinates_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"coords must be \(B, 7\), one for each position"):
        Far(SHAPE).prepare(Context(torch.arange(7)[None], coords=GRID))
    with pytest.raises(ValueError, match=r"expected coords of 3 axes.*got \(1, 6, 2\)"):
        Context(torch.arange(6)[None], coords=GRID).places(3)


@pytest.mark.parametrize("new", [6, 2])
@pytest.mark.parametrize("rows", [1, 2])
def test_every_kernel_looks_coordinates_up_by_token(new, rows):
    q, k, v = torch.randn(3, 2, 2, 6, 4).unbind(0)
    coords = torch.cat([GRID, GRID.flip(1) + 5])[:rows]
    ctx = Far(SHAPE).prepare(Context(torch.arange(6)[None], coords=coords, n_new=new)).at(0, None)
    q = q[:, :, 6 - new :]
    expected = torch.zeros(2, 2, new, 4)
    for b in range(2):
        for h in range(2):
            for t in range(new):
                at, own = 6 - new + t, coords[b % rows]
                d = (own[at] - own[: at + 1]).abs()
                logits = k[b, h, : at + 1] @ q[b, h, t] / 2 - (h + 1) * (d[:, 0] + 2 * d[:, 1])
                expected[b, h, t] = logits.softmax(0) @ v[b, h, : at + 1]
    for backend in ("eager", "sdpa", "flex"):
        mask = block_mask(ctx) if backend == "flex" else attention_mask(ctx)
        out = attend(Far(SHAPE), q, k, v, ctx, mask, backend)
        assert torch.allclose(out, expected, atol=1e-5), backend


def test_text_after_an_image_continues_on_every_axis():
    """An image of 2 x 3 and two words: they lie at (3, 3) and (4, 4), as in Qwen2-VL."""
    q, k, v = torch.randn(3, 1, 2, 8, 4)
    encoding, words = Far(SHAPE), torch.tensor([[[3, 3], [4, 4]]])
    whole = attention(q, k, v, encoding, coords=torch.cat([GRID, words], 1))
    cache = Cache()
    parts = [attention(*(x[:, :, :6] for x in (q, k, v)), encoding, cache=cache, coords=GRID)]
    for n in (6, 7):
        token = (x[:, :, n : n + 1] for x in (q, k, v))
        parts.append(attention(*token, encoding, cache=cache))
    assert torch.allclose(torch.cat(parts, 2), whole, atol=1e-6)
    assert torch.equal(cache.coords[:, 6:], words)


def test_a_wrapper_that_changes_positions_refuses_coordinates():
    ctx = Context(torch.arange(6)[None], coords=GRID)
    encoding = pezoo.Randomized(SHAPE, Far)
    with pytest.raises(ValueError, match="randomized changes positions, and Far reads coords"):
        encoding.prepare(ctx)
    encoding.prepare(Context(torch.arange(6)[None]))
