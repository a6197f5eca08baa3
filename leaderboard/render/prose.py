"""Docstrings, split into headings and paragraphs."""

import re
from textwrap import dedent


def prose(doc: str) -> list[tuple[str, str, str]]:
    """Return (heading, "p" or "pre", text) for each paragraph; "pre" has indented lines."""
    return [
        (head, "pre" if re.search(r"^  ", text, re.MULTILINE) else "p", dedent(text))
        for head, text in sections(doc)
    ]


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
