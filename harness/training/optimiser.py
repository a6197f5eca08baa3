"""AdamW over a run's parameter groups, and the schedule of the learning rate."""

import math

import torch

from experiment.config import Train
from harness.model.transformer import Transformer
from pezoo.functional import parameter_groups


def optimiser_for(model: Transformer, train: Train) -> torch.optim.AdamW:
    """Return AdamW over the encoding's parameter groups and the group of all other parameters."""
    optimiser = torch.optim.AdamW(
        parameter_groups(model),
        lr=train.lr,
        betas=train.betas,
        weight_decay=train.weight_decay,
        fused=True,  # one pass over all parameters
    )
    for group in optimiser.param_groups:
        group["peak"] = group["lr"]
    return optimiser


def rate(train: Train, step: int, ending: int = 0) -> float:
    """Return the share of the peak learning rate at a step: linear warm-up, then the schedule.

    With `train.learned` the rate follows the schedule up to the step `ending`, then falls linearly
    to the floor.
    """
    if train.learned and step >= ending:
        level = _schedule(train, ending - 1)
        return level - max(0, level - train.floor) * (step + 1 - ending) / train.learned.decay
    return _schedule(train, step)


def _schedule(train: Train, step: int) -> float:
    warm = min(1.0, (step + 1) / train.warmup) if train.warmup else 1.0
    if train.schedule == "constant":
        return warm
    if train.schedule == "linear":
        return warm * (train.floor + (1 - train.floor) * (1 - step / train.steps))
    progress = (step + 1) / max(train.steps, 1)
    return warm * (train.floor + (1 - train.floor) * 0.5 * (1 + math.cos(math.pi * progress)))
