"""Base class for encodings around another encoding."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, Unpack

from torch import Tensor

from pezoo.base import (
    BiasForm,
    Columns,
    Context,
    Encoding,
    FormKind,
    ParamGroup,
    Pass,
    Plan,
    ScoreMod,
    Shape,
    Sizes,
)
from pezoo.functional import at_least_float32
from pezoo.pictures import Picture
from pezoo.registry import make

# Combines the claims of the wrapped encodings into the wrapper's.
CLAIMS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("prefix_stable", "relative", "reads_distance", "order_blind"), all),
    **dict.fromkeys(("stochastic", "causal_only", "needs_scale", "needs_slots"), any),
    "axes": partial(max, default=1),
    "reads_length": any,
    "oracle": any,
    "control": any,
    "random_distances": all,
    "modes": lambda found: sum(found, ()),
    "max_len": lambda found: min((n for n in found if n is not None), default=None),
    "rope_within": lambda found: None if set(found) == {None} else 0,
    "heads_with_positions": lambda found: found[0] if len(found) == 1 else None,
}


class Wrapper(Encoding):
    """An encoding around `inner`, whose hooks and claims it passes on.

    A subclass names in `wraps` what it wraps by default, and overrides the hooks that it changes,
    which call super(). Claims of its class that are not those of Encoding are kept. `prf` is not
    passed on. `changes` says what a subclass changes whatever it wraps, so that no kernel fuses it.

    >>> class Halved(Wrapper):
    ...     wraps = "rope"
    ...     def transform(self, q, k, ctx):
    ...         q, k = super().transform(q, k, ctx)
    ...         return q / 2, k
    >>> Halved(d_head=4).relative
    True
    """

    changes: ClassVar[str] = ""  # "softmax" or "logits"

    def __init__(
        self,
        shape: Shape | None = None,
        make_inner: Callable[[Shape], Encoding] | None = None,
        **sizes: Unpack[Sizes],
    ) -> None:
        super().__init__(shape, **sizes)
        self.inner = (make_inner or partial(make, self.wraps or ""))(self.shape)
        self.claim()

    def wrapped(self) -> list[Encoding]:
        """Return what is wrapped, in a class that wraps several."""
        return [self.inner]

    def refuse_itself(self, why: str) -> None:
        """Raise ValueError if it wraps another one of its class, at any depth."""
        if any(isinstance(part, type(self)) for part in self.inner.modules()):
            raise ValueError(f"{self.name} cannot wrap itself: {why}")

    def claim(self) -> None:
        """Set the claims that the class leaves open."""
        for claim, follows in CLAIMS.items():
            if getattr(type(self), claim) == getattr(Encoding, claim):
                setattr(self, claim, follows([getattr(one, claim) for one in self.wrapped()]))

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
        outer = super().prepare(ctx)
        return self.prepare_inner(self.inner_ctx(outer), outer)

    def prepare_inner(self, ctx: Pass, outer: Pass) -> Pass:
        """Prepare the inner encoding. Errors: ValueError for coords beside changed positions."""
        if self.inner.axes > 1 and ctx.coords is not None and ctx.pos is not outer.pos:
            raise ValueError(
                f"{self.name} changes positions, and {type(self.inner).__name__} reads coords in "
                "their place: leave out one of the two"
            )
        return self.inner.prepare(ctx)

    def inner_ctx(self, ctx: Pass) -> Pass:
        """Return the context that the inner encoding prepares."""
        return Pass.of(ctx, prepared=False)

    def within(self, ctx: Pass) -> tuple[Encoding, Pass]:
        """Return the encoding that a layer has, and its context."""
        ctx.check_prepared()
        return self.inner, ctx

    def embed(self, x: Tensor, ctx: Pass) -> Tensor:
        inner, here = self.within(ctx)
        return inner.embed(x, here)

    def transform(self, q: Tensor, k: Tensor, ctx: Pass) -> tuple[Tensor, Tensor]:
        inner, here = self.within(ctx)
        return inner.transform(q, k, here)

    def bias(self, q: Tensor, k: Tensor, ctx: Pass) -> Tensor | None:
        inner, here = self.within(ctx)
        return inner.bias(q, k, here)

    def bias_form(self, q: Tensor, k: Tensor, ctx: Pass, kind: FormKind) -> BiasForm | None:
        inner, here = self.within(ctx)
        if kind is ScoreMod and here.pos is not ctx.pos:  # it would get the positions of ctx
            return None
        return inner.bias_form(q, k, here, kind)

    def scores(self, q: Tensor, k: Tensor, ctx: Pass) -> Tensor | None:
        inner, here = self.within(ctx)
        return inner.scores(q, k, here)

    @property
    def replaces_scores(self) -> bool:
        return any(one.replaces_scores for one in self.wrapped())

    def weights(self, logits: Tensor, ctx: Pass) -> Tensor | None:
        inner, here = self.within(ctx)
        return inner.weights(logits, here)

    @property
    def replaces_softmax(self) -> bool:
        return any(one.replaces_softmax for one in self.wrapped())

    def param_groups(self) -> list[ParamGroup]:
        return [group for one in self.wrapped() for group in one.param_groups()]

    def penalty(self) -> Tensor | None:
        own = [x for one in self.wrapped() if (x := one.penalty()) is not None]
        return sum(own[1:], own[0]) if own else None

    def pictures(self, layers: Sequence[Pass]) -> list[Picture]:
        return self.inner.pictures(layers)


class ScaledQueries(Wrapper):
    """An encoding around `inner` that multiplies its queries by a `factor`.

    What `inner` adds to the logits, or replaces them by, is computed from the queries before that.
    """

    def __init__(
        self,
        shape: Shape | None = None,
        make_inner: Callable[[Shape], Encoding] | None = None,
        **sizes: Unpack[Sizes],
    ) -> None:
        super().__init__(shape, make_inner, **sizes)
        parts = [part for part in self.inner.modules() if isinstance(part, Encoding)]
        plain = Encoding.bias, Wrapper.bias  # functions of positions at most
        self.bias_reads_queries = any(type(part).bias not in plain for part in parts)

    def factor(self, ctx: Pass) -> Tensor:
        """Return f, (B|1, H|1, T, 1), float32 at least."""
        raise NotImplementedError

    def transform(self, q: Tensor, k: Tensor, ctx: Pass) -> tuple[Tensor, Tensor]:
        q, k = super().transform(q, k, ctx)
        return at_least_float32(q) * _not_zero(self.factor(ctx)), k

    def bias(self, q: Tensor, k: Tensor, ctx: Pass) -> Tensor | None:
        return super().bias(self._before(q, ctx) if self.bias_reads_queries else q, k, ctx)

    def bias_form(self, q: Tensor, k: Tensor, ctx: Pass, kind: FormKind) -> BiasForm | None:
        if kind is Columns and self.bias_reads_queries:  # they hold the queries
            return None
        return super().bias_form(q, k, ctx, kind)

    def scores(self, q: Tensor, k: Tensor, ctx: Pass) -> Tensor | None:
        if not self.replaces_scores:
            return None
        scores = super().scores(self._before(q, ctx), k, ctx)
        return None if scores is None else scores * self.factor(ctx)

    def _before(self, q: Tensor, ctx: Pass) -> Tensor:
        return q / _not_zero(self.factor(ctx))


def _not_zero(factor: Tensor) -> Tensor:
    """Return the factor, or near 0 a number that can be divided by, with the same gradient."""
    return factor + 1e-6 * (factor.abs() < 1e-6)
