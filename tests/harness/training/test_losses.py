"""Losses stay on the device; the first that is not finite is reported with its step."""

import math

import pytest
import torch

from harness.training.trainer import Diverged, Losses


def losses_of(*values):
    losses = Losses()
    for step, value in enumerate(values):
        losses.note(step, torch.tensor(value, requires_grad=True))
    return losses


def test_the_last_loss_is_read():
    assert math.isnan(losses_of().read())
    assert losses_of(2.0, 0.125).read() == 0.125


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_the_first_that_is_not_finite_is_kept(bad):
    with pytest.raises(Diverged, match=f"loss is {bad} at step 1"):
        losses_of(2.0, bad, math.nan, 1.0).read()
