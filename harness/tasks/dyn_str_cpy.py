"""Copy a string from a given digit on."""

import torch

from harness.tasks.base import Batch, Task, Vocab


class DynStrCpy(Task):
    """A string s of n digits and a digit d that occurs in it once, then s from d to its end.

    5839472,3=39472

    The place of d is uniform over s, d is uniform over the digits and the other digits of s are
    uniform over the nine that are not d.

    Vocabulary: the digits 0..9 (ids 0..9), "," and "=". Length n: the number of digits of s.
    Chance: every answer token is, over all instances, a uniformly random digit, so 1/10.

    Paper: PRISM, Table 4 ("dyn_str_cpy"; the print has its example in the row above). Deviation:
    none.
    """

    name = "dyn_str_cpy"
    summary = "copy from a given digit on"
    paper = "PRISM, Table 4"
    family = "copying"
    example = "5839472,3=39472"
    vocab = Vocab((*"0123456789", ",", "="))
    chance = 0.1

    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        self.check_length(length)
        device = generator.device
        place = torch.arange(length, device=device)
        start = torch.randint(length, (batch, 1), generator=generator, device=device)
        d = torch.randint(10, (batch, 1), generator=generator, device=device)
        other = torch.randint(9, (batch, length), generator=generator, device=device)
        other = other + (other >= d)  # the nine digits that are not d
        s = torch.where(place == start, d, other)
        comma, equals = (torch.full_like(d, self.vocab.id(c)) for c in ",=")
        source = start + place  # (B, n): the place in s of each answer token
        suffix = s.gather(1, source.clamp(max=length - 1))
        return Batch(
            prompt=torch.cat([s, comma, d, equals], dim=1),
            target=torch.where(source < length, suffix, self.vocab.pad),
        )

    def solve(self, prompt: list[int]) -> list[int]:
        *s, _, d, _ = prompt
        return s[s.index(d) :]

    def measure(self, prompt: list[int]) -> int:
        return len(prompt) - 3

    def max_tokens(self, length: int) -> tuple[int, int]:
        return length + 3, length
