"""Docstrings as HTML."""

from __future__ import annotations

import re
from textwrap import dedent

from markupsafe import Markup, escape

from leaderboard.render.formula import formula

FORMULAS = ("Formula", "Score", "Stream")


def prose(doc: str) -> list[tuple[str, str, Markup]]:
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


def sections(doc: str) -> list[tuple[str, str]]:
    """Split a docstring into (heading, paragraph); the heading is "" before the first.

    >>> sections("Turn it.\\n\\nFormula: b = 1\\n\\nPaper: A 2020.")
    [('', 'Turn it.'), ('Formula', 'b = 1'), ('Paper', 'A 2020.')]
    """
    found: list[tuple[str, str]] = []
    for paragraph in doc.split("\n\n"):
        lines = re.split(r"\n(?=[A-Z][a-z]+: )", paragraph)
        for line in lines:
            head = re.match(r"([A-Z][a-z]+): (?=\S)", line)
            found.append((head[1], line[head.end() :]) if head else ("", line))
    return found
