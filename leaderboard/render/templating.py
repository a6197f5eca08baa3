"""Render templates. HTML and SVG escape every text; Markdown needs `|md`."""

import tomllib
from functools import partial
from importlib.resources import files
from textwrap import wrap
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from experiment.files import slug
from experiment.protocol import base
from leaderboard.escape import command_text, markdown_text, script_json
from leaderboard.papers.caption import caption
from leaderboard.papers.text import parts_of, rows_of
from leaderboard.record.tuning import values_text
from leaderboard.render import runs, text
from leaderboard.render.bibliography import cited
from leaderboard.render.columns import rows_as_markdown
from leaderboard.render.prose import prose
from leaderboard.stats.ranks import matrix, tested, verdicts
from leaderboard.stats.tables import flat
from pezoo.spec import bare

ABOUT = (
    "Identical Transformers that differ in nothing but the positional encoding: how far beyond the "
    "training length each one reaches, how reliably, and at what cost."
)

WHY = tomllib.loads((files("leaderboard.render") / "why.toml").read_text("utf-8"))

_TEMPLATES = Environment(
    loader=PackageLoader("leaderboard.render"),
    autoescape=select_autoescape(("html", "svg")),
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
_TEMPLATES.filters |= {
    "bare": bare,
    "base": base,
    "cited": cited,
    "command": command_text,
    "json": script_json,
    "known": runs.known,
    "learned": runs.learned,
    "notes": text.notes_text,
    "md": markdown_text,
    "caption": caption,
    "paper_parts": parts_of,
    "paper_rows": rows_of,
    "percent": text.percent,
    "prose": prose,
    "fewer": text.fewer,
    "px": "{:.1f}".format,
    "rank": text.rank_text,
    "pairs": runs.pair_items,
    "methods": runs.methods,
    "run_parts": runs.parts_of_run,
    "score_rows": runs.score_rows,
    "answer_rows": runs.answer_rows,
    "reach": text.reach_text,
    "rows_as_markdown": rows_as_markdown,
    "wrapped": lambda lines, width: [part for line in lines for part in wrap(line, width)],
    "score": text.score,
    "settings": runs.settings,
    "shade": text.shade,
    "slug": slug,
    "span": text.span_text,
    "times": text.times,
    "unseen": partial(text.unseen_text, intervals=False),
    "values": values_text,
}


def render(template: str, **context: Any) -> str:
    """Render one page or picture. Errors: UndefinedError for a missing value."""
    return _TEMPLATES.get_template(template).render(context)
