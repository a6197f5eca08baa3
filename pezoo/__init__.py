"""A zoo of positional encodings behind one interface.

>>> import pezoo
>>> shape = pezoo.Shape(d_model=64, n_heads=4, d_head=16, n_layers=2, train_len=32)
>>> pezoo.make("rope", shape)
RoPE(d_model=64, n_heads=4, d_head=16, n_layers=2, train_len=32)

The classes of the encodings are here too: `from pezoo import RoPE`. torch is imported only when a
name that needs it is first used, so that `import pezoo` is cheap.
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
    home = _HOME.get(name) or (None if name.startswith("_") else _encodings().get(name))
    if home is None:
        raise AttributeError(_no_such(name))
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME, *_encodings()])


def _encodings() -> dict[str, str]:
    """The module of each encoding's class, read as text."""
    from pezoo.registry import entries

    return {e.cls: e.module for e in entries().values() if e.plugin is None and e.cls}


def _no_such(name: str) -> str:
    message = f"module 'pezoo' has no attribute {name!r}"
    if name.startswith("_"):
        return message
    from pezoo.spec import nearest

    return message + nearest(name, [*_HOME, *_encodings()])
