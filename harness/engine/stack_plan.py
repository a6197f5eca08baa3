"""Which runs of a matrix train as one stack."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from harness.runs.files import read_sealed
from harness.settings.config import RunConfig

Job = tuple[int, ...]
MOST = 32  # members of a stack


def plan(configs: Sequence[RunConfig], root: Path, jobs: int, stack: str = "on") -> list[Job]:
    """All runs, in stacks of one family and alone, in the order of the first of each.

    Where there are fewer families than `jobs`, they are parted so that every worker has something
    to do. A run that has a checkpoint of training alone goes on alone, bit for bit; what torch
    compiles is never stacked, and with `stack` "off" nothing is.
    """
    if stack == "off":
        return [(run,) for run in range(len(configs))]
    families: dict[object, list[int]] = {}
    for run, config in enumerate(configs):
        alone = config.train.compile or begun(root / config.hash) == 1
        families.setdefault(run if alone else config.family, []).append(run)
    parts = math.ceil(jobs / max(1, len(families)))
    stacks = [stack for runs in families.values() for stack in _parted(runs, parts)]
    return sorted(stacks)


def begun(path: Path) -> int:
    """How many runs trained as one up to this run's last checkpoint; 0 where there is none."""
    for index in sorted(path.glob("ckpt-*.json"), reverse=True):
        found = read_sealed(index)
        if found is not None:
            return int(found["curve"]["cost"].get("stacked", 1))
    return 0


def _parted(runs: Sequence[int], parts: int) -> list[Job]:
    """In so many parts or more, as equal as can be."""
    parts = min(len(runs), max(parts, math.ceil(len(runs) / MOST)))
    edges = [len(runs) * part // parts for part in range(parts + 1)]
    return [tuple(runs[a:b]) for a, b in pairwise(edges)]
