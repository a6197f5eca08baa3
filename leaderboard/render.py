"""The templates in templates/, filled in. Markup escapes every text; Markdown texts need `|md`."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from leaderboard import text
from leaderboard.files import command_text, markdown_text, script_json, slug

_TEMPLATES = Environment(
    loader=PackageLoader("leaderboard"),
    autoescape=select_autoescape(("html", "svg")),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.filters |= {
    "command": command_text,
    "json": script_json,
    "md": markdown_text,
    "percent": text.percent,
    "px": "{:.1f}".format,
    "slug": slug,
    "times": text.times,
    "wilson": text.wilson_text,
}


def render(template: str, **context: Any) -> str:
    """The text of one page or picture. Errors: UndefinedError for a name without a value."""
    return _TEMPLATES.get_template(template).render(context)
