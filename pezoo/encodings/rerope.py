"""ReRoPE: rope whose distance ends at a window, for longer texts."""

from collections.abc import Mapping
from typing import Any, Unpack

from torch import Tensor

from pezoo.base import Context, Shape, Sizes
from pezoo.encodings.self_extend import SelfExtend
from pezoo.registry import register


@register("rerope")
class ReRoPE(SelfExtend):
    """Rotate q and k as rope does, as if all keys beyond a window were at its end.

    Formula: q_i and k_j meet as in rope at the distance d = i - j where |d| is below the window w,
    else at sign(d) (w + leak (|d| - w)). In training they meet as in rope everywhere.

    Example: w = 4: the distances 0..7 count as 0, 1, 2, 3, 4, 4, 4, 4; with leak = 1/2 the last
    four as 4, 4.5, 5, 5.5.

    Shapes: as in self_extend.

    Options
        base, layout, rope_parameters  as in rope
        leak    ReRoPE has 0, Leaky ReRoPE more; 1 is rope
        log_n   multiplies q of position p by max(1, log(p + 1) / log(train_len))
        window  w, in tokens; 0 is half of train_len

    Errors: those of rope; ValueError for a leak outside 0..1 and a window below 0. UserWarning for
    a text beyond what a leak reaches, w + (train_len - w) / leak tokens.

    Paper: Su 2023, "ReRoPE", a blog post, and "Leaky ReRoPE", whose k is 1 / leak; there with a
    window of half the training length too. The released code for Llama 2 always has the factor of
    `log_n`, and a window of 512 for a training length of 4,096.
    """

    summary = "rope whose distance ends at a window, for models trained with rope"
    paper = "Su 2023"
    reports = "a trained model reads longer texts without fine-tuning"
    reads = "distance"
    prf_text = "clip(i - j, -w, w)"
    endless = "leak=0 and window=0"
    relative = True

    def __init__(
        self,
        shape: Shape | None = None,
        *,
        base: float = 10_000.0,
        layout: str = "interleaved",
        rope_parameters: Mapping[str, Any] | str = "default",
        leak: float = 0.0,
        log_n: bool = False,
        window: int = 0,
        **sizes: Unpack[Sizes],
    ) -> None:
        rotation: Any = {"base": base, "layout": layout, "rope_parameters": rope_parameters}
        super().__init__(shape, log_n=log_n, window=window, **rotation, **sizes)
        if not 0 <= leak <= 1:
            raise ValueError(f"leak must be within 0..1, got {leak}")
        self.leak = leak

    def coarse(self, pos: Tensor, group: Tensor) -> Tensor:
        return pos.float() * self.leak

    def share(self, group: Any) -> float:
        return self.leak

    @property
    def further(self) -> str:
        return f"leak={self.leak}"

    def prf(self, ctx: Context) -> Tensor | None:
        if self.log_n:
            return None
        d = ctx.distance()[0]
        return d if self.leak else d.clamp(-self.window, self.window)
