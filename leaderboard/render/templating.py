"""Render templates of pages. HTML escapes every text; Markdown needs `|markdown_text`.

Every function of MODULES is a filter.
"""

import tomllib
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from experiment.files import slug
from experiment.protocol import base
from leaderboard import escape, text
from leaderboard.papers import caption
from leaderboard.papers import text as papers
from leaderboard.record.tuning import values_text
from leaderboard.render import columns, prose, runs
from leaderboard.stats.ranks import matrix, tested, verdicts
from leaderboard.stats.tables import flat
from pezoo.spec import bare

MODULES = escape, text, caption, papers, columns, prose, runs
ABOUT = (
    "Identical Transformers that differ in nothing but the positional encoding: how far beyond the "
    "training length each one reaches, how reliably, and at what cost."
)

WHY = tomllib.loads((files("leaderboard.render") / "why.toml").read_text("utf-8"))

_TEMPLATES = Environment(
    loader=PackageLoader("leaderboard.render"),
    autoescape=select_autoescape(("html",)),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,
)
_TEMPLATES.globals |= {
    "flat": flat,
    "matrix": matrix,
    "tested": tested,
    "verdicts": verdicts,
    "ABOUT": ABOUT,
    "WHY": WHY,
}
_TEMPLATES.filters |= {one.__name__: one for one in (slug, base, bare, values_text)} | {
    name: one
    for module in MODULES
    for name, one in vars(module).items()
    if getattr(one, "__module__", "") == module.__name__
}


def render(template: str, **context: Any) -> str:
    """Render one page. Errors: UndefinedError for a missing value."""
    return _TEMPLATES.get_template(template).render(context)
