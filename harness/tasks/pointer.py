"""Look up digits on a grid by pointers."""

import torch
from torch import Tensor

from harness.tasks.base import Vocab
from harness.tasks.grids import Grids

# Rows up and columns left, of odd sums: cells of one colour of a chessboard point to the other's.
STEPS = ((0, 1), (1, 0), (1, 2), (2, 1))
LETTERS = "abcd"


class Pointer(Grids):
    """Digits and pointers on a grid: each pointer becomes the digit that it points to.

    1a/b2/=11/12/

    a points 1 to the left, b 1 up, c 1 up and 2 left, d 2 up and 1 left. Half of the cells whose
    row and column have an odd sum are pointers, of those kinds that stay on the grid with equal
    probability; no pointer points to another.

    Vocabulary: the digits 0..9, a..d, "/" and "=".
    Chance: a digit is uniformly random, so 1/10.
    """

    name = "pointer"
    summary = "digits that pointers on a grid point to"
    example = "1a/b2/=11/12/"
    vocab = Vocab((*map(str, range(10)), *LETTERS, "/", "="))
    chance = 0.1

    def draw(self, generator: torch.Generator, batch: int, rows: int, columns: int) -> Tensor:
        device, size = generator.device, (batch, rows, columns)
        digit = torch.randint(10, size, generator=generator, device=device)
        i, j = torch.arange(rows, device=device)[:, None], torch.arange(columns, device=device)
        fits = torch.stack([(i >= up) & (j >= left) for up, left in STEPS], -1)
        order = torch.rand((*size, len(STEPS)), generator=generator, device=device)
        step = torch.where(fits, order, -1).argmax(-1)
        chosen = torch.rand(size, generator=generator, device=device) < 0.5
        return torch.where(chosen & ((i + j) % 2 == 1), 10 + step, digit)

    def answer(self, grid: Tensor) -> Tensor:
        found = grid
        for kind, (up, left) in enumerate(STEPS):
            there = grid.roll((up, left), (1, 2))
            found = torch.where(grid == 10 + kind, there, found)
        return found

    def solved(self, grid: list[list[int]]) -> list[list[int]]:
        own = [row[:] for row in grid]
        for i, row in enumerate(grid):
            for j, cell in enumerate(row):
                if cell >= 10:
                    up, left = STEPS[cell - 10]
                    own[i][j] = grid[i - up][j - left]
        return own
