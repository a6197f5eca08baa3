"""Docstrings, split into headings and paragraphs; links and BibTeX of the papers that they name."""

import re
import tomllib
from dataclasses import dataclass
from importlib.resources import files
from textwrap import dedent

ENTRIES = tomllib.loads(
    (files("leaderboard.render") / "bibliography.toml").read_text(encoding="utf-8")
)


@dataclass(frozen=True)
class Reference:
    """One paper. `url` is "" where no address is known."""

    name: str  # as encodings name it
    authors: str
    title: str
    url: str = ""

    @property
    def bibtex(self) -> str:
        year = self.name.split()[-1]
        key = re.sub(r"[^a-z]", "", self.name.split()[0].lower()) + year
        fields = {"author": self.authors, "title": f"{{{self.title}}}", "year": year}
        fields |= {"url": self.url} if self.url else {}
        lines = [f"  {name} = {{{value}}}" for name, value in fields.items()]
        return f"@article{{{key},\n" + ",\n".join(lines) + "\n}"


def cited(text: str) -> list[Reference]:
    """Return the papers that a text names.

    >>> [entry.title[:11] for entry in cited("after Su et al. 2021")]
    ['RoFormer: E']
    >>> [entry.title[:4] for entry in cited("Yang et al. 2025b")]
    ['PaTH']
    """
    return [
        Reference(name, **values)
        for name, values in ENTRIES.items()
        if re.search(rf"{re.escape(name)}(?![a-z])", text)
    ]


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
