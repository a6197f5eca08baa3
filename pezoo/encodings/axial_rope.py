"""RoPE on several axes: each axis turns its own share of the pairs."""

from typing import Unpack

import torch
from torch import Tensor

from pezoo.base import Context, Shape, Sizes
from pezoo.encodings.rope import RoPE
from pezoo.functional import inverse_frequencies
from pezoo.registry import register
from pezoo.rope_scaling import Scaled


@register("axial_rope")
class AxialRoPE(RoPE):
    """Split the pairs of q and k among the axes, and turn each share by its own coordinate.

    Formula: pair m of axis a, which has n_a pairs, turns by x_a w_m, w_m = base^(-m/n_a).

    Example: K = 8, two axes: pairs 0 and 1 turn by the row times 1 and base^(-1/2), pairs 2 and 3
    by the column times the same.

    Shapes: q, k (B, H, T, K) -> the same, float32 at least. Text turns all shares by its position.

    Options
        axes      how many there are
        sections  pairs of each axis, as in "2+6"; by default as many for each, the first ones more
        base      of the frequencies: 100 as in Heo et al.; timm and transformers' type "axial" have
                  10,000 by default
        layout    as in rope
    Errors: ValueError for an odd K, for sections that are not those of K, and for an axis without.

    Paper: Heo et al. 2024, "Rotary Position Embedding for Vision Transformer", Section 3.2, after
    Fang et al. 2023 (EVA-02).
    """

    summary = "each axis turns its own share of the pairs of q and k"
    paper = "Fang et al. 2023; Heo et al. 2024"
    reports = "keeps its accuracy at resolutions beyond training"
    prf_text = "i - j"
    rope_within = None
    sections: tuple[int, ...] = ()

    def __init__(
        self,
        shape: Shape | None = None,
        *,
        axes: int = 2,
        sections: str = "",
        base: float = 100.0,
        layout: str = "half",
        **sizes: Unpack[Sizes],
    ) -> None:
        super().__init__(shape, base=base, layout=layout, **sizes)
        self.axes, self.sections = axes, sections_of(sections, self.shape.d_head // 2, axes)
        if not all(self.sections):
            raise ValueError(f"an axis without pairs: d_head={self.shape.d_head}, axes={axes}")

    def frequencies(self, ctx: Context) -> Scaled:
        sections, device = self.sections or (self.shape.d_head // 2,), ctx.pos.device
        return torch.cat([inverse_frequencies(2 * n, self.base, device) for n in sections]), 1.0

    def turned_by(self, ctx: Context) -> Tensor:
        axis = [axis for axis, n in enumerate(self.sections) for _ in range(n)]
        return coordinates(ctx, self.axes)[..., torch.tensor(axis, device=ctx.pos.device)]


def sections_of(text: str, pairs: int, axes: int) -> tuple[int, ...]:
    """Return how many pairs each axis has: "2+6", or as many for each, the first ones more.

    >>> sections_of("", 5, 2), sections_of("1+4", 5, 2)
    ((3, 2), (1, 4))
    """
    if axes < 1:
        raise ValueError(f"axes must be at least 1, got {axes}")
    if not text:
        return tuple((pairs + axes - 1 - axis) // axes for axis in range(axes))
    found = tuple(int(n) if n.isdecimal() else -1 for n in text.split("+"))
    if len(found) != axes or min(found) < 0 or sum(found) != pairs:
        raise ValueError(
            f"sections must be {axes} numbers that sum to {pairs}, the pairs of d_head; got {text}"
        )
    return found


def coordinates(ctx: Context, axes: int) -> Tensor:
    """Return the coordinates of the new tokens, (B|1, 1, T, A) floats."""
    places = ctx.places(axes)
    return places[:, None, places.shape[1] - ctx.new :].float()
