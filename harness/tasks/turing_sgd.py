"""Stochastic gradient descent on linear data, with every step's data and weights written out."""

import torch
from torch import Tensor

from harness.tasks.base import Batch, Task, Vocab
from pezoo.spec import choice

LEVELS, ZERO = 200, 100  # a0..a199 stand for -1.00, -0.99, ..., 0.99
TOLERANCE = 2  # levels, in every coordinate of the weights
FORMATS = ("scratchpad", "plain")


class TuringSGD(Task):
    """Examples d x1 x2 , y; then, from the last one on, one step of gradient descent for each.

    $ d a80 a145 , a102 d a77 a139 , a103 |
    d a80 a145 , a102 d a77 a139 , a103 yp a100 g a101 a99 cur a99 a101 |
    d a80 a145 , a102 yp a101 g a100 a99 cur a99 a102 |

    A step copies the examples that are left and writes the prediction w.x (yp), the step
    0.5 grad_w (y - w.x)^2 = (w.x - y) x (g), and the weights after it (cur). The next step has lost
    the last example. a0..a199 stand for -1, -0.99, ..., 0.99, and numbers beyond for the ends. The
    weights begin at 0 and are kept exactly: rounding is for writing alone. An answer is right if it
    ends with weights within 2 levels in both coordinates. Because y is linear in x, that
    alone tells little of length: true answers cut off after 20 steps count as right in 99.5 % of
    the cases at n = 80, in 99.4 % at 50, and after 5 of 6 steps in 60 %. Token accuracy is of all
    steps.
    Options: format, "scratchpad", or "plain", the last weights alone.

    x is uniform over the levels, and y the level of w.x for a w that is uniform over [-1/2, 1/2].
    Vocabulary: a0..a199 (ids 0..199), "$", "d", ",", "yp", "g", "cur", "|". Length n: the number of
    examples. Chance: the share of the commonest number, a100, among the numbers of long answers; of
    bare weights that of one near 0.

    Paper: Hou et al. 2024, "Universal Length Generalization with Turing Programs", Section 5.2 and
    Appendix E. Deviations: the data are the levels themselves, so that the answer follows from
    the prompt; g and cur of the last step of the paper's example come out one level apart from the
    paper's, which may have computed them from numbers before rounding. Numbers are float64, so that
    one exactly between two levels goes to either. How data are drawn is left open; the paper's
    example fits a linear y.
    """

    name = "turing_sgd"
    summary = "gradient descent on linear data, step by step"
    paper = "Hou et al. 2024, Section 5.2"
    family = "arithmetic"
    vocab = Vocab((*(f"a{i}" for i in range(LEVELS)), *"$d,", "yp", "g", "cur", "|"), " ")
    best_constant = ((3, 0.47), (10, 0.44), (35, 0.42))
    example = (
        "$ d a80 a145 , a102 d a77 a139 , a103 | "
        "d a80 a145 , a102 d a77 a139 , a103 yp a100 g a101 a99 cur a99 a101 | "
        "d a80 a145 , a102 yp a101 g a100 a99 cur a99 a102 |"
    )
    chance = 0.03
    exact = False

    def __init__(self, *, format: str = "scratchpad") -> None:
        choice("format", format, FORMATS)
        self.scratchpad = format == "scratchpad"
        if not self.scratchpad:
            asked = self.example[: self.example.index("|") + 1]
            self.example = f"{asked} cur a99 a102 |"
            self.chance = 0.015

    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        self.check_length(length)
        device = generator.device
        x = torch.randint(LEVELS, (batch, length, 2), generator=generator, device=device)
        shape = (batch, 1, 2)
        line = torch.rand(shape, generator=generator, device=device, dtype=torch.float64) - 0.5
        y = _level((_value(x) * line).sum(2))
        begin, yp, g, cur, bar = (
            torch.full((batch, 1), self.vocab.id(word), device=device)
            for word in ("$", "yp", "g", "cur", "|")
        )
        parts: list[Tensor] = []
        weights = torch.zeros(batch, 2, dtype=torch.float64, device=device)
        for last in range(length - 1, -1, -1):
            inputs, truth = _value(x[:, last]), _value(y[:, last, None])
            predicted = inputs[:, :1] * weights[:, :1] + inputs[:, 1:] * weights[:, 1:]  # (B, 1)
            move = (predicted - truth) * inputs
            weights = weights - move
            if self.scratchpad:
                parts += [self._data(x[:, : last + 1], y[:, : last + 1]), yp, _level(predicted)]
                parts += [g, _level(move)]
            if self.scratchpad or not last:
                parts += [cur, _level(weights), bar]
        prompt = torch.cat([begin, self._data(x, y), bar], 1)
        return Batch(prompt=prompt, target=torch.cat(parts, 1))

    def solve(self, prompt: list[int]) -> list[int]:
        words = [self.vocab.symbols[token] for token in prompt[1:-1]]
        data = [words[i : i + 5] for i in range(0, len(words), 5)]
        w = [0.0, 0.0]
        steps: list[str] = []
        while data:
            *_, x1, x2, _, y = data[-1]
            x = [(int(word[1:]) - ZERO) / 100 for word in (x1, x2)]
            predicted = x[0] * w[0] + x[1] * w[1]
            move = [(predicted - (int(y[1:]) - ZERO) / 100) * one for one in x]
            w = [one - by for one, by in zip(w, move, strict=True)]
            text = " ".join(word for row in data for word in row)
            now = f"cur {_word(w[0])} {_word(w[1])} |"
            change = f"yp {_word(predicted)} g {_word(move[0])} {_word(move[1])}"
            steps.append(f"{text} {change} {now}")
            data = data[:-1]
        answer = " ".join(steps) if self.scratchpad else now
        return [self.vocab.id(word) for word in answer.split()]

    def right(self, answer: Tensor, target: Tensor) -> Tensor:
        found = [
            _near(self._weights(one), self._weights(two))
            for one, two in zip(answer.tolist(), target.tolist(), strict=True)
        ]
        return torch.tensor(found, device=answer.device)

    def measure(self, prompt: list[int]) -> int:
        return (len(prompt) - 2) // 5

    def max_tokens(self, length: int) -> tuple[int, int]:
        steps = 5 * length * (length + 1) // 2 + 9 * length
        return 5 * length + 2, steps if self.scratchpad else 4

    def _weights(self, row: list[int]) -> list[int]:
        """Return the weights that an answer ends with, or [] if it ends otherwise."""
        words = row[: row.index(self.vocab.eos)] if self.vocab.eos in row else []
        index = self.vocab.id
        if len(words) < 4 or words[-4] != index("cur") or words[-1] != index("|"):
            return []
        return [token for token in words[-3:-1] if token < LEVELS]

    def _data(self, x: Tensor, y: Tensor) -> Tensor:
        """Write "d x1 x2 , y" for each example of x (B, m, 2) and y (B, m)."""
        d, comma = (torch.full_like(y, self.vocab.id(symbol)) for symbol in "d,")
        return torch.stack([d, x[..., 0], x[..., 1], comma, y], 2).flatten(1)


def _value(level: Tensor) -> Tensor:
    """Return the numbers of levels, float64."""
    return (level - ZERO).double() / 100


def _level(value: Tensor) -> Tensor:
    """Return the nearest level of a number; halves round to even."""
    return ((value * 100).round().long() + ZERO).clamp(0, LEVELS - 1)


def _word(value: float) -> str:
    """Return the word of a number's nearest level."""
    return f"a{min(max(round(value * 100) + ZERO, 0), LEVELS - 1)}"


def _near(one: list[int], other: list[int]) -> bool:
    return len(one) == 2 and all(abs(a - b) <= TOLERANCE for a, b in zip(one, other, strict=True))
