"""Seeds for every purpose, kept apart by name, so that no two streams ever meet.

Every random number of a run comes from a generator made here from what it is for and where the run
stands: a resumed run needs no saved generator state.
"""

import hashlib

import torch


def seed(*parts: object) -> int:
    """A 63-bit seed from any description: seed("train", "copy", 0, 17)."""
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def generator(*parts: object) -> torch.Generator:
    """A CPU generator for that purpose."""
    return torch.Generator().manual_seed(seed(*parts))
