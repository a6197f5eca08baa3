"""Which runs train as one stack."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from experiment.config import RunConfig
from harness.runs.files import read_sealed

Job = tuple[int, ...]  # runs, by their place among all
MOST = 32  # members of a stack


def plan(configs: Sequence[RunConfig], root: Path, jobs: int, stack: str = "on") -> list[Job]:
    """Every run in one job: in a stack of its family or alone, ordered by the first run of each.

    Fewer families than `jobs` are divided until every worker has something to do. A run whose
    checkpoint is of training alone continues alone, bit for bit; compiled runs are never stacked,
    and with `stack` "off" no run is. "auto" begins stacks on a GPU alone: on a CPU they are slower
    (docs/findings/harness-speed.md).
    """
    if stack == "off":
        return [(run,) for run in range(len(configs))]
    families: dict[object, list[int]] = {}
    for run, config in enumerate(configs):
        size = stack_size(root / config.hash)
        begin = stack == "on" or config.device.startswith("cuda")
        alone = config.train.compile or size == 1 or (size == 0 and not begin)
        families.setdefault(run if alone else config.family, []).append(run)
    parts = math.ceil(jobs / max(1, len(families)))
    return sorted(job for runs in families.values() for job in _divided(runs, parts))


def stack_size(path: Path) -> int:
    """The size of the stack that saved a run's last checkpoint; 1: alone, 0: no checkpoint."""
    for index in sorted(path.glob("ckpt-*.json"), reverse=True):
        found = read_sealed(index)
        if found is not None and found.get("run") == path.name:
            return int(found["curve"]["cost"].get("stacked", 1))
    return 0


def _divided(runs: Sequence[int], parts: int) -> list[Job]:
    """So many parts or more, of nearly equal size."""
    parts = min(len(runs), max(parts, math.ceil(len(runs) / MOST)))
    edges = [len(runs) * part // parts for part in range(parts + 1)]
    return [tuple(runs[a:b]) for a, b in pairwise(edges)]
