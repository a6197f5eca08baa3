"""Vectors whose inner products are the similarities of Section 5.2: f in e_t = sum_d h_t[d] f(d).

`features` has a fixed width d and takes any offset; `rbf` and `laplacian` are approximated, by one
frequency for each of d/2 equal shares of the kernel's spectrum. `kernel_features` is exact on a
finite support, as wide as it needs to be.

The largest error |<f(0), f(r)> / (d/2) - kappa(r)| over whole r, and its root mean square (rms)
over r in 200..4000, at bandwidth 8:

    d                   16    32    64   128   340  1024
    rbf        r <= 16  .030  .013  .005  .002  .001  .000
               r <= 64  .118  .046  .022  .010  .003  .001
               r <= 200 .399  .150  .051  .026  .010  .003
               rms      .251  .177  .122  .078  .028  .008
    laplacian  r <= 16  .195  .130  .067  .045  .015  .008
               r <= 64  .299  .220  .118  .073  .036  .014
               r <= 200 .620  .309  .211  .110  .063  .023
               rms      .251  .177  .123  .084  .041  .017

Near 0 the error falls with d; far away no width helps for good. d/2 cosines with weights of sum 1
have a long-run mean square of at least 1/d, so that 1/sqrt(d) is the rms that any such map tends
to where kappa is 0. The Laplacian is harder, as its spectrum has a heavy tail.
"""

import math

import torch
from torch import Tensor

from pezoo.functional import at_least_float32, cursor_frequencies
from pezoo.prism_math._checks import check_positive, check_width
from pezoo.prism_math.similarity import laplacian, rbf
from pezoo.spec import unknown

EXACT = {"rbf": rbf, "laplacian": laplacian}


def features(
    offsets: Tensor,
    d: int,
    similarity: str = "cosine",
    *,
    bandwidth: float = 1.0,
    base: float = 10_000.0,
) -> Tensor:
    """f with <f(i), f(j)> about (d/2) kappa(|i - j|): offsets (L,) -> (L, d) (Section 5.2).

        f(z) = [cos(w_0 z), ..., cos(w_n z), sin(w_0 z), ..., sin(w_n z)],   n = d/2 - 1

    with the frequencies of `pezoo.functional.cursor_frequencies`, so that a histogram's stream is
    h @ features(offsets, d). |f(z)|^2 = d/2 for all. Exact for "cosine" (and "geometric", the same
    grid, 0.9 pi times higher). For the others the module has the error; both have no period.
    Float offsets keep their dtype, whole numbers give float32.

    Example: tokens 1 apart at bandwidth 2 are exp(-1/8) = 0.88 alike

        >>> f = features(torch.arange(2), 64, "rbf", bandwidth=2.0)
        >>> f.shape, f[0] @ f[1] / 32
        (torch.Size([2, 64]), tensor(0.8842))

    Errors: ValueError for an odd d, an unknown similarity, a bandwidth or base not positive.
    """
    check_width(d)
    z = at_least_float32(offsets) if offsets.is_floating_point() else offsets.float()
    w = cursor_frequencies(similarity, d, base, bandwidth, offsets.device)
    angle = z[:, None] * w.to(z.dtype)
    return torch.cat([angle.cos(), angle.sin()], -1)


def kernel_features(
    similarity: str, offsets: Tensor, bandwidth: float, tolerance: float = 1e-9
) -> Tensor:
    """f with <f(i), f(j)> = kappa(|i - j|) on these offsets: (L,) -> (L, width) float64.

    For the kernels of Section 5.2 that have a bandwidth. On a ring of N offsets they are sums of
    N/2 cosines:

        kappa(r) = sum_m a_m cos(2 pi m r / N),  a_m >= 0,  f = sqrt(a_m) [cos, sin](2 pi m z / N)

    "laplacian" is exact: N is twice the span, the largest minus the smallest offset, so that no
    pair is nearer round the other way, and a convex kernel has a_m >= 0. The width is N. "rbf" is
    not convex: the ring is widened until the wrapped tail is below `tolerance`, for an error below
    3 tolerance. Frequencies of weight below tolerance / N are left out, so that the width of "rbf"
    falls with the bandwidth. Outside the span of the offsets nothing is promised.

    Example:

        >>> f = kernel_features("laplacian", torch.arange(-2, 3), bandwidth=2.0)
        >>> f.shape, (f @ f.T)[0]  # exp(-r / 2)
        (torch.Size([5, 8]), tensor([1.0000, 0.6065, 0.3679, 0.2231, 0.1353], dtype=torch.float64))

    Errors: ValueError for offsets that are not whole, another similarity ("cosine" is exact in
    `features`), a bandwidth that is not positive, a tolerance outside (0, 1).
    """
    if similarity not in EXACT:
        raise ValueError(unknown("similarity", similarity, EXACT) + "; cosine is exact in features")
    check_positive("bandwidth", bandwidth)
    if not 0 < tolerance < 1:
        raise ValueError(f"tolerance must lie between 0 and 1, was given {tolerance}")
    if offsets.numel() == 0 or bool((offsets != offsets.round()).any()):
        raise ValueError("offsets must be whole numbers, at least one, such as torch.arange(-3, 4)")
    z = offsets.long()
    ring = _ring(similarity, int(z.max() - z.min()), bandwidth, tolerance).to(z.device)
    size = ring.shape[0]
    weight = torch.fft.rfft(ring).real / size
    weight[1 : (size + 1) // 2] *= 2  # m and N - m are one cosine
    m = (weight > tolerance / size).nonzero()[:, 0]
    angle = 2 * math.pi / size * (z[:, None] * m % size).double()
    amplitude = weight[m].sqrt()
    waves = 2 * m % size != 0  # the others have no sine
    return torch.cat([angle.cos() * amplitude, (angle.sin() * amplitude)[:, waves]], -1)


def _ring(similarity: str, span: int, bandwidth: float, tolerance: float) -> Tensor:
    """(N,) the kernel between offset 0 and each of N on a ring, in float64."""
    if similarity == "laplacian":
        n = torch.arange(max(2 * span, 2), dtype=torch.float64)
        return laplacian(torch.minimum(n, n.shape[0] - n), bandwidth)
    size = span + math.ceil(bandwidth * math.sqrt(-2 * math.log(tolerance))) + 1
    n = torch.arange(size, dtype=torch.float64)
    return torch.stack([rbf(n + turn * size, bandwidth) for turn in (-2, -1, 0, 1)]).sum(0)
