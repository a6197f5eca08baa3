"""What the page templates are given."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from textwrap import dedent
from typing import Any

from markupsafe import Markup, escape

from leaderboard.catalog import HOOKS, Catalog, sections
from leaderboard.data import unseen_of
from leaderboard.files import slug
from leaderboard.formula import formula
from leaderboard.ranks import verdicts
from leaderboard.rows import bare
from leaderboard.schema import Record
from leaderboard.tables import Table, flat
from leaderboard.tuning import values_text

FORMULAS = ("Formula", "Score", "Stream")


def how_to_read() -> list[str]:
    """What every column means, one sentence or a few per line."""
    source = files("leaderboard") / "templates" / "how_to_read.txt"
    return source.read_text(encoding="utf-8").splitlines()


def task(name: str, tables: Sequence[Table], catalog: Catalog) -> dict[str, Any]:
    """One task with all its tables."""
    known = catalog.tasks.get(name)
    return {
        "name": name,
        "known": known,
        "tables": [(table, verdicts(table.rows)) for table in tables],
        "text": _prose(known.doc if known else ""),
    }


def encoding(name: str, catalog: Catalog) -> dict[str, Any]:
    """One encoding; a composed one has the description of every part."""
    parts = [(part, _prose(part.doc)) for part in catalog.parts(name)]
    return {"name": name, "parts": parts, "hooks": HOOKS}


def run(record: Record) -> dict[str, Any]:
    """One run with everything that its record says."""
    scores = {"last step": record.scores.last, "best on training lengths": record.scores.best}
    scores |= {f"last step, evaluated {mode}": own.last for mode, own in record.modes.items()}
    unseen, words = unseen_of(record)
    tuning = record.provenance.tuning
    return {
        "tuning": tuning,
        "chosen": values_text(tuning.chosen) if tuning else "",
        "trials": [(values_text(trial.values), trial) for trial in tuning.cells] if tuning else [],
        "record": record,
        "tables": [(title, own) for title, own in scores.items() if own],
        "settings": sorted(flat("", record.config)),
        "environment": list(flat("", record.env.model_dump(exclude_none=True))),
        "cost": list(record.cost.model_dump(exclude_none=True).items()),
        "unseen": unseen,
        "unseen_words": words,
        "task_page": f"task/{slug(record.task)}.html",
        "encoding_page": f"encoding/{slug(bare(record.encoding))}.html",
        "curve": [[p.step, p.loss, p.exact] for p in record.learning],
    }


def method(catalog: Catalog) -> dict[str, Any]:
    """How the numbers are made."""

    def settings(raw: dict[str, Any]) -> list[tuple[str, str]]:
        return [(k, v) for k, v in flat("", raw) if k not in ("name", "description")]

    protocols = [(known, settings(known.settings)) for known in catalog.protocols.values()]
    return {"how_to_read": how_to_read(), "protocols": protocols}


def _prose(doc: str) -> list[tuple[str, str, Markup]]:
    """(heading, "p", "pre" or "maths", HTML) for each paragraph, formulas rendered."""
    found = []
    for head, text in sections(doc):
        indented = text.startswith("    ")
        block = dedent(text) if indented else text
        maths = head in FORMULAS or (indented and not head)
        html = formula(block) if maths else Markup(escape(block))
        table = any(line.startswith("  ") for line in text.split("\n")[1:])
        tag = "maths" if maths and indented else "pre" if indented or table else "p"
        found.append((head, tag, html))
    return found
