"""Write a product as the sum of its partial products, without computing them."""

import torch
from torch import Tensor

from harness.tasks.base import Batch, Task, Vocab
from harness.tasks.digits import operands
from harness.tasks.ragged import Ragged, column, concatenate, ragged_batch


class Multiplication(Task):
    """a x b, then a x [...] with one term per digit of b.

    675x1259=675x[1*(1->1)(2->0)(5->0)(9->0)+2*(2->1)(5->0)(9->0)+5*(5->1)(9->0)+9*(9->1)]
    07x4=07x[4*(4->1)]

    The term of the digit d_i is d_i*(d_i->1), then (d_j->0) for every later digit d_j: the digit
    keeps its value and each place after it becomes a 0, so 1259 = 1000 + 200 + 50 + 9. The product
    is not asked for. One operand has n digits, the other k, k uniform over 1..n; a fair coin says
    which is which. All digits are uniform, so the most significant ones may be 0.

    Options: square, where both operands have n digits, as in the paper's Figure 9.
    Vocabulary: the digits 0..9 (ids 0..9), "=", "x", "[", "]", "*", "(", ")", "->" (one symbol) and
    "+". Length n: the number of digits of the longer operand.
    Chance: the free tokens are the digits of a and b that the answer repeats, uniformly random, so
    1/10.

    Paper: PRISM, Table 4. Deviations: the print has lost the arrows ("(1+1)" stands for 1->1);
    section 6 says "d_i (d_i -> p_i)" with p_i zeros, the table's example spells these zeros out and
    is followed. The paper does not say how the operands' lengths are drawn.
    """

    name = "multiplication"
    summary = "a product as a sum of shifted digits"
    paper = "PRISM, Table 4"
    family = "arithmetic"
    best_constant = ((4, 0.37), (10, 0.27), (35, 0.25))
    example = (
        "675x1259=675x[1*(1->1)(2->0)(5->0)(9->0)+2*(2->1)(5->0)(9->0)+5*(5->1)(9->0)+9*(9->1)]"
    )
    vocab = Vocab((*"0123456789", *"=x[]*()", "->", "+"))
    chance = 0.1

    def __init__(self, *, square: bool = False) -> None:
        self.square = square
        if square:
            self.example = "67x12=67x[1*(1->1)(2->0)+2*(2->1)]"

    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        self.check_length(length)
        a, b, len_a, len_b = operands(generator, batch, length, square=self.square)
        place = torch.arange(length, device=a.device)
        first, second = (a, place < len_a), (b, place < len_b)
        times, equals, left, right = (column(a, self.vocab.id(c)) for c in "x=[]")
        return ragged_batch(
            concatenate(first, times, second, equals),
            concatenate(first, times, left, self._terms(*second), right),
            self.vocab.pad,
            self.max_tokens(length),
        )

    def solve(self, prompt: list[int]) -> list[int]:
        equals, times, left, right, star, opens, closes, arrow, plus = range(10, 19)
        split = prompt.index(times)
        b = prompt[split + 1 : prompt.index(equals)]
        answer = [*prompt[: split + 1], left]
        for i, digit in enumerate(b):
            answer += [plus] * (i > 0) + [digit, star, opens, digit, arrow, 1, closes]
            for later in b[i + 1 :]:
                answer += [opens, later, arrow, 0, closes]
        return [*answer, right]

    def measure(self, prompt: list[int]) -> int:
        split = prompt.index(self.vocab.id("x"))
        return max(split, len(prompt) - split - 2)

    def max_tokens(self, length: int) -> tuple[int, int]:
        return 2 * length + 2, 5 * length * (length + 1) // 2 + 4 * length + 2

    def _terms(self, b: Tensor, in_b: Tensor) -> Ragged:
        """Write the terms of b (B, n) as a ragged tensor (B, 4n(n + 1)).

        Each pair of places i <= j has eight columns "+ d_i * ( d_j -> 1 )". The first three start a
        term, so they count where i = j only, and "+" not before the first term.
        """
        n = b.shape[1]
        i, j = torch.triu_indices(n, n, device=b.device)  # (n(n + 1)/2,) each, i slower than j
        plus, star, opens, arrow, closes = (
            torch.full_like(b[:, i], self.vocab.id(c)) for c in ("+", "*", "(", "->", ")")
        )
        same = (i == j).expand(len(b), -1)
        columns = [plus, b[:, i], star, opens, b[:, j], arrow, same.long(), closes]
        start = same & in_b[:, j]
        counts = [start & (i > 0), start, start] + [in_b[:, j]] * 5
        return torch.stack(columns, dim=2).flatten(1), torch.stack(counts, dim=2).flatten(1)
