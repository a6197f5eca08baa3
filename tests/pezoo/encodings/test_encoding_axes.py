"""Encodings of several axes against loops, transformers, and numbers of timm 1.0.31.

tests/data/timm_axes.json holds what timm's pos_embed_sincos, pos_embed_rel and pos_embed give, with
random weights, on a grid of 2 x 3; "resized" is resample_abs_pos_embed without antialiasing.
"""

import json
import math
from itertools import product
from pathlib import Path

import pytest
import torch

from pezoo import Context, PositionError, make
from pezoo.base import Shape
from pezoo.encodings.log_cpb import distinct_offsets

TIMM = json.loads((Path(__file__).parents[2] / "data/timm_axes.json").read_text())
SHAPE = Shape(d_model=8, n_heads=2, d_head=8, n_layers=1, train_len=16)
GRID = torch.cartesian_prod(torch.arange(2), torch.arange(3))[None]  # (1, 6, 2)
POS = torch.arange(6)[None]
D = torch.float64


def timm(name):
    return torch.tensor(TIMM[name])


def close(got, want):
    torch.testing.assert_close(got, want.to(got.dtype), rtol=0, atol=1e-5)


def prepared(encoding, coords=GRID, **given):
    x = torch.zeros(1, coords.shape[1], 8)
    pos = torch.arange(coords.shape[1])[None]
    return encoding.prepare(Context(pos, coords=coords, x=x, **given)).at(0, x)


def turned(encoding, q, coords=GRID):
    """What `transform` makes of q (S, K), for every head: (H, S, K)."""
    both = q.expand(1, 2, -1, -1)
    return encoding.transform(both, both, prepared(encoding, coords))[0][0]


def logits(encoding, coords=GRID):
    zero = torch.zeros(1, 2, coords.shape[1], 8)
    return encoding.bias(zero, zero, prepared(encoding, coords))[0]


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_axial_rope_is_timms(layout):
    encoding = make(f"axial_rope(layout={layout})", SHAPE)
    close(turned(encoding, timm("q"))[0], timm(f"axial_{layout}"))


def test_axial_rope_is_the_axial_type_of_transformers():
    qwen = pytest.importorskip("transformers.models.qwen2_vl.modeling_qwen2_vl")
    config = qwen.Qwen2VLVisionConfig(
        embed_dim=16, num_heads=2, rope_parameters={"rope_type": "axial", "rope_theta": 1e4}
    )
    rotary = qwen.Qwen2VLVisionRotaryEmbedding(config)
    angle = rotary.inv_freq * GRID[0, :, :, None]  # (6, 2, K/4), as in its forward
    want = qwen.apply_rotary_pos_emb_vision(
        timm("q")[:, None], timm("q")[:, None], *_twice(angle.flatten(1))
    )
    close(turned(make("axial_rope(base=10000.0)", SHAPE), timm("q"))[0], want[0][:, 0])


def _twice(angle):
    angle = torch.cat([angle, angle], -1)
    return angle.cos(), angle.sin()


def test_sections_of_axial_rope():
    q = torch.randn(6, 8, dtype=D)
    got = turned(make("axial_rope(sections=1+3,base=7.0)", SHAPE), q)[1]
    for s, (m, (axis, w)) in product(
        range(6), enumerate([(0, 1), (1, 1), (1, 7 ** (-1 / 3)), (1, 7 ** (-2 / 3))])
    ):
        angle = w * GRID[0, s, axis].item()
        pair = complex(q[s, m], q[s, 4 + m]) * complex(math.cos(angle), math.sin(angle))
        close(got[s, [m, 4 + m]], torch.tensor([pair.real, pair.imag]))
    with pytest.raises(ValueError, match=r"sections must be 2 numbers that sum to 4.*got 1\+2"):
        make("axial_rope(sections=1+2)", SHAPE)


def test_mixed_rope_is_timms():
    encoding = make("mixed_rope(layout=interleaved)", SHAPE)
    with torch.no_grad():
        encoding.w.copy_(timm("mixed_freqs").permute(1, 2, 0)[None])
    places = timm("mixed_grid").T[None]  # timm's first frequencies are of the columns
    close(turned(encoding, timm("q"), places.float()), timm("mixed"))


def test_mixed_rope_starts_with_orthogonal_directions():
    w = make("mixed_rope", SHAPE).w[0]  # (H, K/2, A)
    close(w.norm(dim=-1), torch.tensor([1, 10**-0.5, 1, 10**-0.5]).expand(2, -1))
    close(w[:, :2] @ w[:, 2:].mT, torch.zeros(2, 2, 2))


