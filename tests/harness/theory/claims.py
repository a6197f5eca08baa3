"""Properties of representations and relations from the paper, as test helpers."""

from collections.abc import Iterable

from torch import Tensor

from harness.theory.characterise import PRF, role_pairs
from harness.theory.representation import Representation, Step


def disagreement(representation: Representation) -> tuple[int, int, int] | None:
    """Return two scales and a place where a representation differs, or None if it is canonical.

    Canonical (Definition 4): each place has one operator and one tuple of parents at all scales; no
    place is input at one scale and output at another.
    """
    found: dict[int, tuple[int, Step | None]] = {}
    for scale, one in representation.items():
        steps: Iterable[tuple[int, Step | None]] = [(i, None) for i in range(1, one.inputs + 1)]
        for place, step in [*steps, *((step.place, step) for step in one.steps)]:
            other, before = found.setdefault(place, (scale, step))
            if before != step:
                return other, scale, place
    return None


def unseen(representation: Representation, prf: PRF, trained: int) -> int:
    """Count the values of needed keys that occur only at scales above `trained`."""
    small, large = set[int](), set[int]()
    for n, _, _, value, role in role_pairs(representation, prf):
        if role[1] != float("inf"):
            (small if n <= trained else large).add(value)
    return len(large - small)


def worked(i: Tensor, j: Tensor, n: Tensor, k: int = 4) -> Tensor:
    """phi(i, j, n) = K floor((i - j) / n) + min((i - j) mod n, K - 1), of the paper's introduction.

    It encodes the block of n tokens of a key, counted back from the query, and the first K - 1
    places of each: x_t, y_t, the places before them and z_(t-1), for n >= K - 1.

    >>> worked(*map(torch.tensor, (25, 4, 10)))  # x_5 for z_5, two blocks and a token back
    tensor(9)
    """
    back = i - j
    return k * (back // n) + (back % n).clamp(max=k - 1)
