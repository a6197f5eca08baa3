"""Canonicity and complexity of mappings, whatever computes them (Definitions 3 and 5)."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from torch import Tensor

Examples = Iterable[tuple[int, Tensor, Tensor]]  # scale n, inputs (B, P), outputs (B, Q)
Table = dict[tuple[int, ...], int]  # the output of an operator for some inputs
NODES = 100_000  # of a search for operators


@dataclass(frozen=True)
class Conflict:
    """Two instances, of scales `one` and `other`, that share `prefix` but not the next token."""

    prefix: tuple[int, ...]
    one: int
    writes: int
    other: int
    other_writes: int


def conflict(examples: Examples) -> Conflict | None:
    """Return two instances that rule out a canonical representation (Example 7), or None.

    A canonical representation computes a place from the places before it, in the same way at all
    scales (proof of Theorem 2). So two instances must not agree up to an output place of both and
    differ there. Without such a conflict, the representation that reads all places before is
    canonical on these examples. Inputs are without signs: "=" would reveal the scale, and the
    non-canonical tasks of the paper (Examples 7 and 8) would become canonical.
    """
    found: dict[tuple[int, ...], tuple[int, int]] = {}
    for n, x, y in examples:
        for before_it, answer in zip(x.tolist(), y.tolist(), strict=True):
            for t, written in enumerate(answer):
                prefix = (*before_it, *answer[:t])
                other, before = found.setdefault(prefix, (n, written))
                if before != written:
                    return Conflict(prefix, other, before, n, written)
    return None


def shared(examples: Examples) -> int | None:
    """Count the answer places whose prefix also occurs at another scale.

    None if prefixes of different scales cannot be equally long.
    """
    found: dict[tuple[int, ...], set[int]] = {}
    sizes: dict[int, set[int]] = {}
    count = 0
    for n, x, y in examples:
        for before_it, answer in zip(x.tolist(), y.tolist(), strict=True):
            for t in range(len(answer)):
                prefix = (*before_it, *answer[:t])
                scales = found.setdefault(prefix, set())
                count += bool(scales - {n})
                scales.add(n)
                sizes.setdefault(len(prefix), set()).add(n)
    return count if any(len(scales) > 1 for scales in sizes.values()) else None


def complexity(examples: Examples, arity: int) -> int | None:
    """Search for the least number of unit operators that write these outputs (Definition 3).

    Operators read up to `arity` places, which may repeat. With all instances of scales 1 to N the
    result is CRC(f, N) for such operators; with some of them, a lower bound. None if the search
    ends after NODES nodes, or no operator of this arity writes an output.

    An output place can be written from several tuples of places, each of which needs some entries
    of an operator's table; places share an operator if their entries agree.
    """
    steps = sorted((list(options) for options in _options(examples, arity)), key=len)
    if not all(steps):
        return None  # an output that no operator of this arity writes
    budget = [NODES]
    for r in range(1, len(steps) + 1):
        if _fits(steps, 0, [], r, budget):
            return r
        if budget[0] < 0:
            return None
    return None


def _options(examples: Examples, arity: int) -> Iterator[list[Table]]:
    """Yield, for each output place of each scale, the smallest tables that write it."""
    for _, x, y in examples:
        inputs, outputs = x.tolist(), y.tolist()
        for t in range(y.shape[1]):
            z = [(*before, *after[:t]) for before, after in zip(inputs, outputs, strict=True)]
            found: list[Table] = []
            for parents in product(range(len(z[0])), repeat=arity):
                table: Table = {}
                rows = zip(z, outputs, strict=True)
                if all(
                    table.setdefault(tuple(r[p] for p in parents), o[t]) == o[t] for r, o in rows
                ):
                    found.append(table)
            yield _least(found)


def _least(tables: Sequence[Table]) -> list[Table]:
    """Return the tables that do not contain another: fewer entries fit more places."""
    kept: list[Table] = []
    for table in sorted(tables, key=len):
        if not any(other.items() <= table.items() for other in kept):
            kept.append(table)
    return kept


def _fits(
    steps: Sequence[Sequence[Table]], k: int, tables: list[Table], most: int, budget: list[int]
) -> bool:
    """Return True if at most `most` operators, these included, write the steps from k on."""
    if k == len(steps):
        return True
    budget[0] -= 1
    if budget[0] < 0:
        return False
    for option in steps[k]:
        for r, table in enumerate(tables):
            if all(table.get(key, written) == written for key, written in option.items()):
                rest = [*tables[:r], table | option, *tables[r + 1 :]]
                if _fits(steps, k + 1, rest, most, budget):
                    return True
        if len(tables) < most and _fits(steps, k + 1, [*tables, option], most, budget):
            return True
    return False
