"""A zoo of positional encodings behind one interface.

>>> import pezoo
>>> shape = pezoo.Shape(d_model=64, n_heads=4, d_head=16, n_layers=2, train_len=32)
>>> pezoo.make("rope", shape)
RoPE(d_model=64, n_heads=4, d_head=16, n_layers=2, train_len=32)

torch is imported only when a name that needs it is first used, so that `import pezoo` is cheap.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pezoo.base import Context, Encoding, PositionError, Shape
    from pezoo.registry import make, names, register

__version__ = "0.1.0"
__all__ = ["Context", "Encoding", "PositionError", "Shape", "make", "names", "register"]

_HOME = {
    "Context": "pezoo.base",
    "Encoding": "pezoo.base",
    "PositionError": "pezoo.base",
    "Shape": "pezoo.base",
    "make": "pezoo.registry",
    "names": "pezoo.registry",
    "register": "pezoo.registry",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'pezoo' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
