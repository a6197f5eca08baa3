"""What is written: tables, pictures, LEADERBOARD.md, the site. Hostile texts stay texts."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from leaderboard.build import build
from leaderboard.curves import curves
from leaderboard.files import csv_text, markdown_text, write
from leaderboard.groups import grouped
from leaderboard.looks import looks
from leaderboard.markdown import page
from leaderboard.site import script_json
from leaderboard.summary import summarise
from leaderboard.tables import headers, rows_as_csv, rows_as_lists, rows_as_markdown

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "a|b`c`\\|[x](javascript:1)",
    '=HYPERLINK("http://evil")',
    "{{ 7*7 }}{% raw %}",
    "]]></svg><!-- www.evil.com @someone",
]


@pytest.fixture
def rows(record):
    records = [record("rope", s) for s in (0, 1)]
    records.append(record("learned", right={10: 99, 15: "cannot represent", 20: "no instance"}))
    return summarise(records)


def test_headers_and_cells(rows):
    assert headers(rows) == [
        "rank", "encoding", "seeds", "10 (trained)", "15 (1.5x)", "20 (2x)", "unseen mean",
        "unseen tokens", "reach", "parameters", "steps/s",
    ]  # fmt: skip
    rope, learned = rows_as_lists(rows)
    assert rope[:4] == ["1", "rope", "2 (t)", "100.0 [100.0, 100.0]"]
    assert rope[6:] == ["70.0 [70.0, 70.0]", "85.0", "1.5x", "100000", "50.5"]
    assert learned[:3] == ["-", "learned", "1 (Wilson)"]
    assert learned[4:9] == ["cannot represent", "no instance", "cannot represent", "-", "1x"]
    assert rows_as_lists(rows, intervals=False)[0][3] == "100.0"
    assert rows_as_markdown(rows).count("\n") == 3


def test_rows_of_several_tables_are_refused(record):
    rows = summarise([record("rope"), record("rope", task="odds_first")])
    with pytest.raises(ValueError, match="do not share one table"):
        headers(rows)


def test_csv_has_one_line_per_length_with_raw_numbers(rows):
    lines = list(csv.DictReader(io.StringIO(rows_as_csv(rows))))
    assert len(lines) == 6
    first, word = lines[0], lines[4]
    assert (first["exact_mean"], first["interval"], first["count"]) == ("1", "t", "200")
    assert (word["status"], word["exact_mean"], word["correct"]) == ("cannot represent", "", "")


@pytest.mark.parametrize("text", ["=1", "+1", "-1", "@x", " =1", "'=1", "\uff1d1", "|calc"])
def test_no_csv_cell_starts_a_formula(text):
    assert csv_text(text) == f"'{text}"


@pytest.mark.parametrize("text", HOSTILE)
def test_markdown_shows_texts_as_they_are(text):
    import html

    made = markdown_text(text)
    assert html.unescape(made) == text
    assert not re.search(r"[<>|`\[\]\\*@\"]|://|(?i:www\.)", made)


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))


def test_hostile_texts_stay_texts_everywhere(raw, save, tmp_path):
    env = raw()["env"]
    records = [
        raw(text, env=env | {"device": text}, reason=text, config={"odd": text, text: 1})
        | {"provenance": {"command": text, "finished": "2026-01-01T00:00:00+00:00"}}
        for text in HOSTILE
    ]
    tame = [raw(f"name{at}") for at in range(len(HOSTILE))]
    reports = [
        build(None, save(*some, folder=name), tmp_path / f"{name}-out", tmp_path / name / "L.md")
        for name, some in (("bad", records), ("tame", tame))
    ]
    assert [report.records for report in reports] == [6, 6]
    assert reports[0].problems == ()
    html = (tmp_path / "bad-out" / "index.html").read_text()
    parser = Tags()
    parser.feed(html)
    assert {tag for tag, _ in parser.tags if tag in ("svg", "iframe", "object", "form")} == set()
    assert [a["src"] for t, a in parser.tags if t == "script"] == [
        "plotly.min.js", "data.js", "app.js",
    ]  # fmt: skip
    assert not any(name.startswith("on") for _, attrs in parser.tags for name in attrs)
    assert {a["src"].split("/")[0] for t, a in parser.tags if t == "img"} == {"pictures"}
    assert "{{ 7*7 }}" in html  # shown, not run
    data = (tmp_path / "bad-out" / "data.js").read_text()
    assert not set("<>&") & set(data)
    for picture in (tmp_path / "bad-out" / "pictures").iterdir():
        tree = ElementTree.fromstring(picture.read_text())
        kinds = {element.tag.rpartition("}")[2] for element in tree.iter()}
        assert kinds == {"svg", "title", "style", "rect", "text", "path"}
    text = (tmp_path / "bad" / "L.md").read_text()
    outside = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    assert "<" not in outside
    assert "not shown: the recorded command" in text
    for row in csv.reader(io.StringIO((tmp_path / "bad-out" / "leaderboard.csv").read_text())):
        assert not any(cell.startswith(("=", "+", "-", "@")) for cell in row)


def test_script_json_survives_every_text():
    text = "</script><!--\u2028\u2029&"
    made = script_json([text])
    assert json.loads(made) == [text]
    assert not set("<>&\u2028\u2029") & set(made)


def test_the_same_records_give_the_same_bytes(raw, save, tmp_path):
    records = [raw(name, seed) for name in ("rope", "prism") for seed in (0, 1)]
    orders = {"a": records, "b": records[::-1]}
    for name, some in orders.items():
        build(
            None, save(*some, folder=name), tmp_path / f"{name}-out", tmp_path / f"{name}-out/L.md"
        )
    first, second = (
        {p.relative_to(root): p.read_bytes() for p in root.rglob("*") if p.is_file()}
        for root in (tmp_path / "a-out", tmp_path / "b-out")
    )
    assert first == second
    assert not any(path.name.endswith(".tmp") for path in first)


def test_no_records_still_build_and_say_how_to_get_some(tmp_path):
    report = build(None, tmp_path, tmp_path / "out", tmp_path / "LEADERBOARD.md")
    assert (report.records, report.problems) == (0, ())
    for path in (tmp_path / "out" / "index.html", tmp_path / "LEADERBOARD.md"):
        assert "pezoo bench" in path.read_text()


def test_the_page_traces_numbers_to_runs_and_counts_refused_files(raw, save, failed, tmp_path):
    good, bad = raw("rope"), failed("rope", 1, "out of memory")
    report = build(save(good, folder="runs"), save(bad, "{"), tmp_path / "out", None)
    html = (tmp_path / "out" / "index.html").read_text()
    assert (report.records, len(report.problems)) == (2, 1)
    assert good["run"] in html
    assert bad["run"] in html
    assert "failed: out of memory" in html
    assert "1 file left out as invalid" in html
    assert 'href="#quick.copy.0"' in html
    assert '<details id="quick.copy.0">' in html


def test_the_page_needs_no_network(raw, save, tmp_path):
    build(None, save(raw()), tmp_path / "out", None)
    html = (tmp_path / "out" / "index.html").read_text()
    parser = Tags()
    parser.feed(html)
    links = [a.get("src") or a.get("href") for _, a in parser.tags if "src" in a or "href" in a]
    assert not [link for link in links if "//" in link]
    assert all(link.startswith("#") or (tmp_path / "out" / link).is_file() for link in links)
    assert "default-src 'none'; script-src 'self' file:;" in html


def test_markdown_page_has_pictures_and_commands(record):
    text = page(grouped([record("rope"), record("alibi")]))
    assert "## quick / copy" in text
    assert "(pictures/quick.copy.svg)" in text
    assert "```\npezoo bench --protocol quick --pe rope --task copy\n```" in text


def test_a_curve_ends_where_numbers_end(record):
    row = summarise([record("learned", right={5: 90, 10: 90, 15: "cannot represent", 20: 50})])[0]
    svg = curves("t", [row])
    assert "learned (cannot represent from 15)" in svg
    line = re.search(r'<path class="c" d="([^"]*)"', svg)
    assert line.group(1).count("M") == 2  # one stretch before the gap, one after
    assert "longest length in training" in svg


def test_a_picture_of_nothing_is_still_a_picture():
    ElementTree.fromstring(curves("nothing & more", []))


def test_looks_differ_and_do_not_depend_on_order():
    labels = [f"e{at}" for at in range(28)]
    assert len({(look.colour, look.dash) for look in looks(labels).values()}) == 28
    assert looks(labels) == looks(labels[::-1])


def test_write_leaves_the_old_file_when_it_fails(tmp_path: Path, monkeypatch):
    path = write(tmp_path / "new" / "a.txt", "old")

    def broken(*_):
        raise OSError("disk full")

    monkeypatch.setattr("leaderboard.files.os.replace", broken)
    with pytest.raises(OSError, match="disk full"):
        write(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in path.parent.iterdir()] == ["a.txt"]


def test_torch_is_not_imported():
    code = "import sys, leaderboard.build; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
