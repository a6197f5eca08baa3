"""Mark the longest straight lines of a grid."""

import torch
from torch import Tensor

from harness.tasks.base import Vocab
from harness.tasks.grids import Grids

EMPTY, SET, MARKED = 0, 1, 2


class LongestLine(Grids):
    """Cells that are set or not: those of the longest lines, across or down, are marked.

    x.x/xx./.../=o.x/ox./.../  is wrong: xx is as long across, so o.x/oo./.../

    Cells are set with probability `dense`. All lines of the greatest length are marked; single
    cells are lines of length 1.

    Vocabulary: ".", "x", "o", "/" and "=".
    Options: dense, the probability of a cell that is not empty.
    Chance: the most frequent symbol, ".", has a share of (1 - dense).
    """

    name = "longest_line"
    summary = "the longest straight lines of a grid"
    example = "x./xx/=o./oo/"
    vocab = Vocab((".", "x", "o", "/", "="))

    def __init__(self, *, dense: float = 0.4) -> None:
        if not 0 < dense <= 0.5:
            raise ValueError(f"dense must be above 0 and at most 0.5, was {dense}")
        self.dense, self.chance = dense, 1 - dense

    def draw(self, generator: torch.Generator, batch: int, rows: int, columns: int) -> Tensor:
        size = (batch, rows, columns)
        return (torch.rand(size, generator=generator, device=generator.device) < self.dense).long()

    def answer(self, grid: Tensor) -> Tensor:
        across, down = _runs(grid == SET), _runs((grid == SET).mT).mT
        most = torch.maximum(across, down)
        longest = most.flatten(1).amax(1)[:, None, None].clamp(min=1)
        return torch.where(most == longest, MARKED, grid)

    def solved(self, grid: list[list[int]]) -> list[list[int]]:
        own, (rows, columns) = [row[:] for row in grid], (len(grid), len(grid[0]))
        lines: list[list[tuple[int, int]]] = []
        for i in range(rows):
            for j in range(columns):
                for y, x in ((0, 1), (1, 0)):
                    line = []
                    while i + y * len(line) < rows and j + x * len(line) < columns:
                        cell = (i + y * len(line), j + x * len(line))
                        if grid[cell[0]][cell[1]] != SET:
                            break
                        line.append(cell)
                    lines.append(line)
        longest = max(map(len, lines))
        for line in lines:
            for i, j in line if len(line) == longest else ():
                own[i][j] = MARKED
        return own


def _runs(x: Tensor) -> Tensor:
    """Return the length of the run along the last axis that each True belongs to; else 0."""
    place = torch.arange(x.shape[-1], device=x.device).expand_as(x)
    before = torch.where(x, -1, place).cummax(-1).values  # the last False so far
    after = torch.where(x, x.shape[-1], place).flip(-1).cummin(-1).values.flip(-1)
    return (after - before - 1) * x
