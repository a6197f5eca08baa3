"""The documentation runs: every python block of a page, in order, in one namespace.

So does every example of a docstring.

The pages also name no file that does not exist.
"""

import doctest
import re
from importlib import import_module
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]
PACKAGES = ("pezoo", "experiment", "harness", "leaderboard")
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)")
FOLDERS = "pezoo|harness|leaderboard|benchmarks|tests|docs|examples"
IN_TREE = re.compile(rf"(?:{FOLDERS})/[\w./*-]*\w*|[\w.-]+\.(?:md|toml)")
PLACEHOLDER = re.compile(r"(?<![a-zA-Z])[A-Z]+(?=[_./]|$)(?!\.md)")
OPTIONAL = ("transformers", "x_transformers")
GENERATED = ("leaderboard/site", "leaderboard/LEADERBOARD.md")


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[tuple[int, str]]:
    """(line, code) of each python block."""
    text = page.read_text(encoding="utf-8")
    return [
        (text.count("\n", 0, m.start(2)), m[2]) for m in FENCE.finditer(text) if m[1] == "python"
    ]


@pytest.fixture(autouse=True)
def some_records(monkeypatch) -> None:
    """In place of all: pages and docstrings name these alone."""
    from leaderboard.stats import frame

    monkeypatch.setattr(frame, "RECORDS", frame.RECORDS / "quick" / "copy")


@pytest.mark.parametrize("page", [*filter(blocks, PAGES)], ids=name)
def test_python_blocks_run(page: Path) -> None:
    space = {"__name__": "page"}
    for extra in OPTIONAL:
        if any(f"from {extra} import" in code for _, code in blocks(page)):
            pytest.importorskip(extra)
    for line, code in blocks(page):
        exec(compile("\n" * line + code, str(page), "exec"), space)


def modules() -> list:
    """Those that have an example in a docstring."""
    found = (path for one in PACKAGES for path in sorted((ROOT / one).rglob("*.py")))
    named = {".".join(p.relative_to(ROOT).with_suffix("").parts): p.read_text() for p in found}
    return [name for name, text in named.items() if ">>> " in text]


@pytest.mark.parametrize("module", modules())
def test_docstring_examples_run(module: str) -> None:
    found = import_module(module.removesuffix(".__init__"))
    result = doctest.testmod(found, extraglobs={"torch": torch})
    assert result.attempted > 0
    assert result.failed == 0


def test_pages_have_blocks() -> None:
    found = {name(page) for page in PAGES if blocks(page)}
    expected = {"use-in-your-model", "use-in-transformers", "add-an-encoding"}
    assert {f"docs/{page}.md" for page in expected} <= found


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_files_exist(page: Path) -> None:
    prose = FENCE.sub("", page.read_text(encoding="utf-8"))
    missing = [link for link in LINK.findall(prose) if not (page.parent / link).exists()]
    for span in SPAN.findall(prose):
        if not IN_TREE.fullmatch(span) or PLACEHOLDER.search(span) or span.startswith(GENERATED):
            continue
        if not list(ROOT.glob(span.rstrip("/"))):
            missing.append(span)
    assert not missing, f"{name(page)} names files that do not exist: {', '.join(missing)}"
