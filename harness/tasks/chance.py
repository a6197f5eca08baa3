"""A baseline that knows only the length of the answer.

>>> from harness.tasks import make
>>> make("bucket_sort").chance, round(best_constant(make("bucket_sort"), 60), 2)
(0.2, 0.82)
"""

from __future__ import annotations

import torch

from harness.tasks.base import Task


def best_constant(task: Task, length: int, samples: int = 10_000, seed: int = 0) -> float:
    """Estimate the token accuracy of the best constant at each place of the answer.

    Only tokens of `task.counted` count, as in Ruoss et al. (2023). It exceeds `chance` where the
    tokens at a place are not uniform. Errors: TaskError for a length without instances.
    """
    target = task.sample(torch.Generator().manual_seed(seed), samples, length).target  # (B, Q)
    counted = task.counted(target)
    tokens = range(len(task.vocab))
    hits = torch.stack([((target == token) & counted).sum(0) for token in tokens])  # (K, Q)
    return float(hits.amax(0).sum() / counted.sum())
