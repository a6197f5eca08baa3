"""Contexts that do not fit, and options that no encoding can have, are found at once."""

import pytest
import torch

import pezoo
from pezoo import Context, Shape, attend
from pezoo.base import Pass
from pezoo.encodings.fire import FIRE

SHAPE = Shape(d_model=8, n_heads=2, d_head=4, n_layers=2, train_len=32)
POS = torch.arange(10)[None]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        *(({"n_new": n}, f"n_new must be .*got {n}") for n in (0, -1, 11)),
        ({"memo": {}}, r"memo must be a pezoo.Memo, got dict"),
        *(({"pos": pos}, "pos must") for pos in (list(range(10)), POS.short(), POS.bool())),
        *(
            ({name: ids}, rf"{name} must hold whole numbers, \(B, S\)")
            for name in ("ids", "slots")
            for ids in (torch.arange(10), torch.zeros(1, 10), list(range(10)))
        ),
    ],
)
def test_what_no_context_can_hold(given, words):
    assert Context(POS.int()).new == 10
    with pytest.raises(ValueError, match=words):
        Context(**{"pos": POS} | given)


@pytest.mark.parametrize("length", ["9", 9.0, -3, 0, True])
def test_a_planned_length_is_a_whole_number(length):
    with pytest.raises(ValueError, match="length must be a whole number of at least 1"):
        pezoo.Cache(length=length)


def test_sizes_of_another_type():
    with pytest.raises(ValueError, match="d_model must be a whole number"):
        pezoo.make("rope", d_model="16", n_heads=4)


def test_decoding_without_the_memo_of_the_pass_before():
    fox, new = pezoo.make("fox", SHAPE), torch.zeros(1, 1, 8)
    ctx = fox.prepare(Context(pos=POS, x=new, n_new=1)).at(0, new)
    with pytest.raises(ValueError, match="no fox of the 9 tokens before: pass the memo"):
        fox.bias(torch.zeros(1, 2, 1, 4), torch.zeros(1, 2, 10, 4), ctx)


def test_decoding_with_a_memo_that_is_cropped_further_than_the_cache():
    fox, x = pezoo.make("fox", SHAPE), torch.zeros(1, 10, 8)
    ctx = Context(pos=POS[:, :8], x=x[:, :8])
    fox.bias(None, None, fox.prepare(ctx).at(0, ctx.x))
    ctx.memo.crop(3)
    later = fox.prepare(Context(pos=POS, x=x[:, 8:], n_new=2, memo=ctx.memo)).at(0, x[:, 8:])
    with pytest.raises(ValueError, match="fox of 3 of the 8 tokens before: crop it with the cache"):
        fox.bias(None, None, later)


@pytest.mark.parametrize(("tokens", "n_new"), [(11, None), (9, None), (2, 1)])
def test_x_of_another_number_of_tokens_or_shape(tokens, n_new):
    ctx = Context(pos=POS, x=torch.zeros(1, tokens, 8), n_new=n_new)
    for name in ("rope", "randomized", "prism_2025(cursors=1,d_pe=8)"):
        with pytest.raises(ValueError, match=f"x has {tokens} tokens, but ctx has {n_new or 10}"):
            pezoo.make(name, SHAPE).prepare(ctx)
    for size in ((10, 8), (1, 10, 6)):
        with pytest.raises(ValueError, match=r"x must be \(B, T, D\) with D = 8, the model's"):
            pezoo.make("rope", SHAPE).prepare(Context(pos=POS, x=torch.zeros(size)))


def test_rows_of_positions_are_those_of_x():
    rope, x = pezoo.make("rope", SHAPE), torch.zeros(2, 10, 8)
    for rows in (1, 2):
        assert rope.prepare(Context(pos=POS.expand(rows, -1), x=x)).prepared
    with pytest.raises(ValueError, match="pos must have 1 row"):
        rope.prepare(Context(pos=POS.expand(3, -1), x=x))


@pytest.mark.parametrize("name", ["rope", "fire", "randomized:kerple", "layers(every=2):rope,t5"])
def test_layers_count_from_0_to_n_layers(name):
    x, n = torch.zeros(1, 10, 8), SHAPE.n_layers
    ctx = pezoo.make(name, SHAPE).prepare(Context(pos=POS, x=x))
    assert ctx.at(n - 1, x).layer == n - 1
    with pytest.raises(ValueError, match="layer must be at least 0"):
        ctx.at(-1, x)
    with pytest.raises(ValueError, match=f"layer {n}: the encoding was made with n_layers={n}"):
        ctx.at(n, x)


def test_an_encoding_that_was_not_told_how_many_layers_there_are_has_any():
    x = torch.zeros(1, 10, 8)
    rope = pezoo.make("rope", d_head=8)
    assert rope.prepare(Context(pos=POS, x=x)).at(50, x).layer == 50


@pytest.mark.parametrize("name", ["rope", "sinusoidal", "shifted_sinusoidal", "relative"])
@pytest.mark.parametrize("base", [0.0, -1.0])
def test_a_base_that_no_frequency_has(name, base):
    with pytest.raises(ValueError, match="base must be above 0"):
        pezoo.make(f"{name}(base={base})", SHAPE)


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_options_are_finite(value):
    with pytest.raises(ValueError, match="base must be above 0 and finite"):
        pezoo.RoPE(SHAPE, base=value)
    with pytest.raises(ValueError, match="c must be above 0 and finite"):
        FIRE(SHAPE, c=value)


@pytest.mark.parametrize("inner", ["prism_spectral(cursors=1,d_pe=8)", "nope"])
def test_positions_in_random_order_begin_no_documents(inner):
    """Neither encoding reads positions: at any positions it must compute the same."""
    torch.manual_seed(0)
    loose = pezoo.make(f"randomized(max_len=64,sorted=false):{inner}", SHAPE).double().eval()
    x = torch.randn(2, 10, 8, dtype=torch.float64)
    q, k, v = torch.randn(3, 2, 2, 10, 4, dtype=torch.float64)
    packed = torch.cat([torch.arange(6), torch.arange(4)])[None]
    for pos in (POS, packed):
        found = []
        for encoding in (loose, loose.inner):
            ctx = Context(pos=pos, x=x)
            drawn = encoding.draw(ctx, generator=torch.Generator().manual_seed(1))
            ctx = encoding.prepare(Pass(pos=pos, x=x, drawn=drawn)).at(0, x)
            found.append(attend(encoding, *encoding.transform(q, k, ctx), v, ctx))
        torch.testing.assert_close(*found)
