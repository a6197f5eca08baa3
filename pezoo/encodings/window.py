"""A sliding window, or chunks, around another encoding."""

from collections.abc import Callable
from typing import Unpack

import torch
from torch import Tensor

from pezoo.base import BiasForm, Context, Encoding, FormKind, Pass, ScoreMod, Shape, Sizes
from pezoo.registry import register
from pezoo.wrapper import Wrapper


@register("window")
class Window(Wrapper):
    """Hide keys that are far from the query, around another encoding.

    Formula: b_ij = -inf where i - j >= size, or, with `chunk`, where i and j differ in floor(i /
    chunk); elsewhere the inner bias.

    Example: size = 2: each query sees itself and the token before. chunk = 2: token 2 sees itself,
    token 3 sees 2 and 3.

    Shapes: -> (B|1, H|1, T, S).
    Options: size, in tokens, at least 1; chunk, in place of size; 0 is none.
    Errors: ValueError for a size below 1 or a chunk below 0, and around an encoding that replaces
    the positions that it counts.

    Paper: Beltagy et al. 2020, "Longformer": sliding windows. Cohere 2 has them in `layers`, and
    Llama 4 chunks. It is for decoders: later keys are only hidden by chunks.
    """

    summary = "another encoding that sees near keys only"
    paper = "Beltagy et al. 2020"
    reads = "distance"
    wraps = "rope"
    causal_only = True

    def __init__(
        self,
        shape: Shape | None = None,
        make_inner: Callable[[Shape], Encoding] | None = None,
        *,
        size: int = 4096,
        chunk: int = 0,
        **sizes: Unpack[Sizes],
    ) -> None:
        super().__init__(shape, make_inner, **sizes)
        if size < 1 or chunk < 0:
            raise ValueError(f"size must be at least 1 and chunk 0, got {size=} and {chunk=}")
        self.size, self.chunk = size, chunk
        self.heads_with_positions, self.order_blind = None, False
        if self.inner.rope_within:
            self.rope_within = min(self.inner.rope_within, chunk or size)
        if chunk:
            self.relative = self.reads_distance = self.random_distances = False

    def prepare(self, ctx: Context) -> Pass:
        before, after = Pass.of(ctx), super().prepare(ctx)
        if after.true_pos is not before.true_pos or after.distances is not before.distances:
            raise ValueError(
                f"{self.name} counts positions, which {self.inner.name} replaces: put "
                f"{self.name} inside {self.inner.name}"
            )
        return after

    def hidden(self, i: Tensor, j: Tensor, ctx: Pass) -> Tensor:
        """Return True where query position i does not see key position j."""
        return i // self.chunk != j // self.chunk if self.chunk else ctx.distance(i, j) >= self.size

    def bias(self, q: Tensor, k: Tensor, ctx: Pass) -> Tensor:
        inner = super().bias(q, k, ctx)
        hidden = self.hidden(ctx.query_pos[:, None, :, None], ctx.pos[:, None, None], ctx)
        return torch.where(hidden, -torch.inf, 0.0 if inner is None else inner)

    def bias_form(self, q: Tensor, k: Tensor, ctx: Pass, kind: FormKind) -> BiasForm | None:
        form = super().bias_form(q, k, ctx, ScoreMod)
        if kind is not ScoreMod or (form is None and super().bias(q, k, ctx) is not None):
            return None

        def value(h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            near = form.value(h, i, j) if isinstance(form, ScoreMod) else 0.0
            return torch.where(self.hidden(i, j, ctx), -torch.inf, near)

        return ScoreMod(value)
