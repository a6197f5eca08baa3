"""Base class of tasks that map a grid of symbols to another."""

from math import isqrt

import torch
from torch import Tensor

from harness.tasks.base import Batch, Task, TaskError, Vocab

SHAPES = {"wide": (6, 0), "tall": (0, 6)}  # test sets: rows and columns, 0 for the other side


class Grids(Task):
    """A grid, row by row with "/" after each row, then "=" and the grid that answers it.

    120/201/=10/20/12/

    Length n: the number of cells, of a square. The test sets "wide" and "tall" have 6 rows, or 6
    columns. Every cell has coordinates, row and column, which start anew in the answer; an answer's
    "/" are given. The last two symbols of the vocabulary are "/" and "=". A subclass defines
    `draw`, `answer` and `solved`.
    """

    family = "grids"
    min_length = 4
    paper = "ours"

    def draw(self, generator: torch.Generator, batch: int, rows: int, columns: int) -> Tensor:
        """Draw grids (B, rows, columns)."""
        raise NotImplementedError

    def answer(self, grid: Tensor) -> Tensor:
        """Return the answers (B, rows, columns) to grids."""
        raise NotImplementedError

    def solved(self, grid: list[list[int]]) -> list[list[int]]:
        """Return the answer to one grid, in plain Python, independently of `answer`."""
        raise NotImplementedError

    @property
    def slash(self) -> int:
        return len(self.vocab.symbols) - 2

    def lengths(self, low: int, high: int) -> list[int]:
        return [n for n in super().lengths(low, high) if isqrt(n) ** 2 == n]

    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        self.check_length(length)
        return self._made(self.draw(generator, batch, isqrt(length), isqrt(length)))

    def check_test_set(self, name: str) -> None:
        if name not in SHAPES:
            raise TaskError(f"{self.name} has no test set {name!r}; it has {', '.join(SHAPES)}")

    def test_set(self, name: str, generator: torch.Generator, batch: int, length: int) -> Batch:
        self.check_test_set(name)
        if length % max(SHAPES[name]):
            raise TaskError(f"{length} cells are no grid with {max(SHAPES[name])} of them a side")
        rows, columns = (side or length // max(SHAPES[name]) for side in SHAPES[name])
        return self._made(self.draw(generator, batch, rows, columns))

    def _made(self, grid: Tensor) -> Batch:
        prompt = self._written(grid)
        end = prompt.new_full((len(prompt), 1), self.slash + 1)
        return Batch(torch.cat([prompt, end], 1), self._written(self.answer(grid)))

    def _written(self, grid: Tensor) -> Tensor:
        return torch.nn.functional.pad(grid, (0, 1), value=self.slash).flatten(1)

    def given(self, target: Tensor) -> Tensor:
        return target == self.slash

    def counted(self, target: Tensor) -> Tensor:
        return (target != self.vocab.pad) & ~self.given(target)

    def coords(self, ids: Tensor) -> Tensor:
        """Return the row and column of each token, (B, S, 2) int64; (1, S, 2) if all rows agree.

        The answer begins after "=", or with the first empty token of an encoder.
        """
        slash, real = ids == self.slash, ids != self.vocab.pad
        ends = ids == self.slash + 1
        answer = (ends.long().cumsum(1) - ends.long() > 0) | ((ids == self.vocab.eos).cumsum(1) > 0)
        row = torch.zeros_like(ids)
        for part in (answer, ~answer):
            own = (slash & part).long()
            row += (own.cumsum(1) - own) * part
        before = torch.nn.functional.pad(slash | ~real, (1, 0), value=True)[:, :-1]
        begins = before | (answer & (answer.long().cumsum(1) == 1))
        column = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
        found = torch.stack([row, column - torch.where(begins, column, 0).cummax(1).values], -1)
        return found[:1] if bool((found == found[:1]).all()) else found

    def solve(self, prompt: list[int]) -> list[int]:
        rows: list[list[int]] = [[]]
        for token in prompt[:-1]:
            if token == self.slash:
                rows.append([])
            else:
                rows[-1].append(token)
        return [token for row in self.solved(rows[:-1]) for token in (*row, self.slash)]

    def measure(self, prompt: list[int]) -> int:
        return sum(token < self.slash for token in prompt)

    def max_tokens(self, length: int) -> tuple[int, int]:
        most = length + max(isqrt(length), length // 6)  # of a square or a tall grid
        return most + 1, most


class Digits(Grids):
    """Grids of random digits; a subclass defines what becomes of them."""

    symbols = 10
    vocab = Vocab((*"0123456789", "/", "="))
    chance = 0.1

    def draw(self, generator: torch.Generator, batch: int, rows: int, columns: int) -> Tensor:
        size = (batch, rows, columns)
        return torch.randint(self.symbols, size, generator=generator, device=generator.device)
