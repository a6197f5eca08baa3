"""Move a grid of digits: translate, transpose, reflect, rotate."""

from torch import Tensor
from torch.nn.functional import pad

from harness.tasks.base import Vocab
from harness.tasks.grids import Digits


class Translate(Digits):
    """Digits on a grid, moved down and to the right; what comes in is ".".

    12/34/=../.1/

    Vocabulary: the digits 0..9, ".", "/" and "=".
    Options: down and right, how far.
    Chance: a digit is uniformly random, so 1/10; "." is always at the same places.
    """

    name = "translate"
    summary = "a grid of digits, moved down and right"
    example = "12/34/=../.1/"
    vocab = Vocab((*"0123456789", ".", "/", "="))
    best_constant = ((9, 0.6), (36, 0.38), (64, 0.31), (144, 0.24))

    def __init__(self, *, down: int = 1, right: int = 1) -> None:
        if min(down, right) < 0 or not down + right:
            raise ValueError(f"down and right must be 0 or more, not both 0, were {down}, {right}")
        self.down, self.right = down, right

    def answer(self, grid: Tensor) -> Tensor:
        rows, columns = grid.shape[1:]
        moved = pad(grid, (self.right, 0, self.down, 0), value=self.vocab.id("."))
        return moved[:, :rows, :columns]

    def solved(self, grid: list[list[int]]) -> list[list[int]]:
        empty = self.vocab.id(".")
        return [
            [
                grid[i - self.down][j - self.right] if i >= self.down and j >= self.right else empty
                for j in range(len(grid[0]))
            ]
            for i in range(len(grid))
        ]


class Transpose(Digits):
    """Digits on a grid, rows and columns exchanged.

    123/456/=14/25/36/

    Chance: a digit is uniformly random, so 1/10.
    """

    name = "transpose"
    summary = "a grid of digits, rows and columns exchanged"
    example = "12/34/=13/24/"

    def answer(self, grid: Tensor) -> Tensor:
        return grid.mT

    def solved(self, grid: list[list[int]]) -> list[list[int]]:
        return [list(column) for column in zip(*grid, strict=True)]


class Reflect(Digits):
    """Digits on a grid, the last column first.

    123/456/=321/654/

    Chance: a digit is uniformly random, so 1/10.
    """

    name = "reflect"
    summary = "a grid of digits, each row backwards"
    example = "12/34/=21/43/"

    def answer(self, grid: Tensor) -> Tensor:
        return grid.flip(2)

    def solved(self, grid: list[list[int]]) -> list[list[int]]:
        return [row[::-1] for row in grid]


class Rotate(Digits):
    """Digits on a grid, turned clockwise by a quarter.

    123/456/=41/52/63/

    Chance: a digit is uniformly random, so 1/10.
    """

    name = "rotate"
    summary = "a grid of digits, turned clockwise"
    example = "12/34/=31/42/"

    def answer(self, grid: Tensor) -> Tensor:
        return grid.rot90(-1, (1, 2))

    def solved(self, grid: list[list[int]]) -> list[list[int]]:
        return [[row[j] for row in reversed(grid)] for j in range(len(grid[0]))]
