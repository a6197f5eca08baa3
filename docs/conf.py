"""Settings of the reference site: sphinx-build -W docs FOLDER.

Pages of encodings, tasks and of the names of `pezoo` are made of docstrings, into docs/reference.
"""

import os
import re
import shutil
from inspect import cleandoc
from pathlib import Path

import pezoo
from harness import tasks
from harness.show.gallery import HEIGHT, WIDTH, card
from leaderboard.record.read import RECORDS
from pezoo.registry import entries

DOCS = Path(__file__).parent
MADE = DOCS / "reference"
SOURCE = os.environ.get("PEZOO_SOURCE", "")  # web address of the repository's files
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#8a4fb5")

project, author, root_doc = "pezoo", "The pezoo contributors", "index"
release = version = pezoo.__version__
extensions = ["sphinx.ext.autodoc", "myst_parser"]
myst_heading_anchors = 4
html_theme = "furo"
html_title = f"pezoo {release}"
exclude_patterns = ["_build"]
autodoc_typehints = "description"
autodoc_member_order = "bysource"
add_module_names = False


def write_pages() -> None:
    """Write one page for each encoding and task, and one for the other names of `pezoo`."""
    shutil.rmtree(MADE, ignore_errors=True)
    own = {name: entry for name, entry in entries().items() if entry.plugin is None}
    classes = {entry.cls for entry in own.values()}
    listed = [name for name in pezoo.__all__ if name not in classes]
    _page("names", "Names of pezoo", "".join(map(_name, listed)))
    for name, entry in own.items():
        body = _directive("autoclass", f"{entry.module}.{entry.cls}")
        _page(
            f"encoding/{name}",
            name,
            _picture(name) + body + _board("encoding", name, f"*/*/{name}"),
        )
    for name in tasks.names():
        cls = type(tasks.make(name))
        body = _directive("autoclass", f"{cls.__module__}.{cls.__qualname__}")
        _page(f"task/{name}", name, body + _board("task", name, f"*/{name}/*"))


def _page(path: str, title: str, body: str) -> None:
    file = MADE / f"{path}.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"# {title}\n\n{body}", encoding="utf-8")


def _name(name: str) -> str:
    found = getattr(pezoo, name)
    kind = "autoexception" if name.endswith("Error") else "autoclass"
    members = ":members:\n" if isinstance(found, type) else ""
    kind = kind if isinstance(found, type) else "autofunction"
    return f"## {name}\n\n" + _directive(kind, f"{found.__module__}.{name}", members)


def _directive(kind: str, what: str, options: str = "") -> str:
    return f"```{{eval-rst}}\n.. {kind}:: {what}\n   {options}\n```\n\n"


def _board(kind: str, name: str, records: str) -> str:
    """Return a link to the leaderboard's page, which stands beside this site, if it has one."""
    if not any(RECORDS.glob(records)):
        return ""
    return f'<p><a href="../../leaderboard/{kind}/{name}.html">{name} on the leaderboard</a></p>\n'


def _picture(name: str) -> str:
    own = card(name)
    lines = "".join(
        f'<path d="{line}" fill="none" stroke="{colour}" stroke-width="1.6"/>'
        for line, colour in zip(own.lines, COLOURS, strict=False)
    )
    if not lines:
        return ""
    return (
        f'<p><svg viewBox="-2 -2 {WIDTH + 4} {HEIGHT + 4}" width="400" role="img" '
        f'aria-label="four heads over the distance">{lines}</svg><br>What four new heads add to '
        f"the logits of equal tokens, 0 to 63 back: {own.low:.3g} to {own.high:.3g}.</p>\n\n"
    )


def as_rst(app, what, name, obj, options, lines) -> None:
    """Turn a docstring into reStructuredText: paragraphs, examples, and blocks as typed."""
    found = []
    for block in re.split(r"\n\s*\n", cleandoc("\n".join(lines))):
        if block.lstrip().startswith(">>>"):
            found += [*cleandoc(block).splitlines(), ""]
        elif re.search(r"^ |\S   +\S", block, re.MULTILINE):
            found += ["::", "", *("    " + line for line in block.splitlines()), ""]
        else:
            found += [*map(_escaped, block.splitlines()), ""]
    lines[:] = found


def _escaped(line: str) -> str:
    parts = re.split(r"(`[^`]+`)", line)
    code = (
        rf"\ `{part}`\ " if at % 2 else re.sub(r"([\\*|_`])", r"\\\1", part)
        for at, part in enumerate(parts)
    )
    return "".join(code)


def links(app, docname, text) -> None:
    """Have links that leave docs/ lead to the repository's files, or be plain text."""
    here = (DOCS / docname).parent

    def to(match: re.Match) -> str:
        words, path = match[1], (here / match[2]).resolve()
        if path.is_relative_to(DOCS) and path.suffix in (".md", ".svg", ".png"):
            return match[0]
        inside = path.relative_to(DOCS.parent).as_posix()
        return f"[{words}]({SOURCE}/{inside})" if SOURCE else words

    text[0] = re.sub(r"(?<!!)\[([^\]]+)\]\((?!\w+:|#)([^)#\s]+)(?:#[^)]*)?\)", to, text[0])


def setup(app) -> None:
    app.connect("autodoc-process-docstring", as_rst)
    app.connect("source-read", links)
    write_pages()
