"""The histogram filter over time, by any back end, and as a stream of sums of its bins."""

import math
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from pezoo.compiling import Kernel
from pezoo.functional import full_precision, spread
from pezoo.kernels.backends import REFERENCE, choose
from pezoo.kernels.histogram.reference import Copy, grown, scan, tokens_seen

SMALL = 1 << 24  # numbers in all histograms, up to which they are held at once
MOST_MOVES = 15  # whose steps numba_active takes


def histogram_scan(
    reset: Tensor,
    moves: Tensor,
    gamma: Tensor | None,
    state: Tensor | None = None,
    eps: float = 1e-8,
    *,
    copy: Copy | None = None,
    every: int = 1,
    backend: str = "auto",
) -> Tensor:
    """Return the histograms after every token: reset (B, T, C), moves (B, T, C, J) -> (B, T, C, L).

        h <- sharpen(none update(h, reset, moves) + source at offsets 1..S)

    moves are the probabilities of the steps +1, -1, ..., +R, -R and 0, J = 2 R + 1 of them, and sum
    to one. gamma (C,), above 0, sharpens; None does not. state (B, C, L0) is the histogram before
    the first token and must sum to one; None starts at offset 0. L = L0 + 2 R T;
    bins that cannot have been reached are zero. copy is that of the n cursors that copy: numbers 0,
    every, 2 every, ... A state of radius R P has seen P tokens: step t reads source[..., j] for
    j <= P + t, and the others must be 0.

    backend: "reference" is the plain loop, "numba" is compiled for a CPU and "triton" for a CUDA
    device; "auto" is what `pezoo.kernels.backends` chooses. Only "reference" has second
    derivatives.

    >>> reset, moves = torch.tensor([[[0.0]]]), torch.tensor([[[[0.7, 0.1, 0.2]]]])
    >>> histogram_scan(reset, moves, None)
    tensor([[[[0.1000, 0.2000, 0.7000]]]])
    >>> copy = Copy(torch.tensor([[[0.5]]]), torch.tensor([[[[0.5]]]]))
    >>> histogram_scan(reset, moves, None, copy=copy)
    tensor([[[[0.0500, 0.1000, 0.8500]]]])

    Errors: ValueError for shapes that do not match and for a back end that is unknown or cannot
    run here.

    Source: Lee 2025, "Position as Probability", Section 5.1, Algorithm 1 and, for the copy branch,
    its step 4 and Equation 3.8'. There bin k of p_copy is bin k of the histogram; here it is offset
    k + 1, where a cursor that counts tokens stands after token k. Steps of more than one are ours.
    """
    check_inputs(reset, moves, gamma, state, eps, copy, every)
    name = choose("histogram", reset, backend)
    if copy is not None and name != "numba":  # which skips cursors that do not copy
        c = reset.shape[2]
        copy = Copy(spread(copy.none, every, c, 1.0), spread(copy.source, every, c, 0.0))
        every = 1
    if name == REFERENCE:
        return scan(reset, moves, gamma, state, eps, copy)
    fused: type[Kernel] = import_module(f"pezoo.kernels.histogram.{name}").Scan
    h: Tensor = fused.apply(*shares(reset, moves, gamma, state, copy, every), eps, every)
    return h


