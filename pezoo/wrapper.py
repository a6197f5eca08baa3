"""Base class for encodings around another encoding."""

from collections.abc import Callable, Sequence
from typing import Unpack

from torch import Tensor

from pezoo.base import (
    BiasForm,
    Context,
    Encoding,
    FormKind,
    ParamGroup,
    Pass,
    Plan,
    Shape,
    Sizes,
)
from pezoo.pictures import Picture
from pezoo.registry import make

CLAIMS = (
    *("max_len", "prefix_stable", "relative", "reads_distance", "order_blind", "stochastic"),
    *("causal_only", "modes", "needs_scale", "needs_slots", "oracle", "random_distances"),
    "heads_with_positions",
)


class Wrapper(Encoding):
    """An encoding around `inner`, whose hooks and claims it passes on.

    A subclass names in `wraps` what it wraps by default, and overrides the hooks that it changes,
    which call super(). Claims of its class that are not those of Encoding are kept. `prf` is not
    passed on.

    >>> class Halved(Wrapper):
    ...     wraps = "rope"
    ...     def transform(self, q, k, ctx):
    ...         q, k = super().transform(q, k, ctx)
    ...         return q / 2, k
    >>> Halved(d_head=4).relative
    True
    """

    def __init__(
        self,
        shape: Shape | None = None,
        make_inner: Callable[[Shape], Encoding] | None = None,
        **sizes: Unpack[Sizes],
    ) -> None:
        super().__init__(shape, **sizes)
        inner = make(self.wraps or "", self.shape) if make_inner is None else make_inner(self.shape)
        self.inner = inner
        for claim in CLAIMS:
            if getattr(type(self), claim) == getattr(Encoding, claim):
                setattr(self, claim, getattr(inner, claim))

    @property
    def first_free(self) -> int:
        """The first head without positions; 0 if all have them."""
        heads = self.heads_with_positions
        return heads if heads is not None and heads < self.shape.n_heads else 0

    def draw(self, ctx: Context, **plan: Unpack[Plan]) -> dict[str, Tensor]:
        return self.inner.draw(ctx, **plan)

    def _draw(self, ctx: Context) -> dict[str, Tensor]:
        plain = type(self).draw is Wrapper.draw
        return self.inner._draw(ctx) if plain else super()._draw(ctx)

    def prepare(self, ctx: Context) -> Pass:
        return self.inner.prepare(self.inner_ctx(super().prepare(ctx)))

    def inner_ctx(self, ctx: Pass) -> Pass:
        """Return the context that the inner encoding prepares."""
        return Pass.of(ctx, prepared=False)

    def embed(self, x: Tensor, ctx: Pass) -> Tensor:
        ctx.check_prepared()
        return self.inner.embed(x, ctx)

    def transform(self, q: Tensor, k: Tensor, ctx: Pass) -> tuple[Tensor, Tensor]:
        ctx.check_prepared()
        return self.inner.transform(q, k, ctx)

    def bias(self, q: Tensor, k: Tensor, ctx: Pass) -> Tensor | None:
        ctx.check_prepared()
        return self.inner.bias(q, k, ctx)

    def bias_form(self, q: Tensor, k: Tensor, ctx: Pass, kind: FormKind) -> BiasForm | None:
        return self.inner.bias_form(q, k, ctx, kind)

    def scores(self, q: Tensor, k: Tensor, ctx: Pass) -> Tensor | None:
        return self.inner.scores(q, k, ctx)

    @property
    def replaces_scores(self) -> bool:
        return self.inner.replaces_scores

    def weights(self, logits: Tensor, ctx: Pass) -> Tensor | None:
        return self.inner.weights(logits, ctx)

    @property
    def replaces_softmax(self) -> bool:
        return self.inner.replaces_softmax

    def param_groups(self) -> list[ParamGroup]:
        return self.inner.param_groups()

    def penalty(self) -> Tensor | None:
        return self.inner.penalty()

    def pictures(self, layers: Sequence[Pass]) -> list[Picture]:
        return self.inner.pictures(layers)
