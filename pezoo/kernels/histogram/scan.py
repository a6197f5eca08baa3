"""The histogram filter over time, by any back end."""

from __future__ import annotations

from importlib import import_module

from torch import Tensor

from pezoo.compiling import Kernel
from pezoo.kernels.backends import REFERENCE, choose
from pezoo.kernels.histogram.reference import Copy, scan


def histogram_scan(
    reset: Tensor,
    moves: Tensor,
    gamma: Tensor | None,
    state: Tensor | None = None,
    eps: float = 1e-8,
    *,
    copy: Copy | None = None,
    one_sided: bool = False,
    backend: str = "auto",
) -> Tensor:
    """Return the histograms after every token: reset (B, T, C), moves (B, T, C, J) -> (B, T, C, L).

        h <- sharpen(none update(h, reset, moves) + source at offsets 1..S)

    moves are the probabilities of the steps +1, -1, ..., +R, -R and 0, J = 2 R + 1 of them, and sum
    to one. gamma (C,), above 0, sharpens; None does not. state (B, C, L0) is the histogram before
    the first token and must sum to one; None starts at offset 0. L = L0 + 2 R T, or L0 + T
    one-sided, where J is 3; bins that cannot have been reached are zero. A state of radius R P has
    seen P tokens: step t reads source[..., j] for j <= P + t, and the others must be 0.

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
    check_inputs(reset, moves, gamma, state, eps, copy, one_sided)
    name = choose("histogram", reset, backend)
    if name == REFERENCE:
        return scan(reset, moves, gamma, state, eps, copy, one_sided)
    fused: type[Kernel] = import_module(f"pezoo.kernels.histogram.{name}").Scan
    h: Tensor = fused.apply(*shares(reset, moves, gamma, state, copy), eps, one_sided)
    return h


def check_inputs(
    reset: Tensor,
    moves: Tensor,
    gamma: Tensor | None,
    state: Tensor | None,
    eps: float,
    copy: Copy | None,
    one_sided: bool,
) -> None:
    """Raise ValueError for shapes and dtypes that do not match."""
    if reset.dim() != 3 or reset.shape[1] < 1:
        raise ValueError(
            f"reset must be (B, T, C) with at least one token, got {tuple(reset.shape)}"
        )
    b, _, c = reset.shape
    j = 3 if one_sided or moves.dim() != 4 else moves.shape[-1]
    expected: list[tuple[str, Tensor | None, tuple[int, ...]]] = [
        ("moves", moves, (*reset.shape, j)),
        ("gamma", gamma, (c,)),
        ("state", state, (b, c, 0 if state is None else state.shape[-1])),
    ]
    if copy is not None:
        expected += [
            ("copy.none", copy.none, tuple(reset.shape)),
            ("copy.source", copy.source, (*reset.shape, copy.source.shape[-1])),
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
    if state is not None and not one_sided and state.shape[-1] % (j - 1) != 1:
        raise ValueError(
            f"a state over offsets -P..P has 1, {j}, ... bins, got {state.shape[-1]}; "
            "one over 0..P needs one_sided=True"
        )


def shares(
    reset: Tensor, moves: Tensor, gamma: Tensor | None, state: Tensor | None, copy: Copy | None
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the shares of mass that the fused back ends take instead of gates.

    They are start (B, C, L0), kept and fresh (B, T, C, J), source (B, T, C, S) and gamma (B, C).
    kept and fresh are the shares of mass that make each step from their bin and from offset 0.
    S is 0 without a copy branch, and gamma is empty without sharpening.
    """
    b, t, c = reset.shape
    moves = moves.clamp(min=0)  # as `update` does
    stay, jump, source = 1 - reset, reset, reset.new_ones(b, t, c, 0)
    if copy is not None:
        stay, jump, source = stay * copy.none, jump * copy.none, copy.source
    powers = reset.new_ones(0) if gamma is None else gamma.expand(b, c)
    start = reset.new_ones(b, c, 1) if state is None else state
    return start, moves * stay[..., None], moves * jump[..., None], source, powers
