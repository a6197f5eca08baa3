"""The histogram filter over time, by any back end."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from torch import Tensor

from pezoo.kernels.backends import choose
from pezoo.kernels.histogram.reference import Copy, Gates


def histogram_scan(
    gates: Gates,
    gamma: Tensor | None,
    state: Tensor | None = None,
    eps: float = 1e-8,
    *,
    copy: Copy | None = None,
    one_sided: bool = False,
    backend: str = "auto",
) -> Tensor:
    """The histograms after every token: gates (B, T, C) -> (B, T, C, L).

    At every step: h <- sharpen(none update(h) + source at offsets 1..S). gamma (C,) sharpens; None
    never does. state (B, C, L0) is the histogram before the first token and must sum to one; None
    starts at offset 0. L = L0 + 2 T, and L0 + T one-sided; before its last step a histogram is zero
    outside the bins that it can have reached. A state of radius P has seen P tokens: step t reads
    source[..., j] for j <= P + t alone, and nothing may be in the others.

    backend: "reference" is the plain loop, "numba" is compiled for a CPU and "triton" for a CUDA
    device; "auto" is what `pezoo.kernels.backends` chooses. Only "reference" has second
    derivatives.

    >>> gates = Gates(*torch.tensor([[[[0.0]]], [[[0.7]]], [[[0.1]]]]))
    >>> histogram_scan(gates, None)
    tensor([[[[0.1000, 0.2000, 0.7000]]]])
    >>> copy = Copy(torch.tensor([[[0.5]]]), torch.tensor([[[[0.5]]]]))
    >>> histogram_scan(gates, None, copy=copy)
    tensor([[[[0.0500, 0.1000, 0.8500]]]])

    Errors: ValueError for shapes that do not fit and for a back end that does not exist or cannot
    run here.

    Source: Lee 2025, "Position as Probability", Section 5.1, Algorithm 1 and, for the copy branch,
    its step 4 and Equation 3.8'. There bin k of p_copy is bin k of the histogram; here it is offset
    k + 1, where a cursor that counts tokens stands after token k.
    """
    _check(gates, gamma, state, copy, one_sided)
    name = choose("histogram", gates.reset, backend)
    scan: Callable[..., Tensor] = import_module(f"pezoo.kernels.histogram.{name}").scan
    return scan(gates, gamma, state, eps, copy, one_sided)


def _check(
    gates: Gates, gamma: Tensor | None, state: Tensor | None, copy: Copy | None, one_sided: bool
) -> None:
    shape = gates.reset.shape
    if len(shape) != 3 or shape[1] < 1:
        raise ValueError(f"gates must be (B, T, C) with at least one token, were {tuple(shape)}")
    b, _, c = shape
    expected: list[tuple[str, Tensor | None, tuple[int, ...]]] = [
        *((name, gate, shape) for name, gate in gates._asdict().items()),
        ("gamma", gamma, (c,)),
        ("state", state, (b, c, 0 if state is None else state.shape[-1])),
    ]
    if copy is not None:
        expected += [
            ("copy.none", copy.none, shape),
            ("copy.source", copy.source, (*shape, copy.source.shape[-1])),
        ]
    for name, tensor, wanted in expected:
        if tensor is not None and tensor.shape != wanted:
            raise ValueError(f"{name} must be {tuple(wanted)}, was {tuple(tensor.shape)}")
        if tensor is not None and tensor.dtype != gates.reset.dtype:
            raise ValueError(f"{name} must be {gates.reset.dtype} as reset is, was {tensor.dtype}")
    if state is not None and not one_sided and state.shape[-1] % 2 == 0:
        raise ValueError(
            f"a state over offsets -P..P has an odd number of bins, was given {state.shape[-1]}; "
            "one over 0..P needs one_sided=True"
        )
