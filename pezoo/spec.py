"""The text form of an encoding: `name(option=value,...)`, composed with a colon.

>>> parse("randomized(max_len=512):rope(base=500)").options
{'max_len': 512}
>>> [str(spec) for spec in parse_list("hard_alibi(masked=3), prism(gamma=1.2)")]
['hard_alibi(masked=3)', 'prism(gamma=1.2)']
"""

import ast
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Self

LONG = 200  # letters of a text that messages show whole
FEW = 12  # names that a message lists beside the nearest one
_PART = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*(?:\((.*)\))?\s*", re.DOTALL)


class SpecError(ValueError):
    """Raised for an unknown encoding or option, or text that is not a spec."""


@dataclass(frozen=True)
class Spec:
    """A parsed name: options in the order typed, `inner` the encoding after the colon.

    `other` is the one after the comma, of a wrapper of two.
    """

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    inner: Self | None = None
    other: Self | None = None

    def __str__(self) -> str:
        options = ",".join(f"{key}={value}" for key, value in sorted(self.options.items()))
        own = f"{self.name}({options})" if options else self.name
        return own + ":" * bool(self.wrapped) + ",".join(map(str, self.wrapped))

    @property
    def wrapped(self) -> list[Self]:
        """The encodings that it wraps, as far as they are given."""
        return [spec for spec in (self.inner, self.other) if spec is not None]

    def over(self, change: Callable[[Self], Self]) -> Self:
        """Return the spec with every encoding that it wraps changed."""
        return type(self)(self.name, self.options, *map(change, self.wrapped))


def brief(value: object) -> str:
    """Return the repr of a value; of a long one the beginning and the number of letters.

    >>> brief("rope"), brief("x" * 5000)[-20:]
    ("'rope'", 'xx... (5002 letters)')
    """
    shown = repr(value)
    return shown if len(shown) <= LONG else f"{shown[: LONG // 2]}... ({len(shown)} letters)"


def parse(text: str, takes: Callable[[str], int] = lambda name: 1) -> Spec:
    """Parse one encoding. Errors: SpecError, which shows the part that cannot be parsed."""
    specs = parse_list(text, takes)
    if len(specs) > 1:
        raise _unreadable(text)
    return specs[0]


def parse_list(text: str, takes: Callable[[str], int] = lambda name: 1) -> list[Spec]:
    """Parse several encodings, separated by commas outside parentheses.

    `takes` returns how many encodings follow the colon of a name: see `pezoo.registry.parse`.
    """
    specs: list[Spec] = []
    for part in reversed(_split(text, ",")):
        # Read from the right, a name is followed by what it may wrap.
        for index, piece in enumerate(reversed(_split(part, ":"))):
            match = _PART.fullmatch(piece)
            if match is None:
                raise _unreadable(piece)
            count = takes(match[1]) if index else 0
            wrapped, specs = specs[:count], specs[count:]
            specs.insert(0, Spec(match[1], _options(match[1], match[2]), *wrapped))
    return specs


def _unreadable(text: str) -> SpecError:
    return SpecError(
        f"cannot read {brief(text.strip())}: expected name or name(option=value,...), "
        f"composed with ':', for example randomized(max_len=512):rope"
    )


def bare(spec: str) -> str:
    """Return the text of an encoding or a task without its options.

    >>> bare("randomized(max_len=512):rope(base=500)")
    'randomized:rope'
    >>> bare("rope(rope_parameters=yarn(factor=4))")
    'rope'
    """
    while (shorter := re.sub(r"\([^()]*\)", "", spec)) not in ("", spec):
        spec = shorter  # without one level of parentheses
    return spec


def unknown(what: str, given: str, known: Iterable[str]) -> str:
    """Return the error message for an unknown name, with the nearest known one, or all.

    >>> unknown("encoding", "rpoe", ["alibi", "rope"])
    "unknown encoding 'rpoe'; did you mean rope? (known: alibi, rope)"
    """
    known = list(known)
    names, near = ", ".join(known) or "none", nearest(given, known)
    listed = "" if near and len(known) > FEW else f" (known: {names})"
    return f"unknown {what} {brief(given)}{near}{listed}"


def choice(what: str, given: str, known: Iterable[str]) -> None:
    """Raise ValueError, which suggests the nearest name, if `given` is not known.

    >>> choice("form", "log", ["log", "power"])
    """
    known = list(known)
    if given not in known:
        raise ValueError(unknown(what, given, known))


def nearest(given: str, known: Iterable[str]) -> str:
    """Return the end of a message that suggests the nearest name; empty if none is near.

    Names that begin with `given`, of three letters or more, come first.

    >>> nearest("Rope", ["RoPE", "ALiBi"])
    '; did you mean RoPE?'
    >>> nearest("label", ["lbpe", "label_based"])
    '; did you mean label_based?'
    """
    names, start = {name.lower(): name for name in known}, given.lower()
    near = [name for name in names if name.startswith(start)] if len(start) > 2 else []
    near = near or get_close_matches(start, names, n=1, cutoff=0.5)
    return f"; did you mean {names[near[0]]}?" if near else ""


def _options(name: str, text: str | None) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if text is None or not text.strip():
        return options
    for item in _split(text, ","):
        key, equals, value = item.partition("=")
        key = key.strip()
        if not equals or not key.isidentifier():
            raise SpecError(
                f"cannot read option {brief(item.strip())} of {name}: expected option=value"
            )
        if key in options:
            raise SpecError(f"option {brief(key)} of {name} is set twice")
        options[key] = _value(value.strip())
    return options


def _value(text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def _split(text: str, separator: str) -> list[str]:
    """Split at `separator` outside parentheses, brackets and braces."""
    parts, depth, start = [], 0, 0
    for index, char in enumerate(text):
        depth += (char in "([{") - (char in ")]}")
        if depth < 0:
            break
        if char == separator and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    if depth != 0:
        raise SpecError(f"unbalanced parentheses in {brief(text)}")
    return [*parts, text[start:]]
