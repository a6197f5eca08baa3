import math
import warnings

import pytest
import torch

from pezoo import Context, Pass, Shape, attention, make

D = torch.float64
SHAPE = Shape(d_model=8, n_heads=2, d_head=4, n_layers=1, train_len=8)
POS = torch.tensor([[-1, 0, 3, 4, 9, 14, 15, 40]])


def scores(text, q, k, pos=POS, training=False):
    encoding = make(text, SHAPE).train(training)
    return encoding.scores(q, k, encoding.prepare(Context(pos)).at(0, None))


def groups(i, j):
    return i - j if i - j < 5 else i // 3 - j // 3 + 5 - 5 / 3


def smallest_group(i, j):  # 41 positions of a model trained on 8: 5 + 3 G >= 41
    return i - j if i - j < 5 else i // 12 - j // 12 + 5 - 5 / 12


def chunks(i, j):
    """The three kinds of distances of dual chunk attention, s = 6 and w = 2, pair by pair."""
    apart = i // 6 - j // 6
    if apart == 0:
        return i - j
    return (min(i % 6 + 6, 7) if apart == 1 else 7) - j % 6


def qk():
    return torch.randn(2, 1, 2, 8, 4, dtype=D, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("text", "distance"),
    [
        ("self_extend(group=3,window=5,base=100)", groups),
        ("self_extend(group=0,window=5,base=100)", smallest_group),
        ("dual_chunk(base=100)", chunks),
        ("rerope(base=100)", lambda i, j: min(i - j, 4)),
        ("rerope(window=5,leak=0.25,base=100)", lambda i, j: min(i - j, 5 + (i - j - 5) / 4)),
    ],
)
def test_it_is_rope_at_another_distance(text, distance):
    q, k = qk()
    got, p = scores(text, q, k), POS[0].tolist()
    for h in range(2):
        for i in range(1, 8):
            for j in range(1, 8):
                if p[j] > p[i] and text.startswith("dual"):
                    continue  # for decoders
                far, near = sorted((p[i], p[j]), reverse=True)
                mirrored = math.copysign(1, i - j) * distance(far, near)
                want = 0.0
                for m in range(2):
                    a, b = (complex(*x[0, h, n, 2 * m : 2 * m + 2]) for x, n in ((q, i), (k, j)))
                    angle = mirrored * 100 ** (-m / 2)
                    want += (a * b.conjugate() * complex(math.cos(angle), math.sin(angle))).real
                assert got[0, h, i, j].item() == pytest.approx(want / 2, abs=2e-5)


@pytest.mark.parametrize("text", ["rerope(window=5,{})", "self_extend(group=3,window=5,{})"])
def test_log_n_is_the_factor_of_the_released_code(text):
    q, k = qk()
    with_it, without = (scores(text.format(f"log_n={on}"), q, k) for on in ("true", "false"))
    for i, p in enumerate([0, 0, 3, 4, 9, 14, 15, 40]):
        factor = max(1, math.log(p + 1) / math.log(8))  # a training length of 8
        torch.testing.assert_close(with_it[:, :, i], without[:, :, i] * factor)
    assert make(text.format("log_n=true"), SHAPE).relative is False


def test_later_keys_end_at_the_window_too():
    one = make("rerope(window=4)", d_head=2, train_len=8).eval()
    q, pos = torch.tensor([1.0, 0.0]).expand(1, 1, 40, 2), torch.arange(40)[None]
    got = one.scores(q, q, one.prepare(Context(pos)).at(0, None))[0, 0, 5, 35]
    assert got.item() * math.sqrt(2) == pytest.approx(math.cos(4), abs=1e-6)  # not cos 30


def test_the_example_of_the_docstring():
    at = make("self_extend(window=4,group=2)", SHAPE)
    i, j = 9, torch.arange(9, -1, -1)
    far = at.coarse(torch.tensor(9), 2) - at.coarse(j, 2) + 4 - 2
    d = torch.where(i - j < 4, i - j, far)
    assert d.tolist() == [0, 1, 2, 3, 4, 4, 5, 5, 6, 6]


