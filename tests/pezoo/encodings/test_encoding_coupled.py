"""`coupled` and `abacus` against loops, and as special cases of each other and of `learned`."""

import pytest
import torch

from pezoo import Abacus, Context, Coupled, Learned, Pass, PositionError, Shape

SHAPE = Shape(d_model=8, n_heads=2, d_head=4, n_layers=1, train_len=5)
TEXTS = ("$356+940=2070", "$99+10=001", "$0+7=70", "7+=12$345+9")


def ids_of(text):
    return torch.tensor([["0123456789$+=".index(c) for c in text]])


def slots_of(text, first=2, sign=1):
    """The place of each digit in its number, counted from `first`."""
    found = []
    for before, c in zip(" " + text, text, strict=False):
        place = found[-1] + 1 if before.isdigit() else first
        found.append(place if c.isdigit() else sign * (c in "+="))
    return torch.tensor([found])


def places_of(text):
    return slots_of(text, 1, 0)


def added(encoding, ids, slots=None, pos=None, **plan):
    """Return what `embed` adds to (B, S) tokens, and the start."""
    x, every = torch.zeros(*ids.shape, 8), torch.arange(ids.shape[1])[None]
    ctx = Context(every if pos is None else pos, ids=ids, slots=slots, x=x)
    drawn = encoding.draw(ctx, **plan)
    with torch.no_grad():
        out = encoding.embed(x, encoding.prepare(Pass.of(ctx, drawn=drawn)))
    return out, drawn.get(f"{encoding.name}.start")


@pytest.mark.parametrize("text", TEXTS)
def test_rows_of_the_table(text):
    coupled, abacus = Coupled(SHAPE), Abacus(SHAPE)
    ids, slots = ids_of(text), slots_of(text)
    assert torch.equal(added(coupled.eval(), ids, slots)[0], coupled.table[slots])
    assert torch.equal(added(abacus.eval(), ids)[0], abacus.table[places_of(text)])


def test_slots_that_are_positions_give_learned():
    coupled, learned = Coupled(SHAPE, max_pos=9).eval(), Learned(SHAPE, max_len=10)
    learned.table = coupled.table
    ids, pos = torch.zeros(2, 10, dtype=torch.int64), torch.arange(10)[None]
    assert torch.equal(added(coupled, ids, pos)[0], added(learned, ids)[0])


def test_starts_in_training():
    """Each row of coupled has its own, uniform; all rows of abacus share one."""
    ids, slots = (f("$356+940=2070").repeat(4000, 1) for f in (ids_of, slots_of))
    generator = torch.Generator().manual_seed(0)
    slots[0] *= 2
    coupled, abacus = Coupled(SHAPE, max_pos=12), Abacus(SHAPE, max_k=3)
    out, start = added(coupled, ids, slots, generator=generator)
    row = torch.where(slots > 0, slots + start, 0)
    assert torch.equal(out, coupled.table[row])
    assert start[0, 0] <= 2
    share = start[1:, 0].bincount(minlength=8) / 3999
    torch.testing.assert_close(share, torch.full((8,), 1 / 8), atol=0.02, rtol=0)
    seen = {int(added(abacus, ids[:2], generator=generator)[1]) for _ in range(50)}
    assert seen == {0, 1, 2, 3}
    out, start = added(abacus, ids[:1], generator=generator)
    place = places_of("$356+940=2070")
    assert torch.equal(out, abacus.table[torch.where(place > 0, place + start, 0)])


def test_numbers_end_with_documents_and_skip_padding():
    ids = torch.tensor([[1, 2, 3, 4, 5, 6]])
    pos = torch.tensor([[0, 1, -1, 2, 0, 1]])
    out, _ = added(abacus := Abacus(SHAPE, digits=(1, 2, 3, 4, 5, 7)).eval(), ids, pos=pos)
    assert torch.equal(out, abacus.table[torch.tensor([[1, 2, 0, 3, 1, 0]])])


@pytest.mark.parametrize("training", [True, False])
def test_what_the_table_cannot_hold(training):
    encoding, ids = Coupled(SHAPE, max_pos=4).train(training), torch.zeros(1, 5, dtype=torch.int64)
    added(encoding, ids, torch.arange(5)[None])
    with pytest.raises(PositionError, match="max_pos"):
        added(encoding, ids, torch.arange(1, 6)[None])
    short = Abacus(SHAPE, max_pos=5).train(training)
    added(short, ids)
    with pytest.raises(PositionError, match="max_pos"):
        added(short, torch.zeros(1, 6, dtype=torch.int64))


def test_errors():
    with pytest.raises(ValueError, match="slots"):
        Coupled(SHAPE).prepare(Context(torch.arange(3)[None]))
    with pytest.raises(ValueError, match="ids"):
        Abacus(SHAPE).prepare(Context(torch.arange(3)[None]))
