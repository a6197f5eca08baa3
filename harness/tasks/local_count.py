"""Count the places in runs of equal letters."""

from string import ascii_lowercase

import torch
from torch import Tensor

from harness.tasks.base import Vocab
from harness.tasks.strings import Strings


class LocalCount(Strings):
    """Runs of equal letters, then for each letter how many equal ones are before it in its run.

    bbbaacccc=012010123

    The length of a run is uniform over 2..reps; the last run is cut at n. The letter of a run is
    uniform over those that differ from the letter before.

    Vocabulary: a..z, 0..reps-1 and "=". Length n: the number of letters.
    Options: reps, the longest run.
    Chance: 0 is the most frequent answer, with one in (2 + reps) / 2 tokens.

    Paper: Vasylenko et al. 2026, "Long-Context Generalization with Sparse Attention" (arXiv
    2506.16640), with 32 letters and reps=12. Deviation: no run is left out to fit n.
    """

    name = "local_count"
    summary = "count within runs of equal letters"
    paper = "Vasylenko et al. 2026"
    family = "counting"
    version = 2
    best_constant = ((10, 0.52), (20, 0.39), (50, 0.3), (500, 0.26))
    example = "bbbaacccc=012010123"

    def __init__(self, *, reps: int = 6) -> None:
        if not 2 <= reps <= 10:
            raise ValueError(f"reps must be 2 to 10, was {reps}")
        self.reps, self.chance = reps, 2 / (2 + reps)
        self.vocab = Vocab((*ascii_lowercase, *map(str, range(reps)), "="))
        if reps < 4:
            self.example = "bbaacc=010101"

    def draw(self, generator: torch.Generator, batch: int, length: int) -> Tensor:
        device, runs = generator.device, (length + 1) // 2  # runs are two letters long, or longer
        shape = (batch, runs)
        size = torch.randint(2, self.reps + 1, shape, generator=generator, device=device)
        change = torch.randint(1, 26, shape, generator=generator, device=device)
        change[:, :1] = torch.randint(26, (batch, 1), generator=generator, device=device)
        letter = change.cumsum(1) % 26
        place = torch.arange(length, device=device).expand(batch, length).contiguous()
        run = torch.searchsorted(size.cumsum(1), place, right=True)  # runs that end before
        return letter.gather(1, run)

    def answer(self, x: Tensor) -> Tensor:
        place = torch.arange(x.shape[1], device=x.device)
        begins = torch.ones_like(x, dtype=torch.bool)
        begins[:, 1:] = x[:, 1:] != x[:, :-1]
        return 26 + place - torch.where(begins, place, 0).cummax(1).values

    def solve(self, prompt: list[int]) -> list[int]:
        counts: list[int] = []
        for before, letter in zip([-1, *prompt], prompt[:-1], strict=False):
            counts.append(counts[-1] + 1 if letter == before else 26)
        return counts
