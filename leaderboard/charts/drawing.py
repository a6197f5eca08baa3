"""Render SVG templates, in which every text is escaped."""

from textwrap import wrap
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

_TEMPLATES = Environment(
    loader=PackageLoader("leaderboard.charts"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,
)
_TEMPLATES.filters |= {
    "px": "{:.1f}".format,
    "wrapped": lambda lines, width: [part for line in lines for part in wrap(line, width)],
}


def draw(template: str, **context: Any) -> str:
    """Render one picture. Errors: UndefinedError for a missing value."""
    return _TEMPLATES.get_template(template).render(context)
