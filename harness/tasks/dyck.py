"""Close all open brackets."""

import torch

from harness.tasks.base import Batch, Task, Vocab

PAIRS = ("()", "[]", "{}", "<>")


class Dyck(Task):
    """The first n brackets of a sequence that is well nested, then those that close it.

    ([]{(=)})    ([]{( has three open brackets

    A walk over the number of open brackets, from 0: up at 0, down at `depth`, up or down with equal
    probability elsewhere, and up at the end if the step down would close everything. An opening
    bracket has a uniform type.

    Vocabulary: the opening brackets, the closing ones, "=". Length n: the brackets before "=".
    Options: kinds, the types of brackets; depth, the most that are open at a time.
    Chance: closing brackets of all types are equally likely, so 1/kinds.

    Paper: Yao et al. 2021, "Self-Attention Networks Can Process Bounded Hierarchical Languages"
    (arXiv 2105.11115), whose models predict the next closing bracket at every place.
    """

    name = "dyck"
    summary = "close all open brackets"
    paper = "Yao et al. 2021"
    family = "state"
    example = "([]{(=)})"

    def __init__(self, *, kinds: int = 3, depth: int = 6) -> None:
        if not (2 <= kinds <= 4 and 2 <= depth <= 100):
            raise ValueError(f"kinds must be 2 to 4, depth 2 to 100, were {kinds}, {depth}")
        self.kinds, self.depth, self.chance = kinds, depth, 1 / kinds
        opening, closing = zip(*PAIRS[:kinds], strict=True)
        self.vocab = Vocab((*opening, *closing, "="))
        if kinds < 3 or depth < 3:
            self.example = "([](=))" if depth > 2 else "([][=])"

    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        self.check_length(length)
        device, shape = generator.device, (batch, length)
        kind = torch.randint(self.kinds, shape, generator=generator, device=device)
        coin = torch.randint(2, shape, generator=generator, device=device) == 1
        stack = kind.new_zeros(batch, self.depth + 1)  # [:, h]: the type of bracket h, from 1
        height, row = kind.new_zeros(batch), torch.arange(batch, device=device)
        columns = []
        for i in range(length):
            up = (height == 0) | (coin[:, i] & (height < self.depth))
            if i == length - 1:
                up = up | (height == 1)
            columns.append(torch.where(up, kind[:, i], self.kinds + stack[row, height]))
            height = height + torch.where(up, 1, -1)
            stack[row, height] = torch.where(up, kind[:, i], stack[row, height])
        equals = kind.new_full((batch, 1), self.vocab.id("="))
        level = height[:, None] - torch.arange(int(height.max()), device=device)
        closing = self.kinds + stack.gather(1, level.clamp(min=0))
        target = torch.where(level > 0, closing, self.vocab.pad)
        return Batch(torch.cat([torch.stack(columns, 1), equals], 1), target)

    def solve(self, prompt: list[int]) -> list[int]:
        text = self.vocab.decode(prompt[:-1])
        while any(pair in text for pair in PAIRS):  # what is left is open
            for pair in PAIRS:
                text = text.replace(pair, "")
        return [self.vocab.id(text[i]) + self.kinds for i in range(len(text) - 1, -1, -1)]

    def measure(self, prompt: list[int]) -> int:
        return len(prompt) - 1

    def max_tokens(self, length: int) -> tuple[int, int]:
        return length + 1, min(length, self.depth)
