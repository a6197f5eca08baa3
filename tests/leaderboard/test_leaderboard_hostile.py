"""Pages built from random and malicious records: texts stay texts, cells start no formula."""

from __future__ import annotations

import csv
import io
import json
import re
from copy import deepcopy
from xml.etree import ElementTree

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_records import KNOWN, markdown
from parsed import Page

from experiment.files import slug
from leaderboard.catalog import Catalog
from leaderboard.check import check
from leaderboard.escape import csv_text, hidden, shown
from leaderboard.record.read import Record, load
from leaderboard.render import site
from leaderboard.stats.tables import tables

SNIPPETS = [
    "<script>alert(1)</script>", "</script><script>alert(1)//", '" onmouseover="alert(1)',
    "'><img src=x onerror=alert(1)>", "javascript:alert(1)", "{{ 7*7 }}", "{% raw %}", "${1}",
    "=1+1", "+cmd|' /C calc'!A0", "@SUM(1)", "-2+3", "]]>", "<!--", "%{x}", "__proto__",
    "constructor", "a.b/../c", "<a href='https://evil'>x</a>", "&lt;b&gt;", "\\u003c",
]  # fmt: skip
visible = st.characters(exclude_categories=["Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"])
texts = st.one_of(
    st.sampled_from(SNIPPETS),
    st.text(visible, min_size=1, max_size=60),
    st.tuples(st.text(visible, max_size=9), st.sampled_from(SNIPPETS)).map("".join),
)
shares = st.integers(0, 100)


@given(st.one_of(texts, st.text(max_size=60)))
def test_a_shown_text_is_one_line_without_hidden_characters(text):
    words = "".join(" " if hidden(char) else char for char in text).split()
    assert shown(text) == " ".join(words)
    assert not any(map(hidden, shown(text)))


@st.composite
def hostile(draw, raw):
    """A record that passes the schema and is as bad as that allows."""
    text = lambda: draw(texts)  # noqa: E731
    right = {10: draw(st.integers(0, 99)), 20: draw(shares | st.just("cannot represent"))}
    one = raw(text(), draw(st.integers(0, 3)), right)
    one["env"] |= {
        "device": text(),
        "torch": text(),
        "commit": text(),
        "kernels": {"layer": text()},
    }
    one["env"] |= dict.fromkeys(("numpy", "triton", "cuda", "platform", "cpu"), text())
    one["reason"], one["provenance"]["command"] = text(), text()
    answer = {"prompt": text(), "expected": text(), "given": text()}
    one["scores"]["last"][0]["wrong"] = [answer]
    if draw(st.booleans()):
        one["modes"] = {"snapped": one["scores"]}
    if draw(st.booleans()):
        one |= {"status": "failed", "scores": {"last": []}, "modes": {}}
    return one


OURS = {
    "html", "head", "meta", "title", "link", "script", "body", "a", "header", "span", "nav", "main",
    "button", "p", "h1", "h2", "h3", "div", "dl", "dt", "dd", "code", "pre", "details", "summary",
    "section", "table", "thead", "tbody", "tr", "th", "td", "noscript", "img", "br", "ul", "li",
    "footer", "b", "i", "em", "sub", "sup", "fieldset", "legend", "figure", "svg", "path", "text",
    "tspan", "tfoot", "caption", "rect", "small",
}  # fmt: skip
NAMES = {
    "aria-current", "aria-label", "aria-labelledby", "aria-live", "charset", "class", "content",
    "data-encoding", "data-name", "data-root", "data-table", "data-task", "defer", "download",
    "hidden", "href", "http-equiv", "id", "lang", "name", "open", "rel", "role", "scope", "src",
    "data-budget", "data-budgets", "data-kind", "data-model",
    "data-base", "data-curves", "data-headline", "data-label", "aria-pressed", "value",
    "tabindex", "type", "alt", "colspan", "property", "title", "aria-hidden",
    "d", "fill", "height", "stroke", "stroke-dasharray", "stroke-dashoffset", "transform",
    "viewbox", "width", "x", "xmlns", "y", "style",
}  # fmt: skip


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_a_record_holds_pages_hold_only_our_markup(data, raw, tmp_path_factory):
    drawn = data.draw(st.lists(hostile(raw), min_size=1, max_size=4))
    records = [Record.of(one) for one in drawn]
    out = tmp_path_factory.mktemp("site")
    found = tables(records)
    for path in site.build(found, records, out, catalog=Catalog()):
        assert path.resolve().is_relative_to(out.resolve())
        if path.suffix == ".html":
            page = Page(path)
            assert {tag for tag, _ in page.tags} <= OURS
            assert {name for _, attributes in page.tags for name in attributes} <= NAMES
            assert all(
                re.fullmatch(r"--share: [01](\.\d{1,3})?", look) for look in page.all("style")
            )
            links = page.all("href") + page.all("src")
            assert not [link for link in links if re.match(r"(?!data:image/svg)[^/#]*:", link)]
            assert all((path.parent / source).is_file() for source in page.all("src"))
        elif path.suffix == ".svg":
            ElementTree.parse(path)
        elif path.suffix in (".js", ".json") and path.parent == out:
            assert not set("<>&") & set(path.read_text(encoding="utf-8"))
        elif path.suffix == ".csv":
            for row in csv.reader(io.StringIO(path.read_text(encoding="utf-8"))):
                assert not [cell for cell in row if cell[:1] in "=+-@|%" and cell]
    outside = re.sub(r"(?ms)^(`{3,})\n.*?^\1\n", "", markdown(found))
    assert "<" not in re.sub(r"</?details>|</?summary>", "", outside)


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=True), texts, st.text(),
    st.lists(st.integers(), max_size=3), st.just("x" * 100_000), st.just([[[[[[1]]]]]]),
    st.just(10**400), st.just(-0.0), st.just({"a": {"b": "<b>"}}),
)  # fmt: skip


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_check_never_raises_and_names_the_file(data, raw, save):
    one = raw()
    for _ in range(data.draw(st.integers(1, 2))):
        place = one
        while isinstance(place, dict) and data.draw(st.booleans(), label="deeper"):
            inner = [value for value in place.values() if isinstance(value, dict) and value]
            if not inner:
                break
            place = data.draw(st.sampled_from(inner))
        place[data.draw(st.sampled_from(sorted(place)))] = deepcopy(data.draw(VALUES))
    folder = save(json.dumps(one))
    report = check([folder], KNOWN)
    records, problems = load([folder])
    assert len(records) + len(problems) == 1
    assert report.records == 1
    assert len(report.refused) <= 1
    assert not problems or "000.json: " in report.refused[0]
    assert all(len(line) < 5000 and line.isprintable() for line in report.refused)


@given(texts | st.text())
def test_a_csv_cell_starts_no_formula_and_loses_no_letter(text):
    made = csv_text(text)
    assert made in (text, f"'{text}")
    assert made.lstrip(" '\"\t\r\n")[:1] not in ("=", "+", "-", "@") or made.startswith("'")


@given(st.lists(texts | st.text(), min_size=2, max_size=6, unique=True))
def test_file_names_are_plain_and_different(names):
    made = [slug(name) for name in names]
    assert len({one.lower() for one in made}) == len(names)
    assert all(re.fullmatch(r"[a-z0-9_+-]{1,80}", one) for one in made)
