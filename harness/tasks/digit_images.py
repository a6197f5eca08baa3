"""Handwritten digits, a token for each pixel."""

from functools import cache
from math import isqrt
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from harness.tasks.base import Batch, TaskError, Vocab
from harness.tasks.grids import Grids

LEVELS, SIDE, APART = 17, 8, 5  # grey values and pixels a side; every fifth image is to test on
SHIFTED = 12  # pixels a side of the canvas of the test set "shifted"


class DigitImages(Grids):
    """An image of a handwritten digit, row by row, and which digit it is.

    Scikit-learn's 1,797 images of 8 x 8 pixels of 17 grey values (a is white, q is black), of which
    four in five are trained on. Other sizes are interpolated (bilinear) and rounded.
    Test sets: "test", the others; "shifted", those of 8 x 8 at a random place of a canvas of
    12 x 12.

    Vocabulary: a..q, the digits 0..9, "/" and "=". Length n: the number of pixels.
    Chance: the ten digits are about as frequent, so 1/10.
    """

    name = "digits"
    summary = "handwritten digits, a token for each pixel"
    paper = "Alpaydin and Kaynak 1998"
    family = "images"
    determined: ClassVar[bool] = False
    example = "ab/ba/=3"
    vocab = Vocab((*"abcdefghijklmnopq", *map(str, range(10)), "/", "="))
    chance = 0.1

    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        """Draw images to train on."""
        return self._drawn(generator, batch, length, test=False)

    def check_test_set(self, name: str) -> None:
        if name not in ("test", "shifted"):
            raise TaskError(f"{self.name} has no test set {name!r}; it has test, shifted")

    def test_set(self, name: str, generator: torch.Generator, batch: int, length: int) -> Batch:
        self.check_test_set(name)
        if name == "shifted" and length != SHIFTED**2:
            raise TaskError(f"the test set shifted has {SHIFTED**2} pixels, not {length}")
        return self._drawn(generator, batch, length, test=True, shifted=name == "shifted")

    def _drawn(
        self, generator: torch.Generator, batch: int, length: int, test: bool, shifted: bool = False
    ) -> Batch:
        self.check_length(length)
        side, device = isqrt(length), generator.device
        images, digits = scanned()
        held_out = torch.arange(len(digits)) % APART == 0
        kept = held_out if test else ~held_out
        images, digits = images[kept], digits[kept]
        which = torch.randint(len(digits), (batch,), generator=generator, device=device).cpu()
        image = images[which]
        if shifted:
            canvas = torch.zeros(batch, side, side)
            at = torch.randint(side - SIDE + 1, (batch, 2), generator=generator, device=device)
            for own, one, (i, j) in zip(canvas, image, at.tolist(), strict=True):
                own[i : i + SIDE, j : j + SIDE] = one
            image = canvas
        elif side != SIDE:
            image = resized(image, side)
        prompt = self._written(image.long().to(device))
        end = prompt.new_full((batch, 1), self.slash + 1)
        target = LEVELS + digits[which].to(device)
        return Batch(torch.cat([prompt, end], 1), target[:, None])

    def solve(self, prompt: list[int]) -> list[int]:
        """Return the digit of the nearest image to train on."""
        own = [token for token in prompt if token < LEVELS]
        images, digits = scanned()
        near = resized(images, isqrt(len(own))).flatten(1) - torch.tensor(own)
        far = near.square().sum(1)
        far[::APART] = torch.inf
        return [LEVELS + int(digits[far.argmin()])]

    def max_tokens(self, length: int) -> tuple[int, int]:
        return length + isqrt(length) + 1, 1


@cache
def scanned() -> tuple[Tensor, Tensor]:
    """Return the images (1797, 8, 8), grey values 0..16 in float32, and their digits (1797,).

    Errors: TaskError without scikit-learn.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise TaskError('digits needs scikit-learn: pip install "pezoo[images]"') from None
    found: Any = load_digits()
    return torch.tensor(found.images, dtype=torch.float32), torch.tensor(found.target)


def resized(images: Tensor, side: int) -> Tensor:
    """Interpolate images (N, 8, 8) to (N, side, side), whole grey values in float32."""
    size = (side, side)
    large = interpolate(images[:, None], size, mode="bilinear", align_corners=False)
    return large[:, 0].round()
