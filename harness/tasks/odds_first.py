"""Write every second token of a string, then the others."""

import torch
from torch import Tensor

from harness.tasks.digits import DigitStrings, same
from harness.theory.representation import Computation, Step


class OddsFirst(DigitStrings):
    """n random tokens x, then x[1::2] followed by x[0::2] (places counted from 0).

    012345=135024

    Vocabulary: the tokens 0..9 (ids 0..9) and "=". Length n: the number of tokens.
    Options: symbols; `symbols=2` is the task of Ruoss et al. (2023), level CS
    (context-sensitive).
    Chance: every answer token is a uniformly random digit, so 1/10.

    Paper: PRISM, Table 3, with V = 10. Deviation: the table's text says "odd indices (1-based)",
    which would start with the first token. Its example starts with the second, as does the
    reference code of the task (Delétang et al., 2023); the example is followed.
    """

    name = "odds_first"
    summary = "every second token, then the others"
    paper = "PRISM, Table 3"
    family = "reordering"
    example = "012345=135024"

    def answer(self, x: Tensor) -> Tensor:
        return torch.cat([x[:, 1::2], x[:, 0::2]], dim=1)

    def solve(self, prompt: list[int]) -> list[int]:
        places = sorted(range(len(prompt) - 1), key=lambda i: (i % 2 == 0, i))
        return [prompt[i] for i in places]

    def computation(self, n: int) -> Computation:
        sources = [*range(2, n + 1, 2), *range(1, n + 1, 2)]
        steps = (Step(n + 1 + t, same, (source,)) for t, source in enumerate(sources, 1))
        return Computation(n + 1, tuple(steps))