def check_inputs(
    reset: Tensor,
    moves: Tensor,
    gamma: Tensor | None,
    state: Tensor | None,
    eps: float,
    copy: Copy | None,
    every: int,
) -> None:
    """Raise ValueError for shapes and dtypes that do not match."""
    if reset.dim() != 3 or reset.shape[1] < 1:
        raise ValueError(
            f"reset must be (B, T, C) with at least one token, got {tuple(reset.shape)}"
        )
    b, _, c = reset.shape
    j = moves.shape[-1] if moves.dim() == 4 else 3
    expected: list[tuple[str, Tensor | None, tuple[int, ...]]] = [
        ("moves", moves, (*reset.shape, j)),
        ("gamma", gamma, (c,)),
        ("state", state, (b, c, 0 if state is None else state.shape[-1])),
    ]
    if copy is not None:
        n = min(max(copy.none.shape[-1], *copy.source.shape[2:3]), -(-c // every))
        expected += [
            ("copy.none", copy.none, (*reset.shape[:2], n)),
            ("copy.source", copy.source, (*reset.shape[:2], n, copy.source.shape[-1])),
        ]
    for name, tensor, wanted in expected:
        if tensor is not None and tensor.shape != wanted:
            raise ValueError(f"{name} must be {tuple(wanted)}, got {tuple(tensor.shape)}")
        if tensor is not None and tensor.dtype != reset.dtype:
            raise ValueError(f"{name} must be {reset.dtype} as reset is, got {tensor.dtype}")
    if gamma is not None and eps <= 0:
        raise ValueError(f"eps must be above 0, got {eps}: sharpening takes logarithms")
    if j < 3 or j % 2 == 0:
        raise ValueError(f"moves must be the probabilities of 3, 5, ... steps, got {j}")
    if state is not None and state.shape[-1] % (j - 1) != 1:
        raise ValueError(f"a state over offsets -P..P has 1, {j}, ... bins, got {state.shape[-1]}")


def shares(
    reset: Tensor,
    moves: Tensor,
    gamma: Tensor | None,
    state: Tensor | None,
    copy: Copy | None,
    every: int = 1,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the shares of mass that the fused back ends take instead of gates.

    They are start (B, C, L0), kept and fresh (B, T, C, J), source (B, T, n, S) and gamma (B, C).
    kept and fresh are the shares of mass that make each step from their bin and from offset 0.
    S is 0 without a copy branch, and gamma is empty without sharpening.
    """
    b, t, c = reset.shape
    moves = moves.clamp(min=0)  # as `update` does
    stay, jump, source = 1 - reset, reset, reset.new_ones(b, t, c, 0)
    if copy is not None:
        none = spread(copy.none, every, c, 1.0)
        stay, jump, source = stay * none, jump * none, copy.source
    powers = reset.new_ones(0) if gamma is None else gamma.expand(b, c)
    start = reset.new_ones(b, c, 1) if state is None else state
    return start, moves * stay[..., None], moves * jump[..., None], source, powers


def histogram_stream(
    reset: Tensor,
    moves: Tensor,
    gamma: Tensor | None,
    table: Tensor,
    state: Tensor | None = None,
    eps: float = 1e-8,
    *,
    copy: Copy | None = None,
    every: int = 1,
    chunk: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Return `histogram_scan` times table (L, d), e (B, T, C, d), and the last histogram (B, C, L).

    e_t = sum_i h_t[i] table[i]. The rows of the table are the offsets of the last histogram, -P..P.
    The other arguments are those of `histogram_scan`.

    Histograms are computed `chunk` steps at a time. Only the state before each chunk is kept, and
    backward computes the chunk's histograms again, for the cost of one more forward pass. By
    default all steps form one chunk if that is small; otherwise a chunk has about sqrt(T) steps.

    Without a `chunk`, numba computes only the bins that sharpening has not emptied (`numba_active`)
    where no gradient needs the others: outside of training, and when it computes a chunk for the
    first time. This changes streams by some 10 eps.

    >>> reset, moves = torch.tensor([[[0.0]]]), torch.tensor([[[[0.7, 0.1, 0.2]]]])
    >>> e, last = histogram_stream(reset, moves, None, torch.tensor([[-1.0], [0.0], [1.0]]))
    >>> e
    tensor([[[[0.6000]]]])
    >>> last
    tensor([[[0.1000, 0.2000, 0.7000]]])

    Errors: ValueError for a table of the wrong length or a chunk below 1, and those of
    `histogram_scan`.

    Source: Lee 2025, "Position as Probability", Algorithm 2. Keeping one state per chunk is
    checkpointing (Chen et al. 2016, "Training deep nets with sublinear memory cost").
    """
    check_inputs(reset, moves, gamma, state, eps, copy, every)
    b, t, c = reset.shape
    bins = grown(1 if state is None else state.shape[-1], t, moves.shape[-1])
    if table.dim() != 2 or table.shape[0] != bins:
        raise ValueError(f"table must be ({bins}, d), got {tuple(table.shape)}")
    if chunk is not None and chunk < 1:
        raise ValueError(f"chunk must be at least 1, got {chunk}")
    run = partial(_run, eps=eps, every=every, whole=chunk is not None)
    if chunk is None:
        few = not torch.is_grad_enabled() and _skips(reset, moves, gamma)
        chunk = t if few or b * t * c * bins <= SMALL else math.ceil(math.sqrt(t))
    with full_precision(reset.device.type):
        table = table.to(reset.dtype)
        if chunk >= t:
            return run(reset, moves, gamma, table, state, *(copy or ()))
        state = reset.new_ones(b, c, 1) if state is None else state
        return _in_parts(run, chunk, (reset, moves, *(copy or ())), gamma, table, state)


def _skips(reset: Tensor, moves: Tensor, gamma: Tensor | None) -> bool:
    """Return True if `numba_active` can compute this."""
    if gamma is None or moves.shape[-1] > MOST_MOVES:
        return False
    return choose("histogram", reset) == "numba"


def _run(
    reset: Tensor,
    moves: Tensor,
    gamma: Tensor | None,
    table: Tensor,
    state: Tensor | None,
    *copied: Tensor,
    eps: float,
    every: int,
    whole: bool,
) -> tuple[Tensor, Tensor]:
    """Return e and the last histogram; `copied` are those of a Copy.

    Without gradients only some bins of histograms are computed, unless `whole`.
    """
    copy = Copy(*copied) if copied else None
    found: tuple[Tensor, Tensor]
    if not (torch.is_grad_enabled() or whole) and _skips(reset, moves, gamma):
        few: type[Kernel] = import_module("pezoo.kernels.histogram.numba").Active
        given = shares(reset, moves, gamma, state, copy, every)
        found = few.apply(*given, table, eps, every)
        return found
    # Without gradients, skipping bins out of reach pays where a state reaches less than half.
    skips = torch.is_grad_enabled() or state is None or 2 * state.shape[-1] < table.shape[0]
    if choose("histogram", reset) == "numba" and skips and not table.requires_grad:
        fused: type[Kernel] = import_module("pezoo.kernels.histogram.numba").Stream
        given = shares(reset, moves, gamma, state, copy, every)
        found = fused.apply(*given, table, eps, every)
        return found
    h = histogram_scan(reset, moves, gamma, state, eps, copy=copy, every=every)
    return h @ table, h[:, -1].clone()  # a view would keep all histograms


class _Part(Kernel):
    """A part of a text: forward without gradients, and again with them in the backward pass."""

    @staticmethod
    def forward(ctx: Any, run: Any, *given: Any) -> Any:
        ctx.run = run
        ctx.save_for_backward(*given)
        return run(*given)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        needs = ctx.needs_input_grad[1:]
        given = [x.detach() for x in ctx.saved_tensors]
        wanted = [x.requires_grad_() for x, need in zip(given, needs, strict=True) if need]
        with torch.enable_grad(), full_precision(grads[0].device.type):
            found = iter(torch.autograd.grad(ctx.run(*given), wanted, grads))
        return None, *(next(found) if need else None for need in needs)


def _in_parts(
    run: partial[tuple[Tensor, Tensor]],
    chunk: int,
    gates: Sequence[Tensor],
    gamma: Tensor | None,
    table: Tensor,
    state: Tensor,
) -> tuple[Tensor, Tensor]:
    """Run `chunk` tokens at a time; backward runs each part again. Gates are (B, T, C, ...)."""
    rows = []
    few = not run.keywords["whole"] and _skips(gates[0], gates[1], gamma)
    again = partial(checkpoint, use_reentrant=False, preserve_rng_state=False)
    part = _Part.apply if few else again
    for reset, moves, *copied in zip(*(torch.split(x, chunk, 1) for x in gates), strict=True):
        _, t, _, j = moves.shape
        bins = grown(state.shape[-1], t, j)
        skip = (table.shape[0] - bins) // 2
        own = table[skip : skip + bins]
        if copied:
            copied[1] = copied[1][..., : tokens_seen(bins, j)]
        e, state = part(run, reset, moves, gamma, own, state, *copied)
        rows.append(e)
    return torch.cat(rows, 1), state
