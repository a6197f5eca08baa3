"""Name the digit two places before each digit."""

from torch import Tensor
from torch.nn.functional import pad

from harness.tasks.base import Vocab
from harness.tasks.strings import Strings

BACK, NONE = 2, 10


class TwoBack(Strings):
    """n random digits, then for each the digit two places before it, or "." where there is none.

    8349216=..83492

    Vocabulary: the digits 0..9 (ids 0..9), "." and "=". Length n: the number of digits.
    Chance: all tokens but the first two are uniformly random digits, so 1/10.

    Paper: Vasylenko et al. 2026, "Long-Context Generalization with Sparse Attention" (arXiv
    2506.16640), where 0 stands for ".".
    """

    name = "two_back"
    summary = "the digit two places before"
    paper = "Vasylenko et al. 2026"
    family = "copying"
    best_constant = ((6, 0.4), (10, 0.28), (20, 0.19), (50, 0.13), (500, 0.1))
    example = "8349216=..83492"
    vocab = Vocab((*"0123456789", ".", "="))
    chance = 0.1
    symbols = 10

    def answer(self, x: Tensor) -> Tensor:
        return pad(x, (BACK, 0), value=NONE)[:, : x.shape[1]]

    def solve(self, prompt: list[int]) -> list[int]:
        return [prompt[i - 2] if i >= 2 else NONE for i in range(len(prompt) - 1)]
