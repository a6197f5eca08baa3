"""Build a positional relation function from a computational representation (Theorems 3 and 4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from harness.theory.representation import Computation, Operator, Step

ORDER = 8  # the scale whose steps number the roles first


class Relation:
    """The relation phi(i, j, n) that characterises computations C_n of all scales (Definition 6).

    phi is 0 for a key that the step does not need, else a number for its operator and the key's
    place among the inputs: the same numbers at all scales, by the steps of scale 8, then of others
    in ascending order. Theorem 4: with the scale n, any representation has such a function.
    Theorem 3: phi(i, j) without it serves a canonical one, whose steps at a place agree at all
    scales.

    i, j: positions from 0, int64, broadcast; n: scales, or None. Returns int64. The query of place
    p, from 1, is the token before it, at p - 2. Errors: ValueError for n = None where two scales
    differ at a place, and for a scale without a computation.

    >>> def same(u): return u
    >>> def copy(n): return Computation(n, tuple(Step(n + t, same, (t,)) for t in range(1, n + 1)))
    >>> Relation(copy)(torch.tensor(3), torch.arange(4), torch.tensor(3))  # writes place 5
    tensor([0, 1, 0, 0])
    """

    def __init__(self, computation: Callable[[int], Computation | None]) -> None:
        self._computation = computation
        self._roles: dict[tuple[Operator, int], int] = {}
        self._tables: dict[tuple[int | None, int], Tensor] = {}
        self._numbered = 0  # up to this scale

    def __call__(self, i: Tensor, j: Tensor, n: Tensor | None) -> Tensor:
        if i.is_meta:
            return torch.zeros_like(i + j)
        size = 1 << max(4, int(torch.max(i.max(), j.max())).bit_length())
        i, j = i.clamp(min=-1), j.clamp(min=-1)  # -1, no token, reads a last row of zeros
        if n is None:
            return self._table(None, size).to(i.device)[i, j]
        scales = sorted({int(one) for one in n.flatten()})
        tables = torch.stack([self._table(one, size) for one in scales]).to(i.device)
        return tables[torch.searchsorted(torch.tensor(scales, device=n.device), n), i, j]

    def _table(self, n: int | None, size: int) -> Tensor:
        """Return phi of the first `size` positions, (size + 1, size + 1): the last are zeros."""
        if (n, size) not in self._tables:
            found = torch.zeros(size + 1, size + 1, dtype=torch.int64)
            for step in self._union(size) if n is None else self._own(n):
                for k, parent in enumerate(step.parents, 1):
                    if (role := self._roles.get((step.operator, k))) is None:
                        raise ValueError(
                            "needs the same operators at every call of computation: define "
                            f"{step.operator!r} outside it"
                        )
                    if step.place - 2 < size:
                        found[step.place - 2, parent - 1] = role
            self._tables[n, size] = found
        return self._tables[n, size]

    def _own(self, n: int) -> Sequence[Step]:
        self._number(n)
        if (made := self._computation(n)) is None:
            raise ValueError(f"needs a computation, which the task does not declare at scale {n}")
        return made.steps

    def _union(self, size: int) -> Iterable[Step]:
        """Return the steps of scales up to `size`, each once."""
        self._number(size)
        found: dict[int, Step] = {}
        for made in filter(None, map(self._computation, range(1, size + 1))):
            for step in made.steps:
                if found.setdefault(step.place, step) != step:
                    raise ValueError("depends on the scale: use an encoding with a scale hint")
        if not found:
            raise ValueError("needs a computation, which the task does not declare")
        return found.values()

    def _number(self, scale: int) -> None:
        """Number the roles of scale ORDER, then those of all scales up to `scale`."""
        for n in (ORDER, *range(min(scale, self._numbered + 1), scale + 1)):
            made = self._computation(n)
            for step in made.steps if made else ():
                for k in range(1, len(step.parents) + 1):
                    self._roles.setdefault((step.operator, k), len(self._roles) + 1)
        self._numbered = max(scale, self._numbered)
