"""Run push and pop actions on a stack."""

import torch
from torch import Tensor

from harness.tasks.base import Vocab
from harness.tasks.strings import Strings, up_to

POP, PUSH_0 = 2, 3  # PUSH_0 + b pushes the bit b
TERMINATOR = 2


class StackManipulation(Strings):
    """A stack of bits from bottom to top and actions on it, then the stack from top to bottom.

    0110422=11020000    stack 0110, PUSH 1, POP, POP leaves 011: read from the top 110

    The answer has the final stack, the terminator 2 and zeros up to n + 1 tokens. POP on an empty
    stack does nothing. The first stack has k bits, k uniform over 1..n-1, and actions follow; a
    prompt of length 1 is one bit. Bits and actions are uniform.

    Vocabulary: 0 and 1 (bits), 2 (POP; in the answer the terminator), 3 (PUSH 0), 4 (PUSH 1),
    "=" (ids 0..5). Length n: bits and actions together.
    An encoder's accuracy counts up to the terminator, and with it, as in Ruoss et al. (2023).
    Chance: the free tokens are the bits of the final stack, which are fair coins: 1/2.

    Paper: PRISM, Table 3, after Delétang et al. (2023), whose code draws the stack's height in this
    way; the table does not say. Also Ruoss et al. (2023), level DCF (deterministic context-free).
    """

    name = "stack_manipulation"
    version = 2
    summary = "push and pop on a stack of bits"
    paper = "PRISM, Table 3"
    family = "stack"
    example = "0110422=11020000"
    vocab = Vocab((*"01234", "="))
    chance = 0.5

    def draw(self, generator: torch.Generator, batch: int, length: int) -> Tensor:
        device = generator.device
        shape = (batch, length)
        highest = max(1, length - 1)
        height = torch.randint(1, highest + 1, (batch, 1), generator=generator, device=device)
        bits = torch.randint(2, shape, generator=generator, device=device)
        actions = torch.randint(POP, POP + 3, shape, generator=generator, device=device)
        return torch.where(torch.arange(length, device=device) < height, bits, actions)

    def answer(self, x: Tensor) -> Tensor:
        initial = x < POP
        return _final_stack(push=x != POP, bit=torch.where(initial, x, x - PUSH_0))

    def counted(self, target: Tensor) -> Tensor:
        return up_to(TERMINATOR, target)

    def solve(self, prompt: list[int]) -> list[int]:
        n = len(prompt) - 1
        first_action = next((i for i in range(n) if prompt[i] >= 2), n)
        stack = prompt[:first_action]
        for action in prompt[first_action:n]:
            if action in (3, 4):
                stack.append(action - 3)
            elif stack:
                stack.pop()
        return [*reversed(stack), 2] + [0] * (n - len(stack))

    def max_tokens(self, length: int) -> tuple[int, int]:
        return length + 1, length + 1


def _final_stack(push: Tensor, bit: Tensor) -> Tensor:
    """Return the answers (B, n + 1) to pushes of `bit` where `push` (B, n), and pops elsewhere.

    The height is a walk of steps +1 and -1 reflected at 0: the free walk minus its lowest point so
    far, if below 0. The bit at a level is the last one pushed there.
    """
    batch, n = push.shape
    time = torch.arange(n + 1, device=push.device)
    walk = torch.where(push, 1, -1).cumsum(1)
    height = walk - walk.cummin(1).values.clamp(max=0)  # (B, n), after each step
    pushed_at = torch.where(push, time[:n], 0)
    last_push = torch.zeros(batch, n + 1, dtype=torch.int64, device=push.device)
    last_push.scatter_reduce_(1, height, pushed_at, "amax")  # by level 0..n; level 0 is not read
    level = height[:, -1:] - time  # (B, n + 1): the answer's token t is the bit at this level
    top_down = bit.gather(1, last_push.gather(1, level.clamp(min=0)))
    return torch.where(level > 0, top_down, torch.where(level == 0, TERMINATOR, 0))
