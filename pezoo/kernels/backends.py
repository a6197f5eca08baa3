"""Where the back end of a kernel is chosen: by device, type of numbers and what is installed.

| kernel    | CPU   | CUDA     | other devices (Apple's) |
|-----------|-------|----------|-------------------------|
| attention | numba | torch's  | torch's                 |
| histogram | numba | triton   | reference               |
| spectral  | numba | parallel | parallel                |

"reference" is a plain loop over time of torch's operations, of attention torch's own kernel. It
runs on every device, in any precision, and where the compiler of the one in the table is missing.
"""

from __future__ import annotations

from importlib import import_module

import torch
from torch import Tensor

from pezoo.spec import unknown

REFERENCE = "reference"
FASTEST = {  # kernel -> device -> back end
    "attention": {"cpu": "numba", "other": REFERENCE},
    "histogram": {"cpu": "numba", "cuda": "triton", "other": REFERENCE},
    "spectral": {"cpu": "numba", "other": "parallel"},
}
DEVICES = {"numba": ("cpu", "a CPU"), "triton": ("cuda", "a CUDA device")}


class BackendError(ValueError):
    """An attention backend that is unknown, not installed, or cannot run here."""


def choose(kernel: str, like: Tensor, backend: str = "auto") -> str:
    """The name of the back end that runs for tensors of this device and type of numbers.

    "auto" is the fastest that can run. Errors: ValueError for an unknown back end, and for one that
    cannot run here.

    >>> choose("histogram", torch.zeros(1, dtype=torch.bfloat16))
    'reference'
    """
    if backend == "auto":
        found = fastest(kernel, like.device.type)
        return REFERENCE if _obstacle(found, like) else found
    if backend not in (names := backends(kernel)):
        raise ValueError(unknown("back end", backend, (*names, "auto")))
    if obstacle := _obstacle(backend, like):
        raise ValueError(f"back end {backend!r} {obstacle}; take 'auto' or 'reference'")
    return backend


def fastest(kernel: str, device: str) -> str:
    """The back end made for a device such as "cpu", or "reference" where it is not installed."""
    found = FASTEST[kernel].get(device, FASTEST[kernel]["other"])
    return REFERENCE if missing(found, device) else found


def backends(kernel: str) -> list[str]:
    """The names of all back ends of a kernel.

    >>> backends("spectral")
    ['numba', 'parallel', 'reference']
    """
    return sorted({*FASTEST[kernel].values(), REFERENCE})


def missing(backend: str, device: str) -> str:
    """Why a back end cannot run on a device; empty if it can."""
    if backend not in DEVICES:
        return ""
    needed, words = DEVICES[backend]
    if device != needed:
        return f"runs on {words}, was given {device}"
    return "" if installed(backend) else f"cannot be imported: pip install {backend}"


def installed(package: str) -> bool:
    """Whether a package can be imported: a numba that does not fit the installed numpy cannot."""
    try:
        import_module(package)
    except ImportError:
        return False
    return True


def _obstacle(backend: str, like: Tensor) -> str:
    """Why a back end cannot run for tensors like this one; empty if it can."""
    if obstacle := missing(backend, like.device.type):
        return obstacle
    if backend in DEVICES and like.dtype not in (torch.float32, torch.float64):
        return f"computes in float32 or float64, was given {like.dtype}"
    return ""