@pytest.mark.parametrize(
    ("text", "training"),
    [
        ("self_extend", True),
        ("rerope", True),
        ("dual_chunk", True),
        ("dual_chunk(chunk=40,window=3)", False),
        ("self_extend(group=1)", False),
        ("rerope(leak=1)", False),
        ("self_extend(window=99)", False),
        ("rerope(window=99)", False),
    ],
)
def test_in_training_and_within_the_window_it_is_rope(text, training):
    q, k = qk()
    rope = make("rope", SHAPE)
    turned = rope.transform(q, k, rope.prepare(Context(POS)).at(0, None))
    tokens = (..., slice(1, None), slice(1, None))  # without padding
    want = (turned[0] @ turned[1].mT / 2)[tokens]
    torch.testing.assert_close(scores(text, q, k, POS, training)[tokens], want, atol=2e-5, rtol=0)


def test_keys_beyond_the_window_have_no_order():
    q, k = qk()
    pos, v = torch.arange(8)[None], torch.randn(1, 2, 8, 4, dtype=D)
    order = torch.tensor([3, 0, 2, 1, 4, 5, 6, 7])
    for text, same in (("rerope(window=4)", True), ("rope", False)):
        one = make(text, SHAPE).eval()
        a = attention(q, k, v, one, pos)[:, :, -1]
        b = attention(q, k[:, :, order], v[:, :, order], one, pos)[:, :, -1]
        assert torch.allclose(a, b, atol=1e-6) == same


def test_the_examples_of_dual_chunk():
    one, ctx = make("dual_chunk(chunk=4,window=2)", SHAPE), Context(torch.arange(10)[None])
    assert one.prf(ctx)[6, :7].tolist() == [5, 4, 3, 2, 2, 1, 0]
    assert one.prf(ctx)[9, :4].tolist() == [5, 4, 3, 2]


@pytest.mark.parametrize("length", [16, 24, 64])
def test_by_default_dual_chunk_has_no_distance_that_training_lacks(length):
    one = make("dual_chunk", SHAPE.replaced(train_len=length))
    d = one.prf(Context(torch.arange(5 * length)[None])).tril()
    assert (d.max(), d.min(), one.rope_within) == (length - 1, 0, length)


@pytest.mark.parametrize(
    ("text", "reach"),
    [
        ("self_extend", 36),  # 4 + 8 * 4
        ("self_extend(group=3,window=2)", 20),
        ("rerope(leak=0.5)", 12),
        ("rerope", None),
        ("self_extend(group=0)", None),
        ("dual_chunk", None),
        ("dual_chunk(chunk=6,window=3)", 8),
        ("rerope(window=8)", 8),
    ],
)
def test_a_text_beyond_its_reach_is_named(text, reach):
    one = make(text, SHAPE).eval()

    def said(n):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            one.prepare(Context(torch.arange(n)[None]))
        return [str(x.message) for x in found]

    assert said(reach or 500) == []
    if reach:
        (message,) = said(reach + 1)
        assert f" reads {reach} tokens with a model trained on 8:" in message
        options = one.endless.replace(" and ", ",")  # the advice is good
        assert make(f"{text.partition('(')[0]}({options})", SHAPE).reach == math.inf
        assert one.train()
        assert not said(99)


def test_the_smallest_group_holds_the_planned_text_and_leaves_short_ones_alone():
    one = make("self_extend(group=0)", SHAPE).eval()
    for n in range(1, 60):
        (group,) = one.groups(Context(torch.arange(n)[None])).view(-1).tolist()
        assert group == next(g for g in range(1, 99) if g * 4 + 4 >= n)
    ctx = Context(torch.arange(5)[None])
    planned = one.prepare(Pass.of(ctx, drawn=one.draw(ctx, length=40)))
    assert one.groups(planned).item() == 9
    assert (one.prefix_stable, one.reads_length, one.rope_within) == (False, True, 8)
