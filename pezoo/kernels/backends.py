"""Choose the back end of a kernel, by device, dtype and installed packages.

| kernel    | CPU   | CUDA     | other devices (Apple's) |
|-----------|-------|----------|-------------------------|
| histogram | numba | triton   | reference               |
| spectral  | numba | parallel | parallel                |

"reference" is a plain loop over time in torch. It runs on every device, in any precision, and if
the package of the one in the table is not installed.
"""

from importlib import import_module

import torch
from torch import Tensor

from pezoo.spec import unknown

REFERENCE = "reference"
FASTEST = {  # kernel -> device -> back end
    "histogram": {"cpu": "numba", "cuda": "triton", "other": REFERENCE},
    "spectral": {"cpu": "numba", "other": "parallel"},
}
DEVICES = {"numba": ("cpu", "a CPU"), "triton": ("cuda", "a CUDA device")}


class BackendError(ValueError):
    """Raised for an attention backend that is unknown, not installed, or cannot run here."""


def choose(kernel: str, like: Tensor, backend: str = "auto") -> str:
    """Return the back end for tensors of this device and dtype.

    "auto" is the fastest that can run. Errors: ValueError for a back end that is unknown or cannot
    run here.

    >>> choose("histogram", torch.zeros(1, dtype=torch.bfloat16))
    'reference'
    """
    if backend == "auto":
        found = fastest(kernel, like.device.type)
        return REFERENCE if _obstacle(found, like) else found
    if backend not in (names := backends(kernel)):
        raise ValueError(unknown("back end", backend, (*names, "auto")))
    if obstacle := _obstacle(backend, like):
        raise ValueError(f"back end {backend!r} {obstacle}; use 'auto' or 'reference'")
    return backend


def fastest(kernel: str, device: str) -> str:
    """Return the back end for a device such as "cpu", or "reference" if it is not installed."""
    found = FASTEST[kernel].get(device, FASTEST[kernel]["other"])
    return REFERENCE if missing(found, device) else found


def backends(kernel: str) -> list[str]:
    """Return the names of all back ends of a kernel.

    >>> backends("spectral")
    ['numba', 'parallel', 'reference']
    """
    return sorted({*FASTEST[kernel].values(), REFERENCE})


def missing(backend: str, device: str) -> str:
    """Return why a back end cannot run on a device; empty if it can."""
    if backend not in DEVICES:
        return ""
    needed, words = DEVICES[backend]
    if device != needed:
        return f"runs on {words}, got {device}"
    return "" if installed(backend) else f"cannot be imported: pip install {backend}"


def installed(package: str) -> bool:
    """Return True if a package can be imported; a numba that does not match numpy cannot."""
    try:
        import_module(package)
    except ImportError:
        return False
    return True


def _obstacle(backend: str, like: Tensor) -> str:
    """Return why a back end cannot run for such tensors; empty if it can."""
    if obstacle := missing(backend, like.device.type):
        return obstacle
    if backend in DEVICES and like.dtype not in (torch.float32, torch.float64):
        return f"computes in float32 or float64, got {like.dtype}"
    return ""
