"""Computational representations as data (Definitions 2 to 4).

Places count from 1: z_1 .. z_n are the input, later places the output.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Operator = Callable[..., int]


def named(operator: Operator) -> str:
    """Return the name of an operator; of a partial, for example, its text."""
    return getattr(operator, "__name__", repr(operator))


@dataclass(frozen=True)
class Step:
    """z_place = operator(z_j for j in parents): the triple (i, g, I) of Definition 2.

    Every parent is before the place. Errors: ValueError.
    """

    place: int
    operator: Operator
    parents: tuple[int, ...]

    def __post_init__(self) -> None:
        if not all(0 < parent < self.place for parent in self.parents):
            raise ValueError(f"parents {self.parents} must be within 1..{self.place - 1}")

    def __repr__(self) -> str:
        return f"({self.place}, {named(self.operator)}, {self.parents})"


@dataclass(frozen=True)
class Computation:
    """C_n: input places 1..inputs, then a step for each place of the output, in order.

    >>> def same(u): return u
    >>> Computation(2, (Step(3, same, (1,)), Step(4, same, (2,)))).run([7, 8])
    [7, 8]
    """

    inputs: int
    steps: tuple[Step, ...]

    def __post_init__(self) -> None:
        places = [step.place for step in self.steps]
        if places != list(range(self.inputs + 1, self.inputs + 1 + len(places))):
            raise ValueError(
                f"steps must write the places from {self.inputs + 1} on, have {places}"
            )

    def run(self, x: Sequence[int]) -> list[int]:
        """Return the output for the input x. Errors: ValueError for an input of another length."""
        if len(x) != self.inputs:
            raise ValueError(f"expected an input of {self.inputs}, was given {len(x)}")
        z = [0, *x]
        for step in self.steps:
            z.append(step.operator(*(z[parent] for parent in step.parents)))
        return z[self.inputs + 1 :]


Representation = Mapping[int, Computation]  # C_n by scale n


def operators(representation: Representation) -> frozenset[Operator]:
    """Return the unit operators G(C) of all scales; CRC minimises their number."""
    steps = (step for one in representation.values() for step in one.steps)
    return frozenset(step.operator for step in steps)
