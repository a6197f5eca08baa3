"""Tasks on grids: other shapes, coordinates, and the images of digits."""

from itertools import product

import pytest
import torch

from harness import tasks
from harness.data.sequences import to_sequences
from harness.tasks.base import TaskError
from harness.tasks.digit_images import LEVELS, scanned

NAMES = ("translate", "transpose", "reflect", "rotate", "flood_fill", "pointer", "longest_line")


def draws(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(("name", "shape"), [*product(NAMES, ("wide", "tall"))])
def test_other_shapes_are_solved_too(name, shape):
    task = tasks.make(name)
    batch = task.test_set(shape, draws(), 16, 24)
    assert task.vocab.decode(batch.prompt[0]).count("/") == {"wide": 6, "tall": 4}[shape]
    for prompt, target in zip(batch.prompt.tolist(), batch.target.tolist(), strict=True):
        assert task.solve(prompt) == target
        assert task.measure(prompt) == 24
    with pytest.raises(TaskError, match="no test set 'round'; it has wide, tall"):
        task.check_test_set("round")
    with pytest.raises(TaskError, match="25 cells are no grid with 6 of them a side"):
        task.test_set(shape, draws(), 1, 25)


@pytest.mark.parametrize("name", NAMES)
def test_lengths_are_squares(name):
    assert tasks.make(name).lengths(1, 50) == [4, 9, 16, 25, 36, 49]


def expected(text):
    """Row and column of every token of rows that end with "/", and start anew at a space."""
    found = []
    for part in text.split():
        for i, row in enumerate(part.split("/")):
            found += [(i, j) for j in range(len(row) + (i < part.count("/")))]
    return found


def test_coordinates_start_anew_in_the_answer():
    task = tasks.make("transpose")
    batch = task.test_set("wide", draws(), 3, 12)  # 6 x 2
    inputs = to_sequences(batch, task, "encoder").inputs
    coords = task.coords(inputs)
    assert coords.shape == (1, 32, 2)
    assert [*map(tuple, coords[0].tolist())] == expected("ab/ab/ab/ab/ab/ab/ abcdef/abcdef/")
    ids = torch.cat([batch.prompt, batch.target], 1)
    decoder = task.coords(ids)
    assert [*map(tuple, decoder[0].tolist())] == expected("ab/ab/ab/ab/ab/ab/= abcdef/abcdef/")
    for n in range(1, ids.shape[1] + 1):  # later tokens change nothing
        assert torch.equal(task.coords(ids[:, :n])[0], decoder[0, :n])
    pad = torch.full((3, 2), task.vocab.pad)
    assert torch.equal(task.coords(torch.cat([pad, ids, pad], 1))[0, 2:-2], decoder[0])


def test_rows_of_other_shapes_have_coordinates_of_their_own():
    task = tasks.make("reflect")
    ids = torch.stack([task.vocab.encode(text) for text in ("123/456/=", "12/34/56=")])
    coords = task.coords(ids)
    assert coords.shape == (2, 9, 2)
    assert [*map(tuple, coords[1].tolist())] == expected("ab/cd/ef=")


def test_only_cells_of_the_answer_are_written_and_counted():
    task = tasks.make("rotate")
    batch = to_sequences(task.sample(draws(), 2, 9), task, "encoder")
    slash = torch.tensor([False] * 3 + [True]).repeat(3)
    assert torch.equal(batch.answer[0, 12:], ~slash)
    assert torch.equal(batch.counted, batch.answer)
    assert (batch.inputs[0, 12:][slash] == task.slash).all()
    assert (batch.inputs[0, 12:][~slash] == task.vocab.eos).all()


def test_digits_are_read_at_other_sizes_and_places():
    task = tasks.make("digits")
    train, test = task.sample(draws(), 300, 64), task.test_set("test", draws(), 300, 64)
    rows = [{tuple(row) for row in part.prompt.tolist()} for part in (train, test)]
    assert not rows[0] & rows[1]
    images, digits = scanned()
    by = dict(zip(map(tuple, images.long().flatten(1).tolist()), digits.tolist(), strict=True))
    for row, (digit,) in zip(test.prompt.tolist(), test.target.tolist(), strict=True):
        assert by[tuple(token for token in row if token < LEVELS)] == digit - LEVELS
    for length in (64, 144, 256, 576):
        large = task.test_set("test", draws(), 60, length)
        right = sum(
            task.solve(prompt) == target
            for prompt, target in zip(large.prompt.tolist(), large.target.tolist(), strict=True)
        )
        assert right >= 55, length  # the nearest image tells
    moved = task.test_set("shifted", draws(), 20, 144).prompt
    grey = [[token for token in row if token < LEVELS] for row in moved.tolist()]
    assert {sum(row) for row in grey} <= {sum(image) for image in by}
    assert (
        task.coords(torch.cat([moved[:, :-1], torch.full((20, 1), task.vocab.eos)], 1))[0, -1].sum()
        == 0
    )
