"""Find the end of a walk on a circle."""

from torch import Tensor

from harness.tasks.base import Vocab
from harness.tasks.strings import OneToken


class CycleNavigation(OneToken):
    """n random steps on a circle of 5 places, then the place that they lead to from place 0.

    20100=3    +1 -1 0 -1 -1: two places back from 0

    The tokens 0, 1 and 2 are the steps -1, 0 and +1.

    Vocabulary: 0..4 (ids 0..4; steps are 0..2, places 0..4) and "=". Length n: the number of steps.
    Chance: on long walks every place is equally likely, so 1/5; after one step there are three.

    Paper: Ruoss et al. (2023), level R (regular), after Delétang et al. (2023). Deviation: none.
    """

    name = "cycle_navigation"
    summary = "the end of a walk on a circle of 5"
    paper = "Ruoss et al. 2023, Table 1"
    family = "counting"
    example = "20100=3"
    vocab = Vocab((*"01234", "="))
    chance = 0.2
    symbols = 3

    def answer(self, x: Tensor) -> Tensor:
        return (x - 1).sum(1, keepdim=True) % 5

    def solve(self, prompt: list[int]) -> list[int]:
        circle = [0, 1, 2, 3, 4]
        for step in prompt[:-1]:
            if step == 2:
                circle = circle[1:] + circle[:1]
            elif step == 0:
                circle = circle[-1:] + circle[:-1]
        return circle[:1]
