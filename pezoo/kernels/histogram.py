"""The histogram filter of PRISM: one move, sharpening, and the scan over time.

A histogram holds Pr(offset = d) for d in -P..P, the centre bin is offset 0. The support grows by
one bin on each side with every move, so no mass ever meets an edge: Algorithm 1's clamp is never
needed. One-sided histograms hold d in 0..P, the first bin is offset 0, and the support grows to the
right. (Lee 2025, "Position as Probability", Section 5.1 and Algorithm 1.)
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from pezoo.kernels.installed import installed
from pezoo.spec import unknown

BACKENDS = ("numba", "reference", "torch", "triton")


class Gates(NamedTuple):
    """Probabilities (B, T, C) of one cursor's move; keep = 1 - incr - decr.

    The reset comes before the move: a cursor that resets goes to offset 0 and then moves.
    """

    reset: Tensor
    incr: Tensor
    decr: Tensor


class Copy(NamedTuple):
    """The copy branch: a cursor takes the position of an earlier token instead of moving.

    none (B, T, C) is Pr(no copy) and source (B, T, C, S) is Pr(take the position of token j) for
    j = 0..S-1 from the start of the sequence; none + sum source = 1. Token j stands at offset
    j + 1, where a cursor stands that only counts.
    """

    none: Tensor
    source: Tensor


def update(h: Tensor, reset: Tensor, incr: Tensor, decr: Tensor, one_sided: bool = False) -> Tensor:
    """One move of every cursor: h (..., L) and gates (...) -> (..., L + 2), one-sided (..., L + 1).

    h'[d] = (1-r) (keep h[d] + incr h[d-1] + decr h[d+1]) + r (sum h) step[d], where step has
    decr, keep, incr at -1, 0, +1 (Algorithm 1, steps 2 and 3). One-sided, what would go to -1 stays
    at 0. Section 5.1's Step 1 says so after a reset; its Step 2 as printed would lose that mass,
    and its matrix would not be row-stochastic.

    >>> h = torch.tensor([1.0])
    >>> update(h, *torch.tensor([0.0, 0.7, 0.1]))
    tensor([0.1000, 0.2000, 0.7000])
    >>> update(h, *torch.tensor([0.0, 0.7, 0.1]), one_sided=True)
    tensor([0.3000, 0.7000])
    """
    reset, incr, decr = reset[..., None], incr[..., None], decr[..., None]
    keep, stay = _keep(incr, decr), 1 - reset
    wide = pad(h, (2, 2))
    moved = wide[..., 1:-1] * (stay * keep)
    moved = moved + wide[..., :-2] * (stay * incr) + wide[..., 2:] * (stay * decr)
    centre = 1 if one_sided else moved.shape[-1] // 2
    step = torch.cat([decr, keep, incr], -1) * (h.sum(-1, keepdim=True) * reset)
    moved[..., centre - 1 : centre + 2] += step
    if one_sided:
        moved = torch.cat([moved[..., :2].sum(-1, keepdim=True), moved[..., 2:]], -1)
    return moved


def _keep(incr: Tensor, decr: Tensor) -> Tensor:
    """1 - incr - decr; rounding may take it below zero, and sharpening has no log of that."""
    return (1 - incr - decr).clamp(min=0)


def sharpen(h: Tensor, gamma: Tensor, eps: float) -> Tensor:
    """(h + eps)^gamma, normalised over the last axis; gamma (...) broadcasts (Section 5.1, step 3).

    Computed as softmax(gamma log(h + eps)), which is the same and cannot overflow.
    """
    return torch.softmax(gamma[..., None] * torch.log(h + eps), -1)


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

    backend: "reference" is the plain loop; "torch" the same with a handwritten backward pass;
    "numba" is compiled, for a CPU, and "triton" for a GPU, where these are installed. "auto" is
    what `chosen` says. Only "reference" has second derivatives.

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
    name = chosen(backend, gates.reset, one_sided)
    if name == "reference":
        return scan_reference(gates, gamma, state, eps, copy, one_sided)
    scan: Callable[..., Tensor] = import_module(f"pezoo.kernels.histogram_{name}").scan
    return scan(gates, gamma, state, eps, copy, one_sided)


def scan_reference(
    gates: Gates,
    gamma: Tensor | None,
    state: Tensor | None = None,
    eps: float = 1e-8,
    copy: Copy | None = None,
    one_sided: bool = False,
) -> Tensor:
    """`histogram_scan` as a plain loop over time: the oracle."""
    b, t, c = gates.reset.shape
    h = gates.reset.new_ones(b, c, 1) if state is None else state
    seen = h.shape[-1] - 1 if one_sided else h.shape[-1] // 2
    rows = []
    for step in range(t):
        reset, incr, decr = (gate[:, step] for gate in gates)
        h = update(h, reset, incr, decr, one_sided)
        if copy is not None:
            h = h * copy.none[:, step, :, None]
            source = copy.source[:, step, :, : seen + step + 1]
            centre = 0 if one_sided else h.shape[-1] // 2
            h = h + pad(source, (centre + 1, h.shape[-1] - centre - 1 - source.shape[-1]))
        h = h if gamma is None else sharpen(h, gamma, eps)
        margin = t - 1 - step
        rows.append(pad(h, (0 if one_sided else margin, margin)))
    return torch.stack(rows, 1)


def chosen(backend: str, tensor: Tensor, one_sided: bool = False) -> str:
    """The back end that `histogram_scan` runs for gates of this device and dtype.

    "auto" is triton on a CUDA device and numba on a CPU, for float32 and float64 and where they can
    be imported; else it is torch. All of them have both supports. Errors: ValueError for an unknown
    name, and for a back end that cannot run that device or dtype.
    """
    if backend == "auto":
        fused = "triton" if tensor.is_cuda else "numba"
        return "torch" if _obstacle(fused, tensor) else fused
    if backend not in BACKENDS:
        raise ValueError(unknown("back end", backend, (*BACKENDS, "auto")))
    if obstacle := _obstacle(backend, tensor):
        raise ValueError(f"back end {backend!r} {obstacle}; take 'auto', 'torch' or 'reference'")
    return backend


def _obstacle(backend: str, tensor: Tensor) -> str:
    """Why that back end cannot run; empty if it can."""
    if backend in ("reference", "torch"):
        return ""
    device = "cuda" if backend == "triton" else "cpu"
    if not installed(backend):
        return f"cannot be imported: pip install {backend}"
    if tensor.device.type != device:
        return f"runs on {device}, was given {tensor.device}"
    if tensor.dtype not in (torch.float32, torch.float64):
        return f"computes in float32 or float64, was given {tensor.dtype}"
    return ""


def backends() -> list[str]:
    """The back ends that can run on this machine."""
    return [
        name
        for name in BACKENDS
        if name in ("reference", "torch")
        or (installed(name) and (name != "triton" or torch.cuda.is_available()))
    ]


def cost(b: int, t: int, c: int, gamma: bool = True, itemsize: int = 4) -> tuple[int, int]:
    """(flops, bytes) of one forward and backward pass from a fresh state, fused.

    A histogram has 2t + 1 live bins after t tokens, T (T + 2) over all steps. Per live bin, with a
    logarithm or an exponential as one flop: forward 5 for the move; backward 1 for the mass, 1 to
    add the carried gradient, 6 for the gradients of the moves and 6 for the old bin's: 19. With
    sharpening 42: forward eps, log, maximum, difference, gamma, exp, sum and quotient; backward 5
    for the move again, eps and log, 2 for the mean, 2 for (g - mean) h, 2 for gamma's gradient, 2
    for gamma / (h + eps). Bytes are the least that must move through memory: the output (2T + 1
    bins, zeros too) is written once and read once and its gradient read once; three gates are read
    twice and their gradients written once.

    >>> cost(64, 22, 32)
    (45416448, 25952256)
    """
    rows = b * c
    flops = rows * t * (t + 2) * (42 if gamma else 19)
    return flops, rows * t * itemsize * (3 * (2 * t + 1) + 9)


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
