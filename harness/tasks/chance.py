"""What a guess gets that knows the length of the answer alone.

>>> from harness.tasks import make
>>> make("bucket_sort").chance, round(best_constant(make("bucket_sort"), 60), 2)
(0.2, 0.82)
"""

from __future__ import annotations

import torch

from harness.tasks.base import Task


def best_constant(task: Task, length: int, samples: int = 10_000, seed: int = 0) -> float:
    """The token accuracy of the best constant at every place of the answer.

    Counted as in Ruoss et al. (2023): over the tokens that `task.counted` counts. `chance`, 1/K, is
    below it where the answer's tokens are not uniform. Errors: TaskError for a missing length.
    """
    target = task.sample(torch.Generator().manual_seed(seed), samples, length).target  # (B, Q)
    counted = task.counted(target)
    tokens = range(len(task.vocab))
    hits = torch.stack([((target == token) & counted).sum(0) for token in tokens])  # (K, Q)
    return float(hits.amax(0).sum() / counted.sum())