@pytest.mark.parametrize(
    ("module", "options", "section"),
    [
        ("qwen2_vl.modeling_qwen2_vl.Qwen2VL", "", [16, 24, 24]),
        ("qwen3_vl.modeling_qwen3_vl.Qwen3VLText", "(interleaved=true)", [24, 20, 20]),
    ],
)
def test_mrope_is_that_of_transformers(module, options, section):
    path, name = module.rsplit(".", 1)
    home = pytest.importorskip(f"transformers.models.{path}")
    settings = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": section}
    kinds = {"Qwen2VL": "Qwen2VLTextConfig", "Qwen3VLText": "Qwen3VLTextConfig"}
    config = getattr(home, kinds[name])(hidden_size=128, num_attention_heads=1, head_dim=128)
    config.rope_parameters = settings
    places = torch.randint(50, (1, 6, 3))
    q = torch.randn(6, 128)
    cos, sin = getattr(home, f"{name}RotaryEmbedding")(config)(q, places.movedim(-1, 0))
    want, _ = home.apply_rotary_pos_emb(q[None, None], q[None, None], cos, sin)
    encoding = make(f"mrope{options}", d_head=128)
    at = encoding.prepare(Context(POS, coords=places))
    close(encoding.transform(q[None, None], q[None, None], at)[0], want)


def test_mrope_of_equal_axes_is_rope_bit_for_bit():
    q, k = torch.randn(2, 1, 2, 6, 8)
    for options in (
        "layout=half",
        "base=500.0,layout=interleaved",
        "layout=half,rope_parameters=yarn(factor=4)",
    ):
        rope = make(f"rope({options})", SHAPE)
        want = rope.transform(q, k, rope.prepare(Context(POS)).at(0, None))
        for interleaved in ("false", "true"):
            mrope = make(f"mrope({options},interleaved={interleaved})", SHAPE)
            for coords in (None, POS[..., None], POS[..., None].expand(-1, -1, 3)):
                got = mrope.transform(q, k, mrope.prepare(Context(POS, coords=coords)).at(0, None))
                assert all(map(torch.equal, got, want))


def test_an_image_in_mrope_has_no_time():
    q, mrope = torch.randn(6, 8), make("mrope(sections=1+2+1)", SHAPE)
    still = torch.cat([torch.zeros(1, 6, 1, dtype=torch.long), GRID], -1)
    assert torch.equal(turned(mrope, q), turned(mrope, q, still))


@pytest.mark.parametrize("metric", ["euclidean", "manhattan"])
def test_alibi_2d_is_the_formula(metric):
    got = logits(make(f"alibi_2d(metric={metric})", SHAPE))
    for h, i, j in product(range(2), range(6), range(6)):
        d = [abs(a - b) for a, b in zip(GRID[0, i].tolist(), GRID[0, j].tolist(), strict=True)]
        far = sum(d) if metric == "manhattan" else math.hypot(*d)
        assert got[h, i, j].item() == pytest.approx(-(2.0 ** (-4 * (h + 1))) * far, abs=1e-6)


def test_log_cpb_is_timms():
    encoding, own = make("log_cpb(hidden=4)", SHAPE), TIMM["cpb_weights"]
    with torch.no_grad():
        for name, x in zip(
            ("inner", "inner_bias", "outer", "outer_bias"), own.values(), strict=True
        ):
            getattr(encoding, name).copy_(torch.tensor(x)[None])
    assert [*own] == ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]
    close(logits(encoding), timm("cpb"))
    close(logits(encoding, GRID.float()), timm("cpb"))


def test_log_cpb_tells_far_offsets_apart():
    places = torch.tensor([[[0, 0], [1 << 28, -1], [-(1 << 28), 1], [3, 1 << 28]]])
    offset = places[:, :, None] - places[:, None]
    values, index = distinct_offsets(offset)
    assert torch.equal(values[index], offset)


def test_relative_2d_is_timms_within_its_window_and_clipped_beyond():
    encoding = make("relative_2d(clip=2)", SHAPE)
    table = torch.zeros(5, 5, 2)
    table[1:4] = timm("swin_table").view(3, 5, 2)  # of a window 2 x 3: rows -1..1, columns -2..2
    with torch.no_grad():
        encoding.table.copy_(table.view(1, 25, 2))
    close(logits(encoding), timm("swin"))
    far = GRID * 9
    expected = torch.empty(2, 6, 6)
    for i, j in product(range(6), range(6)):
        d = (far[0, i] - far[0, j]).clamp(-2, 2) + 2
        expected[:, i, j] = table[d[0], d[1]]
    close(logits(encoding, far), expected)


