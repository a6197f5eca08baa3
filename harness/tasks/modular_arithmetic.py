"""Calculate modulo 5, with brackets."""

import torch
from torch import Tensor

from harness.tasks import brackets
from harness.tasks.base import Vocab
from harness.tasks.strings import OneToken


class ModularArithmetic(OneToken):
    """A random expression with a bracket around every operation, then its value modulo 5.

    ((-3+(2))*4)=1    (-3 + 2) * 4 is -4

    An expression of 1 to 4 tokens is d, -d, (d) or (-d). A longer one is (left operator right),
    where left has 1 to n - 4 tokens, all equally likely. Digits and operators are uniform.

    Vocabulary: 0..4, + - * ( ) and "=" (ids 0..10). Length n: the tokens of the expression.
    Chance: 1/5. With * the value 0 is the most likely one, increasingly so in long expressions:
    0.30 at length 60 (`testing.best_constant`). Over lengths 41 to 500 it is 0.310, the accuracy of
    the model without positions in Table 1 of the paper.

    Paper: Ruoss et al. (2023), level DCF (deterministic context-free), after Delétang et al.
    (2023), where it is called modular arithmetic with brackets. Deviation: none.
    """

    name = "modular_arithmetic"
    summary = "the value modulo 5, with brackets"
    paper = "Ruoss et al. 2023, Table 1"
    family = "arithmetic"
    example = "((-3+(2))*4)=1"
    vocab = Vocab((*"01234+-*()", "="))
    chance = 0.2
    best_constant = ((2, 0.21), (5, 0.25), (10, 0.265), (20, 0.28), (60, 0.296), (500, 0.318))

    def draw(self, generator: torch.Generator, batch: int, length: int) -> Tensor:
        return brackets.expressions(generator, batch, length, operators=3)

    def answer(self, x: Tensor) -> Tensor:
        return brackets.values(x)

    def solve(self, prompt: list[int]) -> list[int]:
        return [brackets.value(prompt[:-1])]
