"""Which reset a coordinate is measured from: the dynamic origin of Section 5.0.1."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from pezoo.prism_math._checks import check_probability

NEVER = -1  # tau(t) before the first reset


def last_reset(reset: Tensor) -> Tensor:
    """tau(t) = max{s <= t : reset_s}, -1 before the first reset: 0/1 (..., T) -> (..., T) int64.

    Example:

        >>> last_reset(torch.tensor([0, 1, 0, 0, 1]))
        tensor([-1,  1,  1,  1,  4])

    Errors: ValueError for anything but 0 and 1; probabilities go to `last_reset_distribution`.
    """
    fired = _indicator(reset)
    index = torch.arange(reset.shape[-1], device=reset.device)
    return torch.where(fired, index, NEVER).cummax(-1).values


def last_reset_distribution(reset: Tensor) -> Tensor:
    """Pr(tau(t) = s) for reset probabilities (..., T) -> (..., T, T + 1), column s + 1.

        Pr(tau(t) = s) = p_s prod_{u=s+1}^{t} (1 - p_u),   column 0: no reset up to t

    Rows sum to 1. Equation 4 is the mixture of Equation 3 with these weights, over the tokens from
    the last reset on.

    Example:

        >>> last_reset_distribution(torch.tensor([0.5, 0.2]))
        tensor([[0.5000, 0.5000, 0.0000],
                [0.4000, 0.4000, 0.2000]])

    Errors: ValueError for values outside [0, 1].
    """
    check_probability("reset", reset)
    none_since = _none_between(pad(reset, (1, 0)))[..., 1:]  # (..., T + 1, T): row s + 1, column t
    fired_at = pad(reset, (1, 0), value=1.0)  # column 0 stands for the start
    return (fired_at[..., :, None] * none_since).mT


def same_origin(reset: Tensor) -> Tensor:
    """Pr(tau(k) = tau(l)) for reset probabilities or 0/1 (..., T) -> (..., T, T).

    Equation 2 is meaningful between k and l only if both coordinates have one origin: if no reset
    fires in k+1..l, with probability prod_{u=k+1}^{l} (1 - p_u) for k <= l.

    Example:

        >>> same_origin(torch.tensor([0.0, 0.5, 1.0]))
        tensor([[1.0000, 0.5000, 0.0000],
                [0.5000, 1.0000, 0.0000],
                [0.0000, 0.0000, 1.0000]])

    Errors: ValueError for values outside [0, 1].
    """
    reset = reset if reset.is_floating_point() else reset.float()
    check_probability("reset", reset)
    upper = _none_between(reset)
    return upper + upper.triu(1).mT


def relative_coordinate(increments: Tensor, reset: Tensor) -> Tensor:
    """r^_t = r_t - r_tau(t), r_0 = 0: increments (..., T-1) and resets 0/1 (..., T) -> (..., T).

    Before the first reset the origin is r_0. Section 5.0.1 resets without moving, so that r^ is 0
    at the reset itself. Algorithm 1 moves in the same step: after token t its cursor stands at
    r^_t + increment_t, and before it (h_t) at r^_t only if token t does not reset.

    Example: three steps forward, and a reset at token 2

        >>> relative_coordinate(torch.ones(3), torch.tensor([0, 0, 1, 0]))
        tensor([0., 1., 0., 1.])

    Errors: ValueError for resets other than 0 and 1, and for lengths that do not fit.
    """
    want = (*reset.shape[:-1], reset.shape[-1] - 1)
    if increments.shape != want:
        raise ValueError(
            f"resets {tuple(reset.shape)} need one increment less, {want}, "
            f"was given {tuple(increments.shape)}"
        )
    r = pad(increments.cumsum(-1), (1, 0))
    return r - r.gather(-1, last_reset(reset).clamp(min=0))


def _indicator(reset: Tensor) -> Tensor:
    fired = reset != 0
    if bool((fired & (reset != 1)).any()):
        raise ValueError(
            f"resets must be 0 or 1, was given values from {reset.min().item():g} to "
            f"{reset.max().item():g}; probabilities go to last_reset_distribution or same_origin"
        )
    return fired


def _none_between(p: Tensor) -> Tensor:
    """prod_{u=k+1}^{l} (1 - p_u) for p (..., T) -> (..., T, T), k the row; 0 for l < k."""
    size = p.shape[-1]
    keep = (1 - p)[..., None, :].expand(*p.shape, size)
    after = torch.ones(size, size, dtype=torch.bool, device=p.device).triu(1)
    return torch.where(after, keep, 1.0).cumprod(-1).triu()
