"""Two encodings in turn, by layer."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Unpack

from torch import Tensor

from pezoo.base import Context, Encoding, Memo, Pass, Plan, Shape, Sizes
from pezoo.pictures import Picture
from pezoo.registry import make, register
from pezoo.wrapper import Wrapper


@register("layers")
class Layers(Wrapper):
    """Give every n-th layer a second encoding, the others the first: `layers(every=4):rope,nope`.

    Formula: layer l = 0, 1, ... has the second encoding if `every` divides l + 1, else the first.

    Example: every = 4, 8 layers: layers 3 and 7 have the second encoding.

    Shapes: those of the encodings, each of which is built for as many layers as have it.
    Options: every, 1 is the second encoding alone; more than n_layers the first, with a warning.
    Errors: ValueError for an every below 1.

    Paper: Yang et al. 2025, "Rope to Nope and Back Again", Cohere 2's hybrid, whose RoPE has a
    `window`. Llama 4 has chunks there, and elsewhere the scale of `ssmax`. `smollm3`, `cohere2` and
    `llama4` have transformers' numbers, without normalised queries and scaled frequencies.
    """

    summary = "two encodings in turn: the second in every n-th layer"
    paper = "Yang et al. 2025"
    wraps = "rope,nope"
    also = (
        ("smollm3", "layers(every=4):rope(base=2000000.0,layout=half),nope"),
        ("cohere2", "layers(every=4):window(size=4096):rope,nope"),
        ("llama4", "layers(every=4):window(chunk=8192):rope(base=500000.0),ssmax(floor=8192):nope"),
    )

    def __init__(
        self,
        shape: Shape | None = None,
        make_inner: Callable[[Shape], Encoding] | None = None,
        make_other: Callable[[Shape], Encoding] | None = None,
        *,
        every: int = 2,
        **sizes: Unpack[Sizes],
    ) -> None:
        if every < 1:
            raise ValueError(f"every must be at least 1, got {every}")

        def build(maker: Callable[[Shape], Encoding], second: bool, own: Shape) -> Encoding:
            count = own.n_layers // every if second else own.n_layers - own.n_layers // every
            return maker(own.replaced(n_layers=count)) if count else Encoding(own)

        super().__init__(shape, partial(build, make_inner or partial(make, "rope"), False), **sizes)
        if every > (n := self.shape.n_layers) > 1:
            warnings.warn(f"every={every}: no layer of {n} has the second encoding", stacklevel=2)
        self.every = every
        self.other = build(make_other or partial(make, "nope"), True, self.shape)
        self.claim()

    @property
    def both(self) -> tuple[Encoding, Encoding]:
        return self.inner, self.other

    def wrapped(self) -> list[Encoding]:
        both: list[Any] = [*self.children()]
        return [one for one in both if type(one) is not Encoding]  # one that no layer has

    def _sub(self, n: int, ctx: Context) -> Pass:
        """Return the context of the n-th encoding, with its own memo and draws."""
        drawn, start = Pass.of(ctx).drawn or {}, f"layers.{n}."
        drawn = {k.removeprefix(start): x for k, x in drawn.items() if k.startswith(start)}
        memo = ctx.memo.setdefault(f"layers.{n}", Memo())
        return Pass.of(ctx, prepared=False, memo=memo, drawn=drawn)

    def draw(self, ctx: Context, **plan: Unpack[Plan]) -> dict[str, Tensor]:
        return self._named(ctx, lambda one, here: one.draw(here, **plan))

    def _draw(self, ctx: Context) -> dict[str, Tensor]:
        return self._named(ctx, lambda one, here: one._draw(here))

    def _named(self, ctx: Context, call: Callable[..., dict[str, Tensor]]) -> dict[str, Tensor]:
        found = [call(one, self._sub(n, ctx)) for n, one in enumerate(self.both)]
        return {f"layers.{n}.{key}": x for n, own in enumerate(found) for key, x in own.items()}

    def prepare(self, ctx: Context) -> Pass:
        ctx = Encoding.prepare(self, ctx)
        inner = (one.prepare(self._sub(n, ctx)) for n, one in enumerate(self.both))
        return replace(ctx, inner=tuple(inner))

    def _turn(self, ctx: Context) -> tuple[bool, int]:
        """Return whether a layer has the second encoding, and its number among its own."""
        layer = int(ctx.layer)
        second, before = (layer + 1) % self.every == 0, layer // self.every
        return second, before if second else layer - before

    def within(self, ctx: Pass) -> tuple[Encoding, Pass]:
        ctx.check_prepared()
        second, layer = self._turn(ctx)
        here = replace(ctx.inner[second], layer=layer, x=ctx.x, w_key=ctx.w_key, n_new=ctx.n_new)
        return self.both[second], here

    def prf(self, ctx: Context) -> Tensor | None:
        second, layer = self._turn(ctx)
        return self.both[second].prf(replace(ctx, layer=layer))

    def embed(self, x: Tensor, ctx: Pass) -> Tensor:
        ctx.check_prepared()
        for one, here in zip(self.both, ctx.inner, strict=True):
            x = one.embed(x, here)
        return x

    def pictures(self, layers: Sequence[Pass]) -> list[Picture]:
        own = [[self.within(x)[1] for x in layers if self._turn(x)[0] == n] for n in (False, True)]
        return [p for one, some in zip(self.both, own, strict=True) for p in one.pictures(some)]
