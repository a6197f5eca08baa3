"""AdamW over a run's parameter groups, and the schedule of the learning rate."""

import math
from typing import Any

import torch

from experiment.config import Train
from harness.model.transformer import Transformer


def optimiser_for(model: Transformer, train: Train) -> torch.optim.AdamW:
    """Return AdamW over the encoding's parameter groups and the group of all other parameters."""
    optimiser = torch.optim.AdamW(
        param_groups(model),
        lr=train.lr,
        betas=train.betas,
        weight_decay=train.weight_decay,
        fused=True,  # one pass over all parameters
    )
    for group in optimiser.param_groups:
        group["peak"] = group["lr"]
    return optimiser


def param_groups(model: Transformer) -> list[dict[str, Any]]:
    """Return the group of the other parameters, then the encoding's groups with their settings.

    Errors: ValueError for a parameter in two groups or a negative learning rate.
    """
    groups: list[dict[str, Any]] = []
    taken: set[int] = set()
    for group in model.encoding.param_groups():
        ids = list(map(id, group.params))
        if len({*ids, *taken}) < len(ids) + len(taken):
            raise ValueError(f"{model.encoding.name}: param_groups holds a parameter twice")
        if group.lr is not None and not 0 <= group.lr < math.inf:
            raise ValueError(
                f"{model.encoding.name}: expected a learning rate of 0 or more in param_groups, "
                f"was {group.lr}"
            )
        taken.update(ids)
        own = {"lr": group.lr, "betas": group.betas, "weight_decay": group.weight_decay}
        groups.append({"params": group.params} | {k: v for k, v in own.items() if v is not None})
    rest = [p for p in model.parameters() if id(p) not in taken]
    return [{"params": rest}, *groups]


def rate(train: Train, step: int) -> float:
    """Return the share of the peak learning rate at a step: linear warm-up, then the schedule."""
    warm = min(1.0, (step + 1) / train.warmup) if train.warmup else 1.0
    if train.schedule == "constant":
        return warm
    progress = (step + 1) / train.steps
    if train.schedule == "linear":
        return warm * (train.floor + (1 - train.floor) * (1 - step / train.steps))
    return warm * (train.floor + (1 - train.floor) * 0.5 * (1 + math.cos(math.pi * progress)))
