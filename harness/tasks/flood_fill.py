"""Fill the region of a grid that a seed lies in."""

import torch
from torch import Tensor

from harness.tasks.base import Vocab
from harness.tasks.grids import Grids

WALL, FREE, SEED = 0, 1, 2


class FloodFill(Grids):
    """Walls, free cells and one seed: the free cells that are connected with the seed are filled.

    s.#/#.#/.#./=oo#/#o#/.#./

    Cells are free with probability `free`, and the seed is a random cell. A cell has up to four
    neighbours. A filled cell has the mark of the seed.

    Vocabulary: "#", ".", "o", "/" and "=".
    Options: free, the probability of a free cell.
    Chance: the most frequent symbol, a wall, has a share of (1 - free) of all cells but the seed.
    """

    name = "flood_fill"
    summary = "the region of a grid that a seed lies in"
    example = "o./##/=oo/##/"
    vocab = Vocab(("#", ".", "o", "/", "="))

    def __init__(self, *, free: float = 0.5) -> None:
        if not 0 < free < 1:
            raise ValueError(f"free must be above 0 and below 1, was {free}")
        self.free, self.chance = free, max(free, 1 - free)

    def draw(self, generator: torch.Generator, batch: int, rows: int, columns: int) -> Tensor:
        device, size = generator.device, (batch, rows * columns)
        free = torch.rand(size, generator=generator, device=device) < self.free
        seed = torch.randint(size[1], (batch, 1), generator=generator, device=device)
        return free.long().scatter(1, seed, SEED).view(batch, rows, columns)

    def answer(self, grid: Tensor) -> Tensor:
        filled = grid == SEED
        while True:
            near = torch.nn.functional.pad(filled, (1, 1, 1, 1))
            sides = near[:, :-2, 1:-1] | near[:, 2:, 1:-1] | near[:, 1:-1, :-2] | near[:, 1:-1, 2:]
            more = filled | (sides & (grid == FREE))
            if torch.equal(more, filled):
                return torch.where(filled, SEED, grid)
            filled = more

    def solved(self, grid: list[list[int]]) -> list[list[int]]:
        own = [row[:] for row in grid]
        todo = [(i, j) for i, row in enumerate(own) for j, cell in enumerate(row) if cell == SEED]
        while todo:
            i, j = todo.pop()
            for y, x in ((i - 1, j), (i + 1, j), (i, j - 1), (i, j + 1)):
                if 0 <= y < len(own) and 0 <= x < len(own[0]) and own[y][x] == FREE:
                    own[y][x] = SEED
                    todo.append((y, x))
        return own
