"""Losses stay on the device; the first that is not finite is reported with its step."""

import math

import pytest
import torch

from harness.training.losses import Losses


def test_nothing_noted_is_nothing_read():
    assert Losses().read() == ([], [])


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_the_first_that_is_not_finite_is_kept(bad):
    losses = Losses()
    for step, values in enumerate([[1.0, 2.0], [0.5, bad], [0.25, math.nan], [0.125, 1.0]]):
        losses.note(step, torch.tensor(values))
    found, errors = losses.read()
    assert found[0] == 0.125
    assert errors[0] is None
    assert str(found[1]) == str(bad)
    assert str(errors[1]) == f"loss is {bad} at step 1"


def test_losses_are_read_as_they_are():
    losses = Losses()
    loss = torch.tensor([1 / 3], requires_grad=True)
    losses.note(0, 2 * loss)
    assert losses.read()[0] == (2 * loss).tolist()