@pytest.mark.parametrize("commuting", [False, True])
def test_lie_rope_is_the_exponential_of_skew_matrices(commuting):
    encoding = make(f"lie_rope(commuting={str(commuting).lower()})", SHAPE).double()
    torch.nn.init.normal_(encoding.m)
    q, k = torch.randn(2, 6, 8, dtype=D)
    got = turned(encoding, q) @ turned(encoding, k).mT  # (H, 6, 6)
    for h in range(2):
        m = encoding.m[0, h]
        skew, one = m - m.mT, torch.eye(8, dtype=D)
        if commuting:
            p, own = torch.linalg.inv(one + skew) @ (one - skew), torch.zeros(2, 8, 8, dtype=D)
            for axis, pair in product(range(2), range(4)):
                own[axis, 4 + pair, pair] = encoding.w[0, h, pair, axis]
            close(p @ p.mT, one)
            skew = p.mT @ (own - own.mT) @ p
        turns = [torch.matrix_exp((skew * place[:, None, None]).sum(0)) for place in GRID[0]]
        for i, j in product(range(6), range(6)):
            close(got[h, i, j], (turns[i] @ q[i]) @ (turns[j] @ k[j]))


def test_a_translation_changes_lie_rope_unless_it_commutes():
    q = torch.randn(6, 8, dtype=D)
    for options, same in (("", False), ("(commuting=true)", True)):
        encoding = make(f"lie_rope{options}", SHAPE).double()
        torch.nn.init.normal_(encoding.m)
        here, there = (turned(encoding, q, GRID + torch.tensor([0, by])) for by in (0, 5))
        assert torch.allclose(here @ here.mT, there @ there.mT, atol=1e-6) is same


def _convolved(x, weight, cells):
    """x (S, C), weight (C, 9): a loop over the cells of one grid."""
    out = x.clone()
    for s, t in product(range(len(x)), range(len(x))):
        dy, dx = (cells[t] - cells[s]).tolist()
        if abs(dy) < 2 and abs(dx) < 2:
            out[s] += weight[:, 3 * (dy + 1) + dx + 1] * x[t]
    return out


def test_cpe_is_a_convolution_of_each_grid():
    """Two grids of 2 x 3 and 3 x 2, and a token of its own, as a class token is."""
    encoding = make("cpe", SHAPE).double()
    other = torch.cartesian_prod(torch.arange(3), torch.arange(2))[None]
    coords = torch.cat([GRID, other, torch.zeros(1, 1, 2, dtype=torch.long)], 1)
    x, ctx = torch.randn(1, 13, 8, dtype=D), prepared(encoding, coords)
    got = encoding.embed(x, ctx)[0]
    q, k = torch.randn(2, 1, 2, 13, 8, dtype=D)
    both = encoding.transform(q, k, ctx)
    for part in (slice(0, 6), slice(6, 12), slice(12, 13)):
        cells = coords[0, part]
        close(got[part], _convolved(x[0, part], encoding.of_embeddings, cells))
        for y, mine, (own, h) in (
            (y, mine, at)
            for at in product(range(2), range(2))
            for y, mine in [((q, k)[at[0]], both[at[0]])]
        ):
            weight = encoding.of_heads[0, own, h, 0]
            close(mine[0, h, part], _convolved(y[0, h, part], weight, cells))


@pytest.mark.parametrize(
    "wrong", [GRID[:, :5], GRID[:, [0, 1, 2, 3, 4, 4]], GRID.float(), 2 * GRID]
)
def test_cpe_refuses_what_is_no_grid(wrong):
    with pytest.raises(PositionError, match="coords that fill a rectangle"):
        prepared(make("cpe", SHAPE), wrong)


def test_sinusoidal_is_timms_up_to_order():
    got = make("sinusoidal(axes=2)", SHAPE).embed(torch.zeros(1, 6, 8), Context(POS, coords=GRID))
    close(got[0], timm("sincos")[:, [0, 1, 4, 5, 2, 3, 6, 7]])


def test_learned_sums_a_table_of_each_axis():
    encoding = make("learned(axes=2,max_len=3)", SHAPE)
    got = encoding.embed(torch.zeros(1, 6, 8), prepared(encoding))[0]
    for s, (row, column) in enumerate(GRID[0].tolist()):
        close(got[s], encoding.table[row] + encoding.table[3 + column])
    with pytest.raises(PositionError, match=r"positions 0\.\.2, was given position 5"):
        prepared(encoding, GRID + 3)


def test_a_learned_grid_is_interpolated_as_timm_does():
    encoding = make("learned(axes=2,side=3)", d_model=4, train_len=9)
    with torch.no_grad():
        encoding.table.copy_(timm("grid"))
    for size, want in (((5, 2), timm("resized")), ((3, 3), timm("grid"))):
        coords = torch.cartesian_prod(*map(torch.arange, size))[None]
        ctx = encoding.prepare(Context(torch.arange(coords.shape[1])[None], coords=coords))
        close(encoding.embed(torch.zeros(1, coords.shape[1], 4), ctx)[0], want)
