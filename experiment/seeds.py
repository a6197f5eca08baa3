"""Read and write lists of seeds."""

import re
from collections.abc import Iterable

MOST = 10_000  # seeds in one span


def parse_seeds(text: str) -> list[int]:
    """Parse seeds. Errors: ValueError, also for a repeated seed.

    >>> parse_seeds("0-2,7")
    [0, 1, 2, 7]
    """
    seeds: list[int] = []
    for part in text.split(","):
        found = re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", part.strip())
        if not found:
            raise ValueError(f"cannot read seeds {text!r}: expected for example 0-2 or 0,3,7")
        first, last = int(found[1]), int(found[2] or found[1])
        if not 0 <= last - first < MOST:
            count = max(0, last - first + 1)
            raise ValueError(f"seeds {part.strip()!r} are {count} seeds: expected 1 to {MOST}")
        seeds.extend(range(first, last + 1))
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"seeds {text!r} name a seed twice")
    return seeds


def spans(seeds: Iterable[int]) -> str:
    """Return the text that `parse_seeds` reads as these seeds.

    >>> spans([7, 2, 0, 1])
    '0-2,7'
    """
    found: list[list[int]] = []
    for seed in sorted(set(seeds)):
        if found and seed == found[-1][-1] + 1:
            found[-1].append(seed)
        else:
            found.append([seed])
    return ",".join(f"{own[0]}-{own[-1]}" if own[1:] else f"{own[0]}" for own in found)
