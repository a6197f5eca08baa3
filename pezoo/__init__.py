"""A zoo of positional encodings behind one interface.

>>> import pezoo
>>> shape = pezoo.Shape(d_model=64, n_heads=4, d_head=16, n_layers=2, train_len=32)
>>> pezoo.make("rope", shape)
RoPE(d_model=64, n_heads=4, d_head=16, n_layers=2, train_len=32)

Encodings can be imported as classes: `from pezoo import RoPE`. torch is imported when a name that
needs it is first used, so that `import pezoo` is cheap.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pezoo.adapters import attend
    from pezoo.adapters.layer import Cache, attention
    from pezoo.base import Context, Encoding, Memo, Pass, PositionError, Shape
    from pezoo.registry import make, names, register

    __all__ = [  # and the encodings, see __getattr__
        "Cache", "Context", "Encoding", "Memo", "Pass", "PositionError", "Shape",
        "attend", "attention", "make", "names", "register",
    ]  # fmt: skip

__version__ = "0.1.0"

_HOME = {
    **dict.fromkeys(
        ("Context", "Encoding", "Memo", "Pass", "PositionError", "Shape"), "pezoo.base"
    ),
    **dict.fromkeys(("make", "names", "register"), "pezoo.registry"),
    "attend": "pezoo.adapters",
    **dict.fromkeys(("Cache", "attention"), "pezoo.adapters.layer"),
}


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return [*_HOME, *_encodings()]
    # Python calls this for submodules too, which are in lower case.
    classes = _HOME | (_encodings() if name[:1].isupper() else {})
    if name in classes:
        return getattr(import_module(classes[name]), name)
    from pezoo.spec import nearest

    hint = "" if name.startswith("_") else nearest(name, classes)
    raise AttributeError(f"module 'pezoo' has no attribute {name!r}{hint}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME, *_encodings()])


def _encodings() -> dict[str, str]:
    """Return the module of each built-in encoding's class, without importing it."""
    from pezoo.registry import entries

    return {e.cls: e.module for e in entries().values() if e.cls and e.plugin is None}
