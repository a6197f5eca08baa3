"""Render templates. HTML and SVG escape every text; Markdown needs `|md`."""

from collections.abc import Iterable
from dataclasses import fields
from functools import partial
from html import escape
from textwrap import wrap
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from experiment.config import RunConfig
from experiment.files import slug
from experiment.protocol import base
from leaderboard.escape import command_text, markdown_text, script_json
from leaderboard.papers.caption import caption
from leaderboard.papers.text import parts_of, rows_of
from leaderboard.record.schema import Record
from leaderboard.record.tuning import values_text
from leaderboard.render import text
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


def known(part: Any) -> list[tuple[str, str]]:
    """Return the names and values of a part of a record that are not None."""
    values = {field.name: getattr(part, field.name) for field in fields(part)}
    return list(flat("", {name: value for name, value in values.items() if value is not None}))


def settings(config: RunConfig) -> list[tuple[str, str]]:
    """Return the settings of a run as ("train.steps", "1500")."""
    return sorted(flat("", config.model_dump(mode="json")))


def pair_rows(pairs: Iterable[tuple[str, str]]) -> Markup:
    """Return rows of a table of names and values; a template takes three times as long."""
    row = "<tr><th scope=row>{}<td>{}\n".format  # a third smaller without closing tags
    return Markup("".join(row(escape(name), escape(value)) for name, value in pairs))


def learned(record: Record) -> list[list[float | None]]:
    """Return the learning curve as lines of step, loss and exact match."""

    def short(value: float | None) -> float | None:
        return None if value is None else float(f"{value:.4g}")

    return [[point.step, short(point.loss), short(point.exact)] for point in record.learning]


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
}
_TEMPLATES.filters |= {
    "bare": bare,
    "base": base,
    "cited": cited,
    "command": command_text,
    "json": script_json,
    "known": known,
    "learned": learned,
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
    "rows": pair_rows,
    "reach": text.reach_text,
    "rows_as_markdown": rows_as_markdown,
    "wilson": text.wilson_text,
    "wrapped": lambda lines, width: [part for line in lines for part in wrap(line, width)],
    "settings": settings,
    "slug": slug,
    "span": text.span_text,
    "times": text.times,
    "unseen": partial(text.unseen_text, intervals=False),
    "values": values_text,
}


def render(template: str, **context: Any) -> str:
    """Render one page or picture. Errors: UndefinedError for a missing value."""
    return _TEMPLATES.get_template(template).render(context)
