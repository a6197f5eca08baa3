"""What the functions of this package refuse."""

from torch import Tensor

ROUNDING = 1e-6  # a float32 softmax may exceed 1 by this much


def check_probability(name: str, p: Tensor) -> None:
    """Errors: ValueError unless every entry lies in [0, 1]."""
    if bool(((p < -ROUNDING) | (p > 1 + ROUNDING) | p.isnan()).any()):
        raise ValueError(
            f"{name} must hold probabilities in [0, 1], was given values from "
            f"{p.min().item():g} to {p.max().item():g}"
        )


def check_gates(reset: Tensor, incr: Tensor, decr: Tensor) -> None:
    """Errors: ValueError for different shapes, for no probability, for incr + decr above 1."""
    if not reset.shape == incr.shape == decr.shape:
        shapes = ", ".join(str(tuple(gate.shape)) for gate in (reset, incr, decr))
        raise ValueError(f"reset, incr and decr must have one shape, were given {shapes}")
    for name, gate in (("reset", reset), ("incr", incr), ("decr", decr)):
        check_probability(name, gate)
    if bool((incr + decr > 1 + ROUNDING).any()):
        most = (incr + decr).max().item()
        raise ValueError(f"incr + decr leave keep = 1 - incr - decr >= 0, were given {most:g}")


def check_positive(name: str, value: float) -> None:
    """Errors: ValueError unless 0 < value < infinity."""
    if not 0 < value < float("inf"):
        raise ValueError(f"{name} must be a positive number, was given {value}")


def check_width(d: int) -> None:
    """Errors: ValueError unless d is an even number of at least 2."""
    if d < 2 or d % 2:
        raise ValueError(f"d must be even and at least 2, was given {d}; try {max(2, d + d % 2)}")
