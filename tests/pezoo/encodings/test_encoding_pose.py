import pytest
import torch

from pezoo import Context, Pass, PositionError, Shape, attend, make
from pezoo.spec import SpecError

D = torch.float64
SHAPE = Shape(d_model=8, n_heads=2, d_head=4, n_layers=1, train_len=6)
POS = torch.tensor([[-1, 0, 1, 2, 3, 4, 0, 1, 2]])


def gap_of(one, pos, seed):
    plan = {"generator": torch.Generator().manual_seed(seed)}
    return one.draw(Context(pos), **plan)["pose.gap"].tolist()


@pytest.mark.parametrize("n", [1, 2, 5, 6, 17, 18, 30])
def test_every_gap_is_drawn_and_no_other(n):
    one, pos = make("pose(factor=3):rope", SHAPE).train(), torch.arange(n)[None]
    found = {tuple(gap_of(one, pos, seed)) for seed in range(800)}
    want = {(c, u) for c in range(1, (n + 1) // 2 + 1) for u in range(max(1, 18 - n + 1))}
    assert found == want


@pytest.mark.parametrize("inner", ["rope", "alibi", "relative", "learned(max_len=48)"])
def test_training_is_that_of_the_inner_encoding_at_moved_positions(inner):
    one, plain = make(f"pose:{inner}", SHAPE).train(), make(inner, SHAPE)
    plain.load_state_dict(one.inner.state_dict())
    q, k, v = torch.randn(3, 1, 2, 9, 4, dtype=D, generator=torch.Generator().manual_seed(0))
    x = torch.randn(1, 9, 8, dtype=D, generator=torch.Generator().manual_seed(1))
    for seed in range(5):
        drawn = one.draw(Context(POS), generator=torch.Generator().manual_seed(seed))
        ctx = one.prepare(Pass.of(Context(POS, x=x), drawn=drawn))
        c, u = drawn["pose.gap"].tolist()
        moved = [[p + u if p >= c else p for p in POS[0].tolist()]]
        own = Pass.of(Context(torch.tensor(moved), x=x), true_pos=POS)
        own = plain.prepare(own)
        torch.testing.assert_close(one.embed(x, ctx), plain.embed(x, own))
        got, want = (
            attend(each, *each.transform(q, k, at), v, at)
            for each, at in ((one, ctx.at(0, x)), (plain, own.at(0, x)))
        )
        torch.testing.assert_close(got, want)


def test_at_evaluation_it_is_the_inner_encoding():
    one = make("pose:rope", SHAPE).eval()
    assert one.draw(Context(POS)) == {}
    assert torch.equal(one.prepare(Context(POS)).pos, POS)
    assert one.rope_within == make("rope", SHAPE).rope_within


def test_too_few_positions():
    with pytest.raises(SpecError, match=r"pose\(factor=8\) needs 48 positions, of which learned"):
        make("pose:learned(max_len=47)", SHAPE)
    one = make("pose:learned(max_len=48)", SHAPE).train()
    with pytest.raises(PositionError):
        one.draw(Context(torch.arange(49)[None]))
