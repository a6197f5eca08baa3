import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pezoo.base import Context, Encoding, Memo, ParamGroup, Pass, PositionError, Shape
from pezoo.encodings.randomized import Randomized
from pezoo.registry import make

SHAPE = Shape(d_model=8, n_heads=2, d_head=4, n_layers=2, train_len=6)


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def context(pos=None, **fields):
    pos = torch.arange(6)[None] if pos is None else pos
    return Context(pos=pos, w_key=torch.eye(SHAPE.n_heads * SHAPE.d_head, SHAPE.d_model), **fields)


def prepare(encoding, ctx=None, seed=0, length=None):
    ctx = context() if ctx is None else ctx
    drawn = encoding.draw(ctx, generator=seeded(seed), length=length)
    return encoding.prepare(Pass.of(ctx, drawn=drawn))


def hooks(encoding, ctx):
    """Return the inputs of an attention layer: embeddings and logits of fixed q and k."""
    x = torch.randn(2, 6, 8, generator=seeded(7))
    q, k = torch.randn(2, 2, 2, 6, 4, generator=seeded(8)).unbind(0)
    ctx = prepare(encoding, ctx).at(0, x)
    q, k = encoding.transform(q, k, ctx)
    bias = encoding.bias(q, k, ctx)
    return encoding.embed(x, ctx), q @ k.mT / 2 + (0 if bias is None else bias)


@settings(max_examples=60)
@given(
    size=st.integers(1, 300),
    data=st.data(),
    seed=st.integers(0, 2**31),
    sample=st.sampled_from(["positions", "distances"]),
)
def test_draws_are_ascending_distinct_and_in_range(size, data, seed, sample):
    n = data.draw(st.integers(1, size))
    drawn = make("randomized", SHAPE, max_len=size, sample=sample).table(n, seeded(seed)).tolist()
    assert len(drawn) == n
    assert drawn == sorted(set(drawn))
    assert 0 <= drawn[0] <= drawn[-1] < size
    assert sample == "positions" or drawn[0] == 0


@pytest.mark.parametrize("sample", ["positions", "distances"])
def test_every_choice_is_equally_likely(sample):
    first = 0 if sample == "positions" else 1
    encoding, generator = make("randomized", SHAPE, max_len=5, sample=sample), seeded(0)
    draws = [tuple(encoding.table(2 + first, generator).tolist()[first:]) for _ in range(2000)]
    choices = list(itertools.combinations(range(first, 5), 2))
    assert set(draws) == set(choices)
    share = 2000 / len(choices)
    assert all(abs(draws.count(choice) - share) < 5 * share**0.5 for choice in choices)


INNERS = ["sinusoidal", "learned", "rope", "relative", "shaw", "t5", "alibi", "hard_alibi", "lbpe"]


@pytest.mark.parametrize(
    ("inner", "sample"),
    [
        *[(inner, "positions") for inner in INNERS],
        *[(inner, "distances") for inner in ("relative", "shaw", "t5", "alibi", "hard_alibi")],
    ],
)
def test_with_nothing_left_to_draw_it_is_the_inner_encoding(inner, sample):
    plain = make(inner, SHAPE)
    encoding = make(f"randomized(max_len=6,sample={sample}):{inner}", SHAPE)
    encoding.inner.load_state_dict(plain.state_dict())
    for got, want in zip(hooks(encoding, context()), hooks(plain, context()), strict=True):
        assert torch.equal(got, want)


@pytest.mark.parametrize("training", [True, False])
def test_one_draw_for_the_batch_in_training_and_evaluation(training):
    encoding = make("randomized(max_len=40):rope", SHAPE).train(training)
    pos = torch.tensor([[0, 1, 2, 3, 4, 5], [-1, -1, 0, 1, 2, 3], [0, 1, 2, -1, -1, -1]])
    new = prepare(encoding, context(pos)).pos
    table = new[0]
    assert not torch.equal(table, pos[0])
    assert torch.equal(new, torch.where(pos < 0, -1, table[pos.clamp(min=0)]))
    again = [prepare(encoding, context(pos), seed).pos for seed in (0, 1)]
    assert torch.equal(again[0], new)
    assert not torch.equal(again[1], new)


def test_sampled_distances_depend_on_the_offset_alone():
    ctx = prepare(make("randomized(max_len=40,sample=distances)", SHAPE))
    d = ctx.distance()[0]
    assert torch.equal(d, -d.T)
    assert torch.equal(d[1:, 1:], d[:-1, :-1])
    assert d[0, 0] == 0
    assert d[:, 0].tolist() == sorted(set(d[:, 0].tolist()))
    assert torch.equal(ctx.pos, torch.arange(6)[None])


