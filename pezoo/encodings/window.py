"""A sliding window, or chunks, around another encoding."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Unpack

import torch
from torch import Tensor

from pezoo.base import BiasForm, Context, Encoding, FormKind, Memo, Pass, ScoreMod, Shape, Sizes
from pezoo.registry import register
from pezoo.wrapper import Wrapper

SINKS = "window.sinks"


@register("window")
class Window(Wrapper):
    """Hide keys that are far from the query, around another encoding.

    Formula: b_ij = -inf where i - j >= size, or, with `chunk`, where i and j differ in floor(i /
    chunk); elsewhere the inner bias. With `sinks`, positions j < sinks are never hidden: query i
    meets them as if it were at min(i, size + sinks - 1), so that no distance grows further.

    Example: size = 2: each query sees itself and the token before; with sinks = 1 token 9 sees
    tokens 9, 8 and 0, at the distances 0, 1 and 2. chunk = 2: token 3 sees 2 and 3.

    Shapes: -> (B|1, H|1, T, S). With sinks q and k are twice as wide as those of an inner encoding
    that transforms them: the half that a key does not need is 0.

    Options
        size   in tokens; 0 is train_len - sinks, so that texts of up to train_len tokens stay as
               they are
        chunk  in place of size; 0 is none
        sinks  first tokens of each document that every query sees, such as 4
    Errors: ValueError for an option below 0, around an encoding that replaces the positions that it
    counts, and for sinks around one that replaces the product of q and k.

    Paper: Beltagy et al. 2020, "Longformer": sliding windows. Cohere 2 has them in `layers`, and
    Llama 4 chunks. Sinks: Xiao et al. 2023 (StreamingLLM), whose distances are those in a cache of
    size + sinks tokens, as here; Han et al. 2023 (LM-Infinite) have the distance size for
    all first tokens. It is for decoders: later keys are only hidden by chunks.
    """

    summary = "another encoding that sees near keys only"
    paper = "Beltagy et al. 2020, Xiao et al. 2023"
    reads = "distance"
    wraps = "rope"
    causal_only = True
    version = 2

    def __init__(
        self,
        shape: Shape | None = None,
        make_inner: Callable[[Shape], Encoding] | None = None,
        *,
        size: int = 0,
        chunk: int = 0,
        sinks: int = 0,
        **sizes: Unpack[Sizes],
    ) -> None:
        super().__init__(shape, make_inner, **sizes)
        if min(size, chunk, sinks) < 0:
            raise ValueError(
                f"size, chunk and sinks must be at least 0, got {size=} {chunk=} {sinks=}"
            )
        if sinks and self.inner.replaces_scores:
            raise ValueError(f"sinks need the product of q and k, which {self.inner.name} replaces")
        size = chunk or size or max(1, self.shape.train_len - sinks)
        self.size, self.chunk, self.sinks, self.last = size, chunk, sinks, size + sinks - 1
        parts = [type(part) for part in self.inner.modules() if isinstance(part, Encoding)]
        plain = Encoding.transform, Wrapper.transform
        self.widens = sinks > 0 and any(one.transform not in plain for one in parts)
        self.heads_with_positions, self.order_blind = None, False
        if self.inner.rope_within:
            self.rope_within = min(self.inner.rope_within, chunk or size + sinks)
        if chunk or sinks:
            self.relative = self.reads_distance = self.random_distances = False

    def prepare(self, ctx: Context) -> Pass:
        before = Encoding.prepare(self, ctx)
        after = self.prepare_inner(self.inner_ctx(before), before)
        if after.true_pos is not before.true_pos or after.distances is not before.distances:
            raise ValueError(
                f"{self.name} counts positions, which {self.inner.name} replaces: put "
                f"{self.name} inside {self.inner.name}"
            )
        if not self.sinks:
            return after
        # The keys that meet these queries keep their positions.
        pos, memo = before.pos.clamp(max=self.last), before.memo.setdefault(SINKS, Memo())
        capped = Pass.of(self.inner_ctx(before), pos=pos, true_pos=before._true_pos, memo=memo)
        return replace(after, inner=(*after.inner, self.prepare_inner(capped, before)))

    def within(self, ctx: Pass) -> tuple[Encoding, Pass]:
        inner, here = super().within(ctx)
        return inner, replace(here, inner=here.inner[:-1]) if self.sinks else here

    def _capped(self, ctx: Pass) -> Pass:
        """Return the context in which queries meet the first tokens."""
        return replace(ctx.inner[-1], layer=ctx.layer, x=ctx.x, w_key=ctx.w_key, n_new=ctx.n_new)

    def transform(self, q: Tensor, k: Tensor, ctx: Pass) -> tuple[Tensor, Tensor]:
        near, keys = super().transform(q, k, ctx)
        if not self.widens:
            return near, keys
        far, first = self.inner.transform(q, k, capped := self._capped(ctx))
        capped.memo.owed = None  # what follows has the memo of ctx
        here = (ctx.query_pos < self.sinks)[:, None, :, None]  # padding, at -1, is hidden anyway
        both = keys.masked_fill(here, 0.0), first.masked_fill(~here, 0.0)
        return torch.cat([near, far], -1), torch.cat(both, -1)

    def hidden(self, i: Tensor, j: Tensor, ctx: Pass) -> Tensor:
        """Return True where query position i does not see key position j."""
        far = i // self.chunk != j // self.chunk if self.chunk else ctx.distance(i, j) >= self.size
        return far & (j >= self.sinks)

    def bias(self, q: Tensor, k: Tensor, ctx: Pass) -> Tensor:
        (q, far), (k, first) = self._halves(q), self._halves(k)
        inner: Any = super().bias(q, k, ctx)
        i, j = ctx.query_pos[:, None, :, None], ctx.pos[:, None, None]
        if self.sinks and inner is not None:
            capped: Any = self.inner.bias(far, first, self._capped(ctx))
            inner = torch.where(j < self.sinks, capped, inner)
        return torch.where(self.hidden(i, j, ctx), -torch.inf, 0.0 if inner is None else inner)

    def _halves(self, x: Tensor) -> Sequence[Tensor]:
        return x.chunk(2, -1) if self.widens else (x, x)

    def bias_form(self, q: Tensor, k: Tensor, ctx: Pass, kind: FormKind) -> BiasForm | None:
        (q, _), (k, _) = self._halves(q), self._halves(k)
        form = super().bias_form(q, k, ctx, ScoreMod)
        if kind is not ScoreMod or (form is None and super().bias(q, k, ctx) is not None):
            return None
        if isinstance(form, ScoreMod) and form.axes:  # of coordinates: it lacks the positions
            return None

        def value(h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            at = torch.where(j < self.sinks, i.clamp(max=self.last), i)
            near = form.value(h, at, j) if isinstance(form, ScoreMod) else 0.0
            return torch.where(self.hidden(i, j, ctx), -torch.inf, near)

        return ScoreMod(value)
