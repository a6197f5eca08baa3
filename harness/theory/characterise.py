"""Characterise positional relation functions (Definition 6), and learn with one (Theorem 3)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

from harness.theory.mapping import Examples
from harness.theory.representation import Operator, Representation, named

PRF = Callable[[int], Tensor]  # values at scale n: (Z, Z) int64 of query i and key j, from 0
ABSENT = 0  # phi*, the value of keys that the query does not need
Role = tuple[Operator, float]  # an operator and the index of its input; inf: not an input


@dataclass(frozen=True)
class Violation:
    """The first pair of positions at which a PRF violates Definition 6."""

    condition: str  # "consistency" or "distinctness"
    words: str

    def __str__(self) -> str:
        return f"{self.condition}: {self.words}"


def violation(representation: Representation, prf: PRF) -> Violation | None:
    """Return the first violation of Definition 6, or None if prf characterises the representation.

    Consistency: pairs (query of z_i, key z_j) with one value, other than ABSENT, have one operator
    and one role, also across scales. Distinctness: ABSENT is the value of the pairs whose key the
    step does not need, and of no others.

    The query of place i is the token before it. Places count from 1, positions in prf from 0.
    """
    found: dict[int, tuple[Role, str]] = {}
    for n, computation in representation.items():
        values = prf(n)
        for step in computation.steps:
            query = step.place - 2
            roles = {parent: k for k, parent in enumerate(step.parents, 1)}
            for key, value in enumerate(values[query, : query + 1].tolist()):
                where = f"length {n}, query {query}, key {key}"
                role = step.operator, roles.get(key + 1, inf)
                needed = role[1] != inf
                if (value == ABSENT) == needed:
                    kind = "needed" if needed else "not needed"
                    words = f"phi = {value} for a key that is {kind} ({where})"
                    return Violation("distinctness", words)
                before, there = found.setdefault(value, (role, where)) if needed else (role, where)
                if before != role:
                    words = (
                        f"phi = {value} is {_words(before)} ({there}) and {_words(role)} ({where})"
                    )
                    return Violation("consistency", words)
    return None


def _words(role: Role) -> str:
    operator, k = role
    return f"input {int(k)} of {named(operator)}"


class NotLearned(ValueError):
    """The examples and the PRF do not determine the mapping, or contradict each other."""


@dataclass(frozen=True)
class Reconstruction:
    """Unit operators as tables, keyed by the PRF's values at their inputs.

    tables[values, ascending][tokens at these keys] is the token that the step writes.
    """

    tables: dict[tuple[int, ...], dict[tuple[int, ...], int]]
    prf: PRF

    def answer(self, x: Tensor, n: int, tokens: int) -> Tensor:
        """Return the tokens (B, tokens) written after inputs x (B, P) of scale n.

        Errors: NotLearned for PRF values, or inputs of an operator, that no example shows.
        """
        values, z = self.prf(n), x
        for _ in range(tokens):
            kind, keys = _read(values, z.shape[1])
            table = self.tables.get(kind)
            rows = [*map(tuple, z[:, keys].tolist())]
            if table is None or not table.keys() >= {*rows}:
                new = "values" if table is None else "inputs"
                raise NotLearned(f"length {n}, place {z.shape[1] + 1}: {new} that no example has")
            written = [table[row] for row in rows]
            z = torch.cat([z, torch.tensor(written)[:, None]], 1)
        return z[:, x.shape[1] :]


def reconstruct(examples: Examples, prf: PRF) -> Reconstruction:
    """Recover a mapping from examples of small scales and a PRF that characterises it.

    `examples` are (n, inputs (B, P), outputs (B, Q)). For every output place, the values of prf
    other than `ABSENT` identify the operator and order its inputs, by consistency and distinctness;
    the token written becomes an entry of its table. This is Algorithm 1 (Theorem 3). The appendix
    with its two parts is not printed: the tables are our reading of it.

    Errors: NotLearned if an operator would write two tokens for the same inputs, as in Example 7.
    """
    tables: dict[tuple[int, ...], dict[tuple[int, ...], int]] = {}
    for n, x, y in examples:
        values, z = prf(n), torch.cat([x, y], 1)
        for place in range(x.shape[1], z.shape[1]):
            kind, keys = _read(values, place)
            table = tables.setdefault(kind, {})
            both = torch.cat([z[:, keys], z[:, place : place + 1]], 1).unique(dim=0)
            for *inputs, written in both.tolist():
                if table.setdefault(tuple(inputs), written) != written:
                    raise NotLearned(
                        f"length {n}, place {place + 1}: equal values and inputs need "
                        f"{table[tuple(inputs)]} and {written}"
                    )
    return Reconstruction(tables, prf)


def obstacle(
    prf: Mapping[int, Tensor], needed: Mapping[int, Tensor], shown: Examples, tested: Examples
) -> str | None:
    """Return why `reconstruct` does not generalise from `shown` to `tested`, or None if it does.

    prf: (Z, Z) by scale. needed: (Z, Z) bool, the keys that a step reads, for the scales shown.
    Values of prf that no needed key has count as `ABSENT`.
    """
    read = set[int]()
    for n, keys in needed.items():
        read |= set(prf[n][keys].tolist())
    values = torch.tensor(sorted(read))

    def reduced(n: int) -> Tensor:
        return torch.where(torch.isin(prf[n], values), prf[n] - values.min() + 1, ABSENT)

    try:
        learned = reconstruct(shown, reduced)
        for n, x, y in tested:
            if not torch.equal(learned.answer(x, n, y.shape[1]), y):
                return f"wrong at length {n}"
    except NotLearned as error:
        return str(error)
    return None


def _read(values: Tensor, place: int) -> tuple[tuple[int, ...], list[int]]:
    """Return the PRF values of the query after `place` tokens, ascending, and their keys."""
    row = values[place - 1, :place].tolist()
    keys = sorted((j for j, value in enumerate(row) if value != ABSENT), key=lambda j: row[j])
    return tuple(row[j] for j in keys), keys
