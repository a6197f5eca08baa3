"""Escape texts of records for a line, Markdown, a script, a CSV cell and a shell."""

import json
import re
import unicodedata
from functools import lru_cache
from typing import Any

from pydantic_core import to_jsonable_python

_FORMULA = re.compile(r"[\s'\"]*[=+\-@\uff1d\uff0b\uff0d\uff20|%]")
_PLAIN = re.compile(  # what Markdown leaves alone, or else one character
    r"([A-Za-z0-9 ,;?'()=%]|[^\x00-\x7f]|[:/](?!/)|(?<=[^\W_])[_-](?=[^\W_])|(?<=\w )-(?= )|(?<==)-"
    r"|(?<=\w)\+|(?<=[\w)%\]])(?<!www)\.|(?<=[\w=] )\[(?:[a-z]{1,2}|[\d., ]+)\](?![(\[:]))|.",
    re.DOTALL | re.IGNORECASE,
)
_LIST = re.compile(r"( *\d+)[.)]")  # at the start of a line
_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_JSON = json.JSONEncoder(
    separators=(",", ":"), default=to_jsonable_python, allow_nan=False, sort_keys=True
)
_SHELL = re.compile(r"[;&|`$<>\\!#\n]")


def hidden(char: str) -> bool:
    """Return whether a character is invisible: control, direction-changing, unassigned."""
    return unicodedata.category(char) in _HIDDEN


def shown(text: str, limit: int = 2000) -> str:
    """Return the text on one line, with one space for every run of spaces or hidden characters."""
    text = text[:limit]
    if not text.isprintable():  # nothing hidden is printable
        text = "".join(" " if hidden(char) else char for char in text)
    return " ".join(text.split())


def markdown_text(text: str) -> str:
    """Escape text so that Markdown shows it unchanged.

    >>> markdown_text("odds_first|<b>")
    'odds_first&#124;&#60;b&#62;'
    >>> markdown_text("prism [a]; 45.4 % of 6."), markdown_text("1. [a](b)")
    ('prism [a]; 45.4 % of 6.', '1&#46; &#91;a&#93;(b)')
    """
    escaped = _PLAIN.sub(lambda found: found[1] or f"&#{ord(found[0])};", text)
    if start := _LIST.match(escaped):
        at = start.end() - 1
        escaped = f"{escaped[:at]}&#{ord(escaped[at])};{escaped[at + 1 :]}"
    return escaped


def script_json(value: Any) -> str:
    """Return JSON that is safe inside a script element; parts of records become their fields.

    >>> script_json("</script>")
    '"\\\\u003c/script\\\\u003e"'
    """
    text = _JSON.encode(value)
    for char in "<>&":  # str.translate takes as long as all of the JSON
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


@lru_cache(4096)  # a file repeats its hashes, names and devices
def csv_text(text: str) -> str:
    """Escape text for a CSV cell, so that no spreadsheet reads it as a formula.

    >>> csv_text("=1+1")
    "'=1+1"
    """
    return f"'{text}" if _FORMULA.match(text) else text


def command_text(command: str) -> str:
    """Return a command that is safe to copy; one with shell operators is withheld."""
    if _SHELL.search(command) or not command.strip():
        return "(not shown: the recorded command is empty or holds shell operators)"
    return command
