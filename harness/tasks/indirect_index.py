"""Find a letter and name the one some places away."""

from string import ascii_lowercase

import torch

from harness.tasks.base import Batch, Task, Vocab


class IndirectIndex(Task):
    """n letters, one of them and an offset, then the letter at that offset from it.

    kitefable,i+2=e    two places after i
    kitefable,b-1=a    the place before b

    The letter that is asked for occurs once. Its place and the answer's are uniform among the pairs
    of places at most `reach` apart; all other letters are uniform over the 25 that remain.

    Vocabulary: a..z, the offsets -reach..-1 and +1..+reach, "," and "=". Length n: the number of
    letters, at least 2.
    Options: reach, the largest offset.
    Chance: every letter is equally likely, so 1/26.

    Paper: Gopalakrishnan et al. 2025, "Decoupling the What and Where with Polar Coordinate
    Positional Embeddings" (arXiv 2509.10534), the diagnostic task of PoPE. Deviation: shorter
    strings, and offsets of at most 3, so that they do not grow with the string.
    """

    name = "indirect_index"
    summary = "the letter at an offset from another letter"
    paper = "Gopalakrishnan et al. 2025"
    family = "retrieval"
    chance = 1 / 26
    min_length = 2
    example = "kitefable,b-1=a"

    def __init__(self, *, reach: int = 3) -> None:
        if not 1 <= reach <= 30:
            raise ValueError(f"reach must be 1 to 30, was {reach}")
        self.reach = reach
        steps = [step for step in range(-reach, reach + 1) if step]
        self.vocab = Vocab((*ascii_lowercase, *(f"{step:+}" for step in steps), ",", "="))

    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        self.check_length(length)
        device = generator.device
        place = torch.arange(length, device=device)
        step = place - place[:, None]
        pairs = ((step != 0) & (step.abs() <= self.reach)).nonzero()  # (pairs, 2)
        drawn = torch.randint(len(pairs), (batch,), generator=generator, device=device)
        start, end = pairs[drawn].split(1, 1)
        letter = torch.randint(26, (batch, 1), generator=generator, device=device)
        other = torch.randint(25, (batch, length), generator=generator, device=device)
        other = other + (other >= letter)  # the 25 letters that are not asked for
        x = torch.where(place == start, letter, other)
        step = end - start
        offset = 26 + step + self.reach - (step > 0).long()  # there is no offset 0
        comma, equals = (torch.full_like(letter, self.vocab.id(c)) for c in ",=")
        return Batch(torch.cat([x, comma, letter, offset, equals], 1), x.gather(1, end))

    def solve(self, prompt: list[int]) -> list[int]:
        *x, _, letter, offset, _ = prompt
        return [x[x.index(letter) + int(self.vocab.symbols[offset])]]

    def measure(self, prompt: list[int]) -> int:
        return len(prompt) - 4

    def max_tokens(self, length: int) -> tuple[int, int]:
        return length + 4, 1
