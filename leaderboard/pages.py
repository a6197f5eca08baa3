"""What the page templates are given."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from markupsafe import Markup, escape

from leaderboard.catalog import HOOKS, Catalog, EncodingDoc, ProtocolDoc, sections
from leaderboard.data import own_lines, unseen_of
from leaderboard.files import slug
from leaderboard.formula import formula
from leaderboard.groups import Group, flat
from leaderboard.ranks import verdicts
from leaderboard.records import Record
from leaderboard.summary import bare
from leaderboard.tuning import values_text

FORMULAS = ("Formula", "Score", "Stream")


def how_to_read() -> list[str]:
    """What every column means, one sentence or a few per line."""
    source = files("leaderboard") / "templates" / "how_to_read.txt"
    return source.read_text(encoding="utf-8").splitlines()


def task(name: str, groups: Sequence[Group], catalog: Catalog) -> dict[str, Any]:
    """One task with all its tables."""
    known = catalog.tasks.get(name)
    return {
        "name": name,
        "known": known,
        "groups": [(group, verdicts(group.rows)) for group in groups],
        "text": _prose(known.doc if known else ""),
    }


def encoding(name: str, catalog: Catalog) -> dict[str, Any]:
    """One encoding; a composed one has the description of every part."""
    parts = catalog.parts(name)
    return {
        "name": name,
        "parts": [{"known": part, "text": _prose(part.doc), "use": _use(part)} for part in parts],
        "hooks": HOOKS,
    }


def run(record: Record) -> dict[str, Any]:
    """One run with everything that its record says."""
    tables = [("last step", record.scores.last), ("best on training lengths", record.scores.best)]
    for mode, scores in sorted(record.modes.items()):
        tables.append((f"last step, evaluated {mode}", scores.last))
    mean, words = unseen_of(record.scores.last)
    costs = record.cost.model_dump().items()
    tuning = record.provenance.tuning
    return {
        "tuning": tuning,
        "chosen": values_text(tuning.chosen) if tuning else "",
        "trials": [(values_text(trial.values), trial) for trial in tuning.cells] if tuning else [],
        "record": record,
        "tables": [(title, scores) for title, scores in tables if scores],
        "settings": sorted(flat("", record.config)),
        "environment": list(flat("", record.env.model_dump(exclude_none=True))),
        "cost": [(key, value) for key, value in costs if value is not None],
        "unseen": mean,
        "unseen_words": "failed" if record.status == "failed" else words,
        "task_page": f"task/{slug(record.task)}.html",
        "encoding_page": f"encoding/{slug(bare(record.encoding))}.html",
        "curve": [[p.step, p.loss, p.exact] for p in record.learning],
    }


def method(catalog: Catalog) -> dict[str, Any]:
    """How the numbers are made."""
    return {
        "how_to_read": how_to_read(),
        "protocols": [_protocol(p) for p in catalog.protocols.values()],
    }


def _protocol(protocol: ProtocolDoc) -> dict[str, Any]:
    settings = {k: v for k, v in protocol.settings.items() if k not in ("name", "description")}
    return {"known": protocol, "settings": list(flat("", settings))}


def _use(part: EncodingDoc) -> str:
    return f"from {part.module} import {part.cls}"


def _prose(doc: str) -> list[tuple[str, str, Markup]]:
    """(heading, "p", "pre" or "maths", HTML) for each paragraph, formulas rendered."""
    found = []
    for head, text in sections(doc):
        indented = text.startswith("    ")
        block = "\n".join(own_lines(text)) if indented else text
        maths = head in FORMULAS or (indented and not head)
        html = formula(block) if maths else Markup(escape(block))
        lines = text.split("\n")[1:]
        table = any(line.startswith("  ") for line in lines)
        tag = "maths" if maths and indented else "pre" if indented or table else "p"
        found.append((head, tag, html))
    return found
