"""Pages of the site as the tests read them: parsed, never cut as text."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

VOID = {"meta", "link", "img", "br", "wbr", "input"}


class Page(HTMLParser):
    """The tags of a page, its texts by element id, and its tables as lists of cells."""

    def __init__(self, text: str | Path) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, str] = {"": ""}
        self.tables: list[list[list[str]]] = []
        self._open: list[tuple[str, str]] = []
        self.feed(text.read_text("utf-8") if isinstance(text, Path) else text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("th", "td"):
            self.tables[-1][-1].append("")
        if tag not in VOID:
            self._open.append((tag, dict(attrs).get("id") or ""))

    def handle_endtag(self, tag):
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data):
        for name in {"", *(name for _, name in self._open)}:
            self.texts[name] = self.texts.get(name, "") + data
        if self.tables and any(tag in ("th", "td") for tag, _ in self._open):
            self.tables[-1][-1][-1] += data

    @property
    def text(self) -> str:
        """All of its text, spaces as one."""
        return " ".join(self.texts[""].split())

    def table(self, *heads: str) -> list[dict[str, str]]:
        """The rows below the heads of the first table that has these heads."""
        for first, *rows in self.tables:
            cells = [" ".join(cell.split()) for cell in first]
            if {*heads} <= {*cells}:
                lines = ([" ".join(cell.split()) for cell in row] for row in rows)
                return [dict(zip(cells, line, strict=False)) for line in lines]
        raise AssertionError(f"no table with the heads {heads}")

    def all(self, key: str) -> list[str]:
        """The values of an attribute."""
        return [attributes[key] or "" for _, attributes in self.tags if key in attributes]
