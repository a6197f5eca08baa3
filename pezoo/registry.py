"""Find encodings by name, and make them from their text form.

A class in pezoo/encodings decorated with `@register("name")` is found by parsing its file, without
importing it: listing names and checking options need no torch. Other packages add encodings with
an entry point in the group "pezoo.encodings", `name = "package.module:Class"`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from pezoo import spec as text_form
from pezoo.class_text import NamedClass, named_classes
from pezoo.plugin import bounded, guarded, staying
from pezoo.spec import Spec, SpecError, brief, unknown

if TYPE_CHECKING:
    from pezoo.base import Encoding, Shape

ENTRY_POINTS = "pezoo.encodings"
_FOLDER = Path(__file__).parent / "encodings"
_T = TypeVar("_T", bound="type[Encoding]")


@dataclass(frozen=True)
class Entry:
    """One registered encoding; `options` is None until a plug-in has been imported."""

    name: str
    module: str
    cls: str
    options: tuple[str, ...] | None
    plugin: EntryPoint | None = None
    fault: str = ""  # why the file cannot be read
    also: tuple[tuple[str, str], ...] = ()  # second names, and what they stand for
    wraps: str | None = None  # of a wrapper: what it wraps by default

    def load(self) -> type[Encoding]:
        """Import the class. Errors: SpecError if that fails, or if the class does not fit."""
        if self.fault:
            raise SpecError(f"encoding {self.name!r}: {self.fault}")
        home = f"in {_shown(self.module)}"
        if self.plugin is not None:
            home = f"comes from the plug-in {self.plugin.value!r}, which"
        with guarded(f"encoding {self.name!r} {home} failed to import", self.module):
            if self.plugin is None:
                found = getattr(import_module(self.module), self.cls)
            else:
                from pezoo import base  # noqa: F401  torch, whose import is not the plug-in's fault

                with bounded(self.module):
                    found = self.plugin.load()
        from pezoo.base import Encoding

        if not (isinstance(found, type) and issubclass(found, Encoding)):
            raise SpecError(f"encoding {self.name!r}: {self.cls} must be a subclass of Encoding")
        _check_attributes(self.name, found)
        if found.name not in (self.name, ""):
            raise SpecError(
                f"the entry point {self.name} = {self.module}:{self.cls} does not match "
                f'the name of its class, {found.name!r}: mark the class @register("{self.name}")'
            )
        return found


def _shown(module: str) -> str:
    return module.replace(".", "/") + ".py"


@cache
def _attributes() -> dict[str, Any]:
    """Return the types of the attributes that a class may set."""
    from pezoo.base import Encoding
    from pezoo.extras import Extras

    kinds = get_type_hints(Encoding)
    return {name: kinds[name] for one in (Extras, Encoding) for name in one.__annotations__}


def _check_attributes(name: str, cls: type[Encoding]) -> None:
    """Errors: SpecError for an attribute of a wrong type, and for a value that none can have."""
    for attribute, kind in _attributes().items():
        value = inspect.getattr_static(cls, attribute)
        kind = get_args(kind)[0] if get_origin(kind) is ClassVar else kind
        if not hasattr(value, "__get__") and not _fits(value, kind):
            shown = kind.__name__ if isinstance(kind, type) else kind
            raise SpecError(f"encoding {name!r}: {attribute} must be {shown}; got {value!r:.100}")
    if cls.version < 1:
        raise SpecError(f"encoding {name!r}: version must be at least 1; got {cls.version}")
    if cls.wraps is not None and len(_wrapped(cls.wraps)) > 2:
        raise SpecError(f"encoding {name!r}: wraps must name one or two; got {cls.wraps!r:.100}")


def register(name: str) -> Callable[[_T], _T]:
    """Register a class in pezoo/encodings under a name: `@register("rope")`."""

    def mark(cls: _T) -> _T:
        cls.name = name
        return cls

    return mark


@cache
def entries() -> dict[str, Entry]:
    """Return every encoding by name, built-in ones first, without importing any.

    Errors: SpecError where two files use one name.
    """
    found = {name: _built_in(name, one) for name, one in named_classes(_FOLDER).items()}
    for point in entry_points(group=ENTRY_POINTS):
        if point.name not in found:
            module, _, cls = point.value.partition(":")
            found[point.name] = Entry(point.name, module, cls, None, point)
    return found


def names() -> list[str]:
    """Return the names of all encodings, sorted.

    >>> "rope" in names()
    True
    """
    return sorted(entries())


def second_names() -> dict[str, str]:
    """Return the aliases of encodings and their specs, from the classes' `also`.

    >>> second_names()["label_based"]
    'randomized:learned'
    """
    return {name: text for entry in entries().values() for name, text in entry.also}


def typed_names() -> list[str]:
    """Return every name that a spec may begin with, aliases included, sorted."""
    return sorted({*entries(), *second_names()})


def takes(name: str) -> int:
    """Return how many encodings follow the colon of a name."""
    entry = entries().get(name)
    return len(_wrapped(entry.wraps)) if entry and isinstance(entry.wraps, str) else 1


def _wrapped(wraps: str) -> list[Spec]:
    return text_form.parse_list(wraps)


def parse(text: str) -> Spec:
    """Parse one encoding. Errors: SpecError, which shows the part that cannot be parsed.

    >>> parse("layers(every=4):rope,nope").other
    Spec(name='nope', options={}, inner=None, other=None)
    """
    return text_form.parse(text, takes)


def parse_list(text: str) -> list[Spec]:
    """Parse several encodings, separated by commas outside parentheses.

    >>> [str(spec) for spec in parse_list("alibi,layers:rope,nope,t5")]
    ['alibi', 'layers:rope,nope', 't5']
    """
    return text_form.parse_list(text, takes)


def whole(spec: Spec) -> Spec:
    """Return the spec with what a wrapper wraps by default. Errors: SpecError for one of two."""
    wraps = _entry(spec.name).load().wraps
    defaults = _wrapped(wraps) if wraps else []
    if spec.inner is None:
        return Spec(spec.name, spec.options, *defaults)
    if len(spec.wrapped) < len(defaults):
        raise SpecError(f"{spec.name} wraps two encodings, as in {spec.name}:{wraps}; got {spec}")
    return spec


def expand(spec: Spec) -> Spec:
    """Return what an alias stands for, with its options added; any other spec as it is.

    Options of an alias are those of the outermost encoding that it stands for.
    Errors: SpecError for an alias that wraps an encoding.

    >>> str(expand(parse("label_based(max_len=512)")))
    'randomized(max_len=512):learned'
    """
    if spec.name in entries() or (text := second_names().get(spec.name)) is None:
        return spec
    if spec.inner is not None:
        raise SpecError(f"{spec.name} stands for {text}: it cannot wrap another encoding")
    meant = parse(text)
    return replace(meant, options={**meant.options, **spec.options})


def check(spec: Spec) -> Spec:
    """Return the spec with aliases expanded, after checking its names and options.

    Errors: SpecError with the nearest name.
    """
    spec = expand(spec)
    entry = _entry(spec.name)
    if entry.options is not None:
        for option in spec.options:
            if option not in entry.options:
                raise SpecError(unknown(f"option of {spec.name}", option, entry.options))
    return spec.over(check)


def make(name: str | Spec, shape: Shape | None = None, **options: Any) -> Encoding:
    """Build an encoding from its text form, for example `make("randomized:rope", shape)`.

    In place of a shape, the sizes that the encoding reads: `make("rope", d_head=64)`. Keyword
    options are those of the outermost encoding and win over options in the text.
    Errors: SpecError for unknown names, unknown options and values of the wrong type.
    """
    from pezoo.base import PartialShape, Sizes

    spec = parse(name) if isinstance(name, str) else name
    if not isinstance(spec, Spec):
        call = f": call {spec.__name__}(...) itself" if isinstance(spec, type) else ""
        raise SpecError(f"expected the name of an encoding, such as 'rope', got {spec!r}{call}")
    if shape is None:
        sizes: Any = {key: options.pop(key) for key in Sizes.__annotations__ if key in options}
        shape = PartialShape(str(spec), **sizes)
    spec = check(replace(spec, options={**spec.options, **options}))
    cls = _entry(spec.name).load()
    check_values(spec, cls)
    check_wraps(spec, cls)
    return _build(cls, spec, shape, *(partial(make, inner) for inner in whole(spec).wrapped))


def _build(cls: type[Encoding], spec: Spec, *args: Any) -> Encoding:
    try:
        with staying(f"{spec} cannot be built"):
            return cls(*args, **spec.options)
    except SpecError:
        raise
    except ValueError as error:
        raise SpecError(f"{spec}: {error}") from error


def check_wraps(spec: Spec, cls: type[Encoding]) -> None:
    """Check that a class wraps another encoding if the text has one. Errors: SpecError."""
    if spec.inner is not None and cls.wraps is None:
        wrappers = ", ".join(entry.name for entry in entries().values() if entry.wraps)
        raise SpecError(
            f"{spec.name} cannot wrap {spec.inner.name}: only {wrappers} can stand before a colon"
        )


def check_values(spec: Spec, cls: type) -> None:
    """Check that a class takes these options. Errors: SpecError for a name or a type."""
    with guarded(f"the options of {spec.name} cannot be read"):
        parameters = inspect.signature(cls, eval_str=True).parameters
    known = tuple(p.name for p in parameters.values() if p.kind is p.KEYWORD_ONLY)
    for option, value in spec.options.items():
        if option not in known:
            raise SpecError(unknown(f"option of {spec.name}", option, known))
        kind = parameters[option].annotation
        if type(value) is int and kind in (float, float | None):
            spec.options[option] = value = float(value)
        if kind is not inspect.Parameter.empty and not _fits(value, kind):
            shown = getattr(kind, "__name__", str(kind)) if isinstance(kind, type) else str(kind)
            shown = {float: "a finite float", int: "an int of 64 bits"}.get(kind, shown)
            raise SpecError(f"option {option} of {spec.name} expects {shown}, got {brief(value)}")


def _fits(value: Any, kind: Any) -> bool:
    if get_origin(kind) in (UnionType, Union):
        return any(_fits(value, one) for one in get_args(kind))
    if isinstance(value, bool):
        return kind is bool
    if isinstance(value, float) and not math.isfinite(value):
        return False
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return False
    try:
        return isinstance(value, kind)
    except TypeError:  # of a generic, such as tuple[float, ...]
        origin, inner = get_origin(kind), get_args(kind)
        own = (tuple, list) if origin is tuple else origin  # a list is as good as a tuple
        if not isinstance(origin, type) or not isinstance(value, own):
            return not isinstance(origin, type)
        one = inner[0] if origin is tuple and inner[1:] == (...,) else Any
        return all(one is Any or _fits(x, float | int if one is float else one) for x in value)


def _entry(name: str) -> Entry:
    if name not in entries():
        if name != "__init__" and (_FOLDER / f"{name}.py").is_file():
            raise SpecError(
                f"pezoo/encodings/{name}.py does not register {name!r}: "
                f'decorate its class with @register("{name}"), the name as a literal'
            )
        raise SpecError(unknown("encoding", name, typed_names()))
    return entries()[name]


def _built_in(name: str, found: NamedClass) -> Entry:
    """The entry of a class in the folder, with the keyword-only options of its __init__."""
    module, text = f"pezoo.encodings.{found.path.stem}", found.text
    if text is None:
        fault = f"{_shown(module)} cannot be read: {found.fault}"
        return Entry(name, module, "", None, fault=fault)
    return Entry(
        name,
        module,
        text.name,
        text.options,
        also=text.constants.get("also", ()),
        wraps=text.constants.get("wraps"),
    )
