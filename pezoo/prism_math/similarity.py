"""From distance to similarity: the kernels of Section 5.2.

Equation 7 asks for a kernel that falls from kappa(0) = 1 strictly and stays in [0, 1]. `rbf` and
`laplacian` do. `cosine`, the one that PRISM uses, does neither: for d = 340 and base 10000 it first
rises from r = 24 (.58702) to 25 (.58717), and over r up to 100000 it goes down to -.178.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from pezoo.prism_math._checks import check_positive, check_width


def rbf(r: Tensor, bandwidth: float) -> Tensor:
    """exp(-r^2 / (2 bandwidth^2)): distances (...) -> (...) (Section 5.2, Gaussian).

    1 at 0, strictly falling in |r|. Whole numbers r are taken as float32.

        >>> rbf(torch.tensor([0.0, 8.0, 16.0]), bandwidth=8.0)
        tensor([1.0000, 0.6065, 0.1353])

    Errors: ValueError for a bandwidth that is not positive.
    """
    check_positive("bandwidth", bandwidth)
    return torch.exp(-(_real(r) / bandwidth).square() / 2)


def laplacian(r: Tensor, bandwidth: float) -> Tensor:
    """exp(-|r| / bandwidth): distances (...) -> (...) (Section 5.2, Laplacian).

    1 at 0, strictly falling in |r|. Whole numbers r are taken as float32.

        >>> laplacian(torch.tensor([0.0, 8.0, 16.0]), bandwidth=8.0)
        tensor([1.0000, 0.3679, 0.1353])

    Errors: ValueError for a bandwidth that is not positive.
    """
    check_positive("bandwidth", bandwidth)
    return torch.exp(-_real(r).abs() / bandwidth)


def cosine(r: Tensor, d: int, base: float = 10_000.0) -> Tensor:
    """(2/d) sum_m cos(r base^(-2m/d)), m < d/2: distances (...) -> (...) (Section 5.2).

    1 at 0, within [-1, 1], not monotone. It is the inner product of two sinusoids of width d,
    divided by d/2. For wide d it tends to (Ci(r) - Ci(r/base)) / ln(base), Ci the cosine integral.

        >>> cosine(torch.tensor([0.0, 3.0, 4.0]), d=4, base=100.0)  # rises from 3 to 4
        tensor([ 1.0000, -0.0173,  0.1337])

    Deviation: the paper prints the frequencies as 1 / (10000 2^(m/d)), all at most 1/10000, which
    would put the similarity of tokens 100 apart at .99996 (d = 340). It says that they are the
    Transformer's, and these are taken.

    Errors: ValueError for an odd d or a base that is not positive.
    """
    check_width(d)
    check_positive("base", base)
    r = _real(r)
    m = torch.arange(d // 2, dtype=r.dtype, device=r.device)
    return torch.cos(r[..., None] * base ** (-2 * m / d)).mean(-1)


def kernel_matrix(kernel: Callable[[Tensor], Tensor], offsets: Tensor) -> Tensor:
    """K[i, j] = kernel(|i - j|) (Equation 7): offsets (L,) -> (L, L).

    >>> from functools import partial
    >>> kernel_matrix(partial(rbf, bandwidth=1.0), torch.tensor([0.0, 1.0]))
    tensor([[1.0000, 0.6065],
            [0.6065, 1.0000]])
    """
    return kernel((offsets[:, None] - offsets[None, :]).abs())


def expected_similarity(h_q: Tensor, h_k: Tensor, kernel: Tensor) -> Tensor:
    """E[kappa(|i - j|)] = h_q K h_k', i from h_q and j from h_k: (..., L) and (L, L) -> (...).

    i and j are independent: this is sum_d Pr(D = d) kappa(|d|) with Equation 6. It is what the
    inner product of two position streams is: K = F F' gives <h_q F, h_k F>.

        >>> h = torch.tensor([0.5, 0.5])
        >>> expected_similarity(h, h, torch.tensor([[1.0, 0.6], [0.6, 1.0]]))
        tensor(0.8000)

    Errors: ValueError for a kernel that does not fit the histograms.
    """
    if kernel.shape != (h_q.shape[-1], h_k.shape[-1]):
        raise ValueError(
            f"histograms of {h_q.shape[-1]} and {h_k.shape[-1]} bins need a kernel "
            f"({h_q.shape[-1]}, {h_k.shape[-1]}), was given {tuple(kernel.shape)}"
        )
    return ((h_q @ kernel) * h_k).sum(-1)


def _real(r: Tensor) -> Tensor:
    return r if r.is_floating_point() else r.float()
