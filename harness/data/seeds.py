"""Derive independent seeds from descriptions.

Every random number of a run comes from a generator seeded by its purpose and the step, so a resumed
run needs no saved generator state.
"""

import hashlib

import torch


def seed(*parts: object) -> int:
    """Return a 63-bit seed of a description: seed("train", "copy", 0, 17)."""
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def generator(*parts: object) -> torch.Generator:
    """Return a CPU generator with the seed of a description."""
    return torch.Generator().manual_seed(seed(*parts))
