"""n sharpenings in a row: the theorem of Appendix A.2.1."""

import torch
from torch import Tensor


def sharpen_repeatedly(h: Tensor, gamma: Tensor, times: int) -> Tensor:
    """p_n(i) = p_0(i)^(gamma^n) / sum_j p_0(j)^(gamma^n): (..., L), gamma (...) -> (..., L).

    What `times` calls of `pezoo.kernels.histogram.sharpen` give at eps = 0, by one exponent.

    Example: 2 to 1 becomes 2^4 to 1 by squaring twice

        >>> sharpen_repeatedly(torch.tensor([2 / 3, 1 / 3]), torch.tensor(2.0), times=2)
        tensor([0.9412, 0.0588])

    Where the theorem ends. It has no moves between the sharpenings: with them, a sharpened move is
    one move of a reweighted kernel M^gamma (Appendix A.2.1) for a cursor whose position is certain,
    and in general not otherwise. And eps > 0 puts a floor under every bin: after a sharpening none
    is below (eps / (1 + eps))^gamma of the largest, so that an empty bin comes back to life. At
    gamma = 1 each call mixes h with the uniform distribution, in the share L eps / (1 + L eps).

    Errors: ValueError for times < 0 or gamma not above 0.
    """
    if times < 0:
        raise ValueError(f"times must be at least 0, was given {times}")
    if bool((gamma <= 0).any()):
        raise ValueError(f"gamma must be above 0, was given {gamma.min().item():g}")
    return torch.softmax(gamma[..., None] ** times * torch.log(h), -1)
