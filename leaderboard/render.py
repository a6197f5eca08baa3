"""The templates in templates/, filled in. HTML and SVG escape every text; Markdown needs `|md`."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from leaderboard import text
from leaderboard.escape import command_text, markdown_text, script_json
from leaderboard.files import slug
from leaderboard.prose import prose
from leaderboard.ranks import verdicts
from leaderboard.tables import flat
from leaderboard.tuning import values_text
from pezoo.spec import bare


def lines_of(name: str) -> list[str]:
    """The lines of a text in templates/."""
    return (files("leaderboard") / "templates" / name).read_text(encoding="utf-8").splitlines()


_TEMPLATES = Environment(
    loader=PackageLoader("leaderboard"),
    autoescape=select_autoescape(("html", "svg")),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.globals |= {"flat": flat, "lines_of": lines_of, "verdicts": verdicts}
_TEMPLATES.filters |= {
    "bare": bare,
    "command": command_text,
    "json": script_json,
    "md": markdown_text,
    "percent": text.percent,
    "prose": prose,
    "px": "{:.1f}".format,
    "rows_as_markdown": text.rows_as_markdown,
    "slug": slug,
    "times": text.times,
    "values": values_text,
    "wilson": text.wilson_text,
}


def render(template: str, **context: Any) -> str:
    """The text of one page or picture. Errors: UndefinedError for a name without a value."""
    return _TEMPLATES.get_template(template).render(context)