@pytest.mark.parametrize("sample", ["positions", "distances"])
def test_decoding_keeps_the_one_draw(sample):
    encoding, memo = make("randomized", SHAPE, sample=sample), Memo()
    whole = prepare(encoding)
    for length in range(1, 7):
        step = context(torch.arange(length)[None], n_new=1, memo=memo)
        step = prepare(encoding, step, length=6) if length == 1 else encoding.prepare(step)
        assert torch.equal(step.distance()[:, -1], whole.distance()[:, length - 1, :length])
    with pytest.raises(PositionError, match="plan the final length before the first"):
        encoding.prepare(context(torch.arange(7)[None], n_new=1, memo=memo))


def test_more_positions_than_the_range_is_an_error():
    encoding = make("randomized(max_len=6):rope", SHAPE)
    with pytest.raises(PositionError, match="represents 6 positions, needs 7"):
        prepare(encoding, length=7)
    with pytest.raises(PositionError, match="represents positions"):
        encoding.prepare(context(torch.arange(7)[None]))


def test_the_inner_encoding_is_relative_and_built_for_the_whole_range():
    encoding = make("randomized", SHAPE)
    assert encoding.inner.name == "relative"
    assert encoding.inner.shape.train_len == encoding.max_len == 2048
    assert make("randomized(max_len=90):learned", SHAPE).inner.table.shape == (90, 8)


@pytest.mark.parametrize("width", [10, 90, 95])
@pytest.mark.parametrize("left", [False, True])
def test_padding_changes_no_draw(width, left):
    encoding = make("randomized(max_len=90):rope", SHAPE)
    tokens, padding = torch.arange(10), torch.full((width - 10,), -1)
    pos = torch.cat([padding, tokens] if left else [tokens, padding])[None]
    alone, padded = prepare(encoding, context(tokens[None])), prepare(encoding, context(pos))
    assert torch.equal(padded.pos[pos >= 0], alone.pos[0])


def test_it_passes_on_what_the_inner_encoding_claims_and_asks():
    class Inner(Encoding):
        needs_scale = True
        prefix_stable = False
        causal_only = True

        def weights(self, logits, ctx):
            return logits.sigmoid()

        def penalty(self):
            return torch.tensor(3.0)

        def param_groups(self):
            return [ParamGroup([], lr=1.0)]

    encoding = Randomized(SHAPE, Inner)
    assert encoding.needs_scale
    assert encoding.causal_only
    assert not encoding.prefix_stable
    assert encoding.replaces_softmax
    assert encoding.penalty() == 3
    assert encoding.param_groups()[0].lr == 1.0
    ctx = Pass.of(context(), prepared=True)
    assert torch.equal(encoding.weights(torch.zeros(1), ctx), torch.full((1,), 0.5))
    blind = make("randomized:nope", SHAPE)
    assert blind.order_blind
    assert not blind.replaces_softmax
    assert not make("randomized:rope", SHAPE).order_blind


def test_by_default_draws_what_the_paper_draws():
    assert make("randomized:alibi", SHAPE).sample == "distances"
    assert make("randomized(sample=positions):alibi", SHAPE).sample == "positions"
    for inner in ("relative", "rope", "sinusoidal", "t5"):
        assert make(f"randomized:{inner}", SHAPE).sample == "positions"


def test_packed_documents_need_no_more_positions_than_the_longest():
    pos = torch.arange(5).repeat(9)[None]
    encoding = make("randomized(max_len=20):rope", SHAPE)
    ctx = prepare(encoding, context(pos))
    assert len(ctx.drawn["randomized.table"]) == 5
    assert torch.equal(ctx.pos, ctx.pos[:, :5].repeat(1, 9))  # one draw serves every document


@pytest.mark.parametrize("sample", ["positions", "distances"])
def test_without_sorting_the_same_are_drawn_in_random_order(sample):
    ordered = make("randomized", SHAPE, max_len=300, sample=sample).table(50, seeded(0))
    loose = make("randomized", SHAPE, max_len=300, sample=sample, sorted=False).table(50, seeded(0))
    assert not torch.equal(loose, ordered)
    assert torch.equal(loose.sort().values, ordered)


def test_a_batch_of_padding_alone_stays_padding():
    ctx = prepare(make("randomized:rope", SHAPE), context(torch.full((2, 3), -1)))
    assert ctx.pos.tolist() == [[-1] * 3] * 2
