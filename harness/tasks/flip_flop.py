"""Remember the last bit that was written."""

import torch

from harness.tasks.base import Batch, Task, TaskError, Vocab

WRITE, IGNORE, READ = 2, 3, 4
TEST_SETS = {"dense": 0.1, "sparse": 0.98}  # the share of instructions to ignore


class FlipFlop(Task):
    """n instructions with a bit each, of which the last is to be read.

    w1i0w0i1i1r0    the last w has 0

    w writes its bit, i is to be ignored, r is followed by the bit of the last w. The first
    instruction is w; each other one is i with probability `ignore`, else w or r with equal
    probability. Bits of w and i are fair coins.

    Vocabulary: 0, 1, w, i, r (ids 0..4). Length n: the instructions before the last r.
    Options: ignore. Test sets: dense (ignore=0.1) and sparse (ignore=0.98).
    Chance: the bit is a fair coin, so 1/2.

    Paper: Liu et al. 2023, "Exposing Attention Glitches with Flip-Flop Language Modeling" (arXiv
    2306.00946), with ignore=0.8 in training and those test sets. Deviation: there a model predicts
    the bit after every r of 256 instructions.
    """

    name = "flip_flop"
    summary = "the last bit that was written"
    paper = "Liu et al. 2023"
    family = "state"
    example = "w1i0w0i1i1r0"
    vocab = Vocab(("0", "1", "w", "i", "r"))
    chance = 0.5

    def __init__(self, *, ignore: float = 0.8) -> None:
        if not 0 <= ignore < 1:
            raise ValueError(f"ignore must be from 0 to below 1, was {ignore}")
        self.ignore = ignore

    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        return self._draw(generator, batch, length, self.ignore)

    def check_test_set(self, name: str) -> None:
        if name not in TEST_SETS:
            raise TaskError(f"{self.name} has no test set {name!r}; it has {', '.join(TEST_SETS)}")

    def test_set(self, name: str, generator: torch.Generator, batch: int, length: int) -> Batch:
        self.check_test_set(name)
        return self._draw(generator, batch, length, TEST_SETS[name])

    def _draw(self, generator: torch.Generator, batch: int, length: int, ignore: float) -> Batch:
        self.check_length(length)
        device, shape = generator.device, (batch, length)
        bits = torch.randint(2, shape, generator=generator, device=device)
        chance = torch.rand(shape, generator=generator, device=device)
        writes = chance >= (1 + ignore) / 2
        code = torch.where(chance < ignore, IGNORE, torch.where(writes, WRITE, READ))
        code[:, 0] = WRITE
        place = torch.arange(length, device=device)
        last = torch.where(code == WRITE, place, 0).cummax(1).values
        stored = bits.gather(1, last)
        shown = torch.stack([code, torch.where(code == READ, stored, bits)], 2).flatten(1)
        read = code.new_full((batch, 1), READ)
        return Batch(torch.cat([shown, read], 1), stored[:, -1:])

    def solve(self, prompt: list[int]) -> list[int]:
        bit = -1
        for code, shown in zip(prompt[:-1:2], prompt[1::2], strict=True):
            bit = shown if code == WRITE else bit
        return [bit]

    def measure(self, prompt: list[int]) -> int:
        return len(prompt) // 2

    def max_tokens(self, length: int) -> tuple[int, int]:
        return 2 * length + 1, 1
