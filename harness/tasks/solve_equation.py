"""Find the digit that makes an equation right modulo 5."""

import torch
from torch import Tensor

from harness.tasks import brackets
from harness.tasks.base import Vocab
from harness.tasks.strings import OneToken

OPEN, X, EQUALS = 7, 9, 10  # brackets have the ids 7 and 8 here, as there is no "*"


class SolveEquation(OneToken):
    """A random expression with a digit hidden, "=", its value modulo 5; then the hidden digit.

    ((x-2)+1)=3?4    4 - 2 + 1 is 3

    The expression is one of modular_arithmetic with + and - only, so one digit solves it. The
    hidden digit is the next one at or after a random token, cyclically. It is uniform, so the value
    is uniform too, and is drawn in its place. A prompt of one or two tokens is all zeros, and its
    answer is 0.

    Vocabulary: 0..4, + - ( ) x, "=" and "?", which ends the prompt (ids 0..11). Length n: the
    tokens of the equation.
    Chance: the hidden digit is uniform, so 1/5.

    Paper: Ruoss et al. (2023), level DCF (deterministic context-free), after Delétang et al.
    (2023). Deviation: none.
    """

    name = "solve_equation"
    summary = "the unknown digit of an equation modulo 5"
    paper = "Ruoss et al. 2023, Table 1"
    family = "arithmetic"
    example = "((x-2)+1)=3?4"
    vocab = Vocab((*"01234+-()x=", "?"))
    chance = 0.2

    def draw(self, generator: torch.Generator, batch: int, length: int) -> Tensor:
        device = generator.device
        if length < 3:
            return torch.zeros(batch, length, dtype=torch.int64, device=device)
        n = length - 2
        x = brackets.expressions(generator, batch, n, operators=2)
        x = torch.where(x >= brackets.OPEN, x - 1, x)
        value = torch.randint(5, (batch, 1), generator=generator, device=device)
        start = torch.randint(n, (batch, 1), generator=generator, device=device)
        steps = (torch.arange(n, device=device) - start) % n  # from the start, cyclically
        hidden = torch.where(x < brackets.PLUS, steps, n).argmin(1, keepdim=True)
        x = x.scatter(1, hidden, X)
        return torch.cat([x, torch.full_like(value, EQUALS), value], dim=1)

    def answer(self, x: Tensor) -> Tensor:
        if x.shape[1] < 3:
            return torch.zeros_like(x[:, :1])
        left = torch.where(x >= OPEN, x + 1, x)[:, :-2]
        zero, one = (brackets.values(torch.where(left == X + 1, d, left)) for d in (0, 1))
        slope = one - zero  # of the value in the hidden digit: 1 or -1, its own inverse
        return (x[:, -1:] - zero) * slope % 5

    def solve(self, prompt: list[int]) -> list[int]:
        *left, _, value, _ = prompt if len(prompt) > 3 else [X, EQUALS, 0, 0]
        left = [token + 1 if token >= OPEN else token for token in left]
        place = left.index(X + 1)
        right = [brackets.value([*left[:place], d, *left[place + 1 :]]) == value for d in range(5)]
        return [right.index(True)]
