"""Add two numbers as a Turing machine does, with every state of its tape written out."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from harness.tasks.base import Batch, Task, Vocab, pack
from harness.tasks.digits import operands, sums

HEAD = 10  # HEAD + d is the digit d under the head


class TuringAddition(Task):
    """a + b, most significant digit first: the tape after each step, then the sum.

    $4324+139|432e+13j(1,3)|43c+1d(0,63)|4d+b(0,463)|e+^(0,4463)|4463.
    $9+9|j+j(1,8)|^+^(0,18)|18.    a carry out of the last digits is a step of its own

    A step reads the last digit of each operand, written as a letter (a..j stand for 0..9), or ^
    where an operand has none left. It writes (carry, sum so far), and the next step has lost those
    digits. One operand has n digits, the other k, k uniform over 1..n; a fair coin says which is
    which. All digits are uniform, so the most significant ones may be 0.

    Vocabulary: the digits 0..9 (ids 0..9), a..j (ids 10..19), "^", "$", "+", "|", "(", ")", "," and
    ".". Length n: the number of digits of the longer operand.
    Chance: all but a vanishing share of the free tokens of long answers are digits of the operands
    and of the sum, uniformly random, so 1/10.

    Paper: Hou et al. 2024, "Universal Length Generalization with Turing Programs", Figure 2, in the
    compact form that its experiments use. Deviations: a sample has a sequence of its own, where
    the paper packs several into a context; the paper shows no carry out of the last digits, which
    is here as in its multiplication: the machine goes on until nothing is left to carry.
    """

    name = "turing_addition"
    version = 1
    summary = "addition as a Turing machine's tape, step by step"
    paper = "Hou et al. 2024, Figure 2"
    example = "$4324+139|432e+13j(1,3)|43c+1d(0,63)|4d+b(0,463)|e+^(0,4463)|4463."
    vocab = Vocab((*"0123456789", *"abcdefghij", *"^$+|(),."))
    chance = 0.1

    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        self.check_length(length)
        a, b, len_a, len_b = operands(generator, batch, length)
        widths = self.max_tokens(length)
        prompt, kept = self._prompts(a, b, len_a, len_b)
        target, in_target = self._targets(a, b, len_a, len_b)
        return Batch(
            prompt=pack(prompt, kept, widths[0], self.vocab.pad, right=True),
            target=pack(target, in_target, widths[1], self.vocab.pad),
        )

    def solve(self, prompt: list[int]) -> list[int]:
        text = self.vocab.decode(prompt)
        a, b = text.strip("$|").split("+")
        carry, total, steps = 0, "", []
        while a or b or carry:
            carry, digit = divmod(int(a[-1:] or 0) + int(b[-1:] or 0) + carry, 10)
            total = f"{digit}{total}"
            heads = ["abcdefghij"[int(x[-1])] if x else "^" for x in (a, b)]
            a, b = a[:-1], b[:-1]
            steps.append(f"{a}{heads[0]}+{b}{heads[1]}({carry},{total})")
        return [int(i) for i in self.vocab.encode("|".join([*steps, f"{total}."]))]

    def measure(self, prompt: list[int]) -> int:
        plus = prompt.index(self._id("+"))
        return max(plus - 1, len(prompt) - plus - 2)

    def max_tokens(self, length: int) -> tuple[int, int]:
        steps = 3 * length * (length + 1) // 2 + 7 * length + 9
        return 2 * length + 3, steps + length + 2

    def _id(self, symbol: str) -> int:
        return self.vocab.symbols.index(symbol)

    def _prompts(self, a: Tensor, b: Tensor, len_a: Tensor, len_b: Tensor) -> tuple[Tensor, Tensor]:
        """$a+b| from a, b (B, n) and their lengths (B, 1), and which columns count."""
        one = torch.ones_like(a[:, :1])
        start, plus, bar = (one * self._id(c) for c in "$+|")
        place = torch.arange(a.shape[1], device=a.device).flip(0)
        tokens = torch.cat([start, a.flip(1), plus, b.flip(1), bar], 1)
        yes = one.bool()
        return tokens, torch.cat([yes, place < len_a, yes, place < len_b, yes], 1)

    def _targets(self, a: Tensor, b: Tensor, len_a: Tensor, len_b: Tensor) -> tuple[Tensor, Tensor]:
        """The n + 1 steps and the sum, side by side, and which columns count.

        Step s has read place s of both; the last one is there for a carry alone.
        """
        n = a.shape[1]
        a, b = pad(a, (0, 1)), pad(b, (0, 1))  # (B, n + 1)
        total, carry = sums(a, b)
        place = torch.arange(n, -1, -1, device=a.device)
        step = torch.arange(n + 1, device=a.device)[:, None]  # (n + 1, 1)
        size = len(a), n + 1, -1
        always = torch.ones_like(a, dtype=torch.bool)

        def mark(symbol: str) -> tuple[Tensor, Tensor]:
            return torch.full_like(a, self._id(symbol))[..., None], always[..., None]

        def operand(x: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
            length = length[..., None]
            head = torch.where(step < length, HEAD + x.flip(1)[:, None], self._id("^"))
            kept = (place == step) | ((place > step) & (place < length))
            return torch.where(place == step, head, x.flip(1)[:, None]), kept

        so_far = total.flip(1)[:, None].expand(size), (place <= step).expand(size)
        parts = [
            operand(a, len_a), mark("+"), operand(b, len_b), mark("("),
            (carry[..., None], always[..., None]), mark(","),
            so_far, mark(")"), mark("|"),
        ]  # fmt: skip
        happens = always.clone()
        happens[:, -1] = carry[:, -2] == 1
        tokens = torch.cat([part for part, _ in parts], 2)
        kept = torch.cat([kept for _, kept in parts], 2) & happens[..., None]
        stop = torch.full_like(a[:, :1], self._id("."))
        in_sum = always.clone()
        in_sum[:, 0] = happens[:, -1]  # its most significant digit comes first
        return (
            torch.cat([tokens.flatten(1), total.flip(1), stop], 1),
            torch.cat([kept.flatten(1), in_sum, always[:, :1]], 1),
        )
