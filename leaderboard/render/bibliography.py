"""Links and BibTeX of the papers that encodings name."""

import re
import tomllib
from dataclasses import dataclass
from importlib.resources import files

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
