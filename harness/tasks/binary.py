"""Draw, read and write binary numbers: rows of bits, least significant first, padded with zeros."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from harness.tasks.base import Vocab
from harness.tasks.strings import Strings, up_to

END = 2  # separates two numbers, and ends the answer


class Operands(Strings):
    """Two positive numbers of k and n - 1 - k bits with 2 between, "=", a number, 2 and zeros.

    k is uniform over 1..n-2, each number is uniform over 1..2^k - 1. A prompt of one or two tokens
    is one number, uniform over 0..2^n - 2.
    """

    vocab = Vocab(("0", "1", "2", "="))

    def draw(self, generator: torch.Generator, batch: int, length: int) -> Tensor:
        device = generator.device
        place = torch.arange(length, device=device)
        if length < 3:
            number = torch.randint(2**length - 1, (batch, 1), generator=generator, device=device)
            return number >> place & 1
        size = torch.randint(1, length - 1, (batch, 1), generator=generator, device=device)
        a = positive(generator, size, length)
        b = positive(generator, length - 1 - size, length)
        moved = b.gather(1, (place - size - 1).clamp(min=0))
        return torch.where(place < size, a, torch.where(place > size, moved, END))

    def counted(self, target: Tensor) -> Tensor:
        return up_to(END, target)


def positive(generator: torch.Generator, size: Tensor, width: int) -> Tensor:
    """Draw uniform numbers from 1 to 2^size - 1, (B, width); size (B, 1).

    About half of the numbers have their highest 1 at place size - 1, a quarter one below, and so on
    down to place 0; lower bits are fair coins.
    """
    device, shape = generator.device, (len(size), width)
    bits = torch.randint(2, shape, generator=generator, device=device)
    u = torch.rand(size.shape, generator=generator, dtype=torch.float64, device=device)
    zeros = -torch.log2(1 - u * (1 - torch.exp2(-size.double())))  # above the highest 1
    highest = (size - 1 - zeros.long()).clamp(min=0)
    place = torch.arange(width, device=device)
    return torch.where(place < highest, bits, (place == highest).long())


def operands(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the two numbers (B, n) of prompts (B, n); without a 2 the second is 0."""
    n = x.shape[1]
    place = torch.arange(n, device=x.device)
    size = (x != END).cumprod(1).sum(1, keepdim=True)  # of the first
    second = pad(x, (0, n + 1)).gather(1, place + size + 1)
    return torch.where(place < size, x, 0), second


def ended(bits: Tensor, size: Tensor) -> Tensor:
    """Write the first `size` (B, 1) bits (B, Q), then 2, then zeros."""
    place = torch.arange(bits.shape[1], device=bits.device)
    return torch.where(place < size, bits, torch.where(place == size, END, 0))


def digits(bits: Tensor) -> Tensor:
    """Count the bits of numbers (B, n) up to the highest 1, (B, 1); 0 has one."""
    place = torch.arange(1, bits.shape[1] + 1, device=bits.device)
    return (bits * place).amax(1, keepdim=True).clamp(min=1)


def read(tokens: list[int]) -> list[int]:
    """Return the numbers in a prompt.

    >>> read([0, 1, 2, 1, 0, 1])
    [2, 5]
    """
    numbers, weight = [0], 1
    for token in tokens:
        if token == END:
            numbers, weight = [*numbers, 0], 1
        else:
            numbers[-1] += token * weight
            weight *= 2
    return numbers


def written(number: int) -> list[int]:
    """Return the bits of a number, least significant first; 0 has one.

    >>> written(6)
    [0, 1, 1]
    """
    return [int(bit) for bit in reversed(f"{number:b}")]
