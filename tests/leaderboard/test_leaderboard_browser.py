"""The site in a real browser, from the disk: what people do with it, and that nothing leaks.

Needs playwright and a Chromium (PEZOO_CHROMIUM, or chromium on the path); skipped without.
"""

from __future__ import annotations

import csv
import functools
import gzip
import http.server
import io
import json
import os
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pytest
from made_records import KNOWN, text_record, tuned_record

from leaderboard.build import build as build_site
from leaderboard.catalog import PRFMaps
from leaderboard.record.read import Record, load
from leaderboard.render import site
from leaderboard.stats.comparisons import holm
from leaderboard.stats.costs import measured
from leaderboard.stats.ranks import comparisons
from leaderboard.stats.tables import tables
from leaderboard.text import percent

playwright = pytest.importorskip(
    "playwright.sync_api", reason="browser tests need playwright: pip install -e '.[test]'"
)
NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = os.environ.get("PEZOO_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        CHROMIUM is None, reason="browser tests need Chromium: apt-get install chromium"
    ),
]
MATRIX = tuple(tuple(i - j for j in range(9)) for i in range(9))
PRISM = replace(
    KNOWN.encodings["prism"],
    prf_maps=PRFMaps((("most probable", MATRIX), ("second", MATRIX)), "what it is"),
)
build = partial(build_site, catalog=replace(KNOWN, encodings=KNOWN.encodings | {"prism": PRISM}))


HOSTILE = [
    "<script>window.pwned=1</script>",
    '"><img src=x onerror=window.pwned=1>',
    "<a href='javascript:window.pwned=1'>x</a>",
    "<svg onload=window.pwned=1>",
    "</script><script>window.pwned=1</script>",
    "<img src=https://evil.example/x>",
    "=HYPERLINK(1)",
    "__proto__",
    "constructor",
    "%{x}<br><b>x</b>",
]


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as tool:
        browser = tool.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


WRONG = {"prompt": "12=", "expected": "12", "given": "13"}
LONG = "rope(base=20000.0,layout=half,rope_parameters=default)"


def example_records(raw):
    """Five seeds of five encodings on two tasks, a mode, a failure, a grid, a second protocol."""
    right = {
        "rope": {10: 95, 15: 20, 20: 0},
        "alibi": {10: 95, 15: 60, 20: 20},
        "prism": {10: 100, 15: 95, 20: 80},
        "learned": {10: 99, 15: "cannot represent", 20: "cannot represent"},
    }
    for task in ("copy", "reverse"):
        for name, scores in {**right, LONG: right["rope"]}.items():
            for seed in range(5):
                own = {n: v if isinstance(v, str) else max(0, v - seed) for n, v in scores.items()}
                one = raw(name, seed, own, task=task)
                if name == "prism":
                    one["modes"] = {"snapped": raw(right={10: 100, 15: 99, 20: 97})["scores"]}
                    for own in (one["scores"], one["modes"]["snapped"]):
                        own["last"][1]["wrong"] = [WRONG]
                yield one
    yield raw("t5", 0, task="copy", status="failed", reason="diverged", scores={"last": []})
    slow = {"train": {"steps": 1500, "lengths": [1, 10], "lr": 0.1}}
    for name in ("rope", "alibi"):
        yield raw(name, 0, {10: 100, 15: 50, 20: 40}, protocol="quick+ab12cd", config=slow)
    yield raw("rope", 0, protocol="prism2025")


@pytest.fixture(scope="module")
def example(raw, tmp_path_factory):
    """A site in a folder whose name needs escaping in an address."""
    folder = tmp_path_factory.mktemp("a folder #1 % ü")
    for at, one in enumerate(example_records(raw)):
        (folder / f"{at:03}.json").write_text(json.dumps(one), encoding="utf-8")
    report = build(None, folder, folder / "site", None)
    assert report.problems == ()
    return folder


class Visit:
    """A page with everything that went wrong on it."""

    def __init__(self, context) -> None:
        context.set_default_timeout(120_000)  # for machines that are busy
        self.page = context.new_page()
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda m: self.errors.append(f"{m.type}: {m.text}"))
        self.page.on("pageerror", lambda e: self.errors.append(str(e)))
        self.page.on("requestfailed", self._failed)
        self.page.on("request", lambda r: self.requests.append(r.url))
        self.page.on("dialog", lambda d: self.errors.append(f"dialog: {d.message}"))

    def open(self, path: Path, state: str = "", drawn: bool = True):
        """Another visit, also where only the state differs; waits for the chart, if any."""
        self.page.goto("about:blank")
        self.page.goto(path.as_uri() + state)
        if drawn and self.page.locator(".plot").count():
            self.page.wait_for_selector(".plot .tip", state="attached")
        return self.page

    def _failed(self, request) -> None:
        if request.failure != "net::ERR_ABORTED":  # left the page before its chart came
            self.errors.append(f"failed: {request.url}: {request.failure}")

    def until(self, condition: Callable[[], bool], seconds: float = 60) -> None:
        """Wait from outside: a wait inside the page needs eval, which its policy forbids."""
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"not so within {seconds} s"
            self.page.wait_for_timeout(20)

    def names(self) -> list[str]:
        """The encodings of the table, from top to bottom, without their badges."""
        return self.page.locator(".grid .name > a").all_inner_texts()

    def column(self, name: str) -> list[str]:
        heads = self.page.locator("#table thead th").all_inner_texts()
        (at,) = [n for n, head in enumerate(heads) if head.split("\n")[0].strip(" ▲▼") == name]
        cells = self.page.locator(f"#table tbody tr > :nth-child({at + 1})")
        return [text.split("\n")[0].strip() for text in cells.all_inner_texts()]


@pytest.fixture
def visit(browser):
    context = browser.new_context(viewport={"width": 1280, "height": 800}, accept_downloads=True)
    visit = Visit(context)
    yield visit
    context.close()
    assert visit.errors == []
    assert [url for url in visit.requests if not url.startswith(("file:", "data:", "blob:"))] == []


def kinds(root: Path) -> list[Path]:
    """One page of every kind."""
    folders = [next(iter(sorted((root / name).glob("*.html")))) for name in ("task", "run")]
    names = ("task/reverse", "task/addition", "encoding/prism", "encoding/rope", "encoding/lbpe")
    return [*sorted(root.glob("*.html")), *folders, *(root / f"{name}.html" for name in names)]


def drawn(page, task):
    """The box of a task whose curves compare.html draws."""
    return page.get_by_role("group", name="Curves of these tasks").get_by_label(task, exact=True)


def test_every_kind_of_page_opens_from_the_disk_names_its_controls_and_fits(visit, example):
    """On a narrow screen; the other tests open the same pages on a wide one."""
    visit.page.set_viewport_size({"width": 390, "height": 844})
    for path in kinds(example / "site"):
        page = visit.open(path)
        assert page.locator("h1").count() == 1
        named(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
        assert visit.errors == [], path


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_positional_relation_is_a_picture_in_the_pages_colours_with_its_numbers(
    visit, example, scheme
):
    visit.page.emulate_media(color_scheme=scheme)
    page = visit.open(example / "site" / "encoding" / "prism.html")
    nodes = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]
    told = {
        node["name"]["value"]: node.get("description", {}).get("value", "")
        for node in nodes
        if node.get("role", {}).get("value") == "image"
    }
    rows = told["Positional relation function of prism, second"]
    assert "Query 2, keys from 0: 2, 1, 0, -1," in rows
    looks = "e => [getComputedStyle(e).fill, getComputedStyle(document.body).color]"
    ink, body = page.locator(".prf text.mid:not(.s)").first.evaluate(looks)
    assert ink == body
    heat = page.locator(".prf rect").first.evaluate("e => getComputedStyle(e).fill")
    assert heat == {"light": "rgb(0, 114, 178)", "dark": "rgb(64, 156, 214)"}[scheme]


ROLES = {"button", "link", "checkbox", "combobox", "searchbox", "region", "columnheader", "image"}


def named(page):
    nodes = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]
    found = [n for n in nodes if n.get("role", {}).get("value") in ROLES and not n.get("ignored")]
    assert len(found) > 5
    nameless = [node for node in found if not node.get("name", {}).get("value", "").strip()]
    assert nameless == []


def test_the_first_screen_has_bare_encodings_best_first(visit, example):
    page = visit.open(example / "site" / "index.html")
    assert visit.names() == ["prism", "alibi", "rope", "learned", "t5"]
    page.get_by_label("show variants (1)").check()
    page.get_by_label("show evaluation modes").check()
    names = visit.names()
    assert names[:2] == ["prism", "snapped"]  # below the weights that it evaluates
    assert "rope [a]" in names
    snapped = page.locator(".grid tbody tr.sub").first.inner_text().split("\t")
    assert snapped[1].strip() == ""  # no rank
    assert LONG in page.inner_text("#legend")
    assert "† on 2 of these tasks" in page.locator(".grid tbody tr").first.inner_text()
    assert "prism on copy and reverse" in page.inner_text("#disclosure")
    assert page.locator(".grid thead tr").nth(1).inner_text().split() == ["seeds", "5", "5"]


def test_sort_by_mouse_and_keyboard_and_follow_the_permalink(visit, example):
    page = visit.open(example / "site" / "index.html", "#modes=1")
    assert visit.names() == ["prism", "snapped", "alibi", "rope", "learned", "t5"]
    page.get_by_role("button", name="x rope").click()
    page.wait_for_url(lambda url: "sort=ratio-asc" in url)
    page.get_by_role("button", name="encoding").focus()
    page.keyboard.press("Enter")
    page.wait_for_url(lambda url: url.endswith("#modes=1&sort=encoding-asc"))
    names = ["alibi", "learned", "prism", "snapped", "rope", "t5"]
    assert visit.names() == names
    head = page.locator(".grid thead th").first
    assert head.get_attribute("aria-sort") == "ascending"
    visit.open(example / "site" / "index.html", "#modes=1&sort=encoding-asc")
    visit.until(lambda: visit.names() == names)
    page.evaluate("location.hash = '#modes=1&sort=encoding-desc'")  # a link within the page
    visit.until(lambda: visit.names()[:1] == ["t5"])


def test_filters_are_in_the_history_and_go_along(visit, example):
    page = visit.open(example / "site" / "index.html")
    page.get_by_role("combobox", name="Protocol").select_option("prism2025")
    page.wait_for_url(lambda url: "protocol=prism2025" in url)
    visit.until(lambda: visit.names() == ["rope"])  # that protocol's tables load
    page.get_by_role("link", name="Cost").click()
    page.wait_for_url(lambda url: "cost.html" in url and "protocol=prism2025" in url)
    page.go_back()
    page.go_back()
    visit.until(lambda: visit.names()[:1] == ["prism"])  # what was seen before
    page.get_by_label("show variants").check()
    page.get_by_label("show evaluation modes").check()
    page.get_by_label("Search").fill("alib")
    assert visit.names() == ["alibi"]
    assert "1 of 7 rows" in page.inner_text(".count")
    page.wait_for_url(lambda url: "q=alib" in url)
    visit.open(example / "site" / "index.html", "#" + page.url.partition("#")[2])
    assert visit.names() == ["alibi"]
    page = visit.open(example / "site" / "task" / "reverse.html")
    page.get_by_role("link", name="Compare").click()
    assert drawn(page, "reverse").is_checked()
    assert not drawn(page, "copy").is_checked()


def test_a_tuned_table_says_what_was_chosen_and_what_it_cost(visit, raw, save, tmp_path):
    plain = [raw(name, seed) for name in ("rope", "alibi") for seed in range(2)]
    tuned = [tuned_record("rope", seed) for seed in range(2)]
    tuned += [tuned_record("alibi", seed, lr=0.001) for seed in range(2)]
    build(None, save(*plain, *tuned), tmp_path / "site", None)
    page = visit.open(tmp_path / "site" / "task" / "copy.html")
    words = "tuned: lr of 0.001, 0.003; steps of 1000, 1500"
    page.get_by_label("Settings").select_option(label=words)
    assert words in page.inner_text("#facts")
    for name, chosen in (("rope", "lr=0.003, steps=1500"), ("alibi", "lr=0.001, steps=1500")):
        row = page.locator("#table .grid tbody tr", has_text=name).inner_text()
        assert f"{chosen}of 4 tried, 120 CPU-seconds" in row.replace("\n", "")
    page = visit.open(tmp_path / "site" / "encoding" / "rope.html")
    page.get_by_label("Settings").select_option(label=words)
    assert "lr=0.003, steps=1500of 4 tried" in page.inner_text("#table").replace("\n", "")


def test_changed_settings_are_tables_of_their_own(visit, example):
    page = visit.open(example / "site" / "task" / "copy.html")
    options = page.get_by_label("Settings").locator("option").all_inner_texts()
    assert options == ["the protocol's own", "quick, learning rate 0.1"]
    page.get_by_label("Settings").select_option("quick+ab12cd")
    assert visit.names()[0] == "prism (protocol's own)"
    assert {"alibi", "rope"} <= set(visit.names())
    assert "unranked" in page.inner_text("#facts")
    rank = dict(zip(visit.names(), visit.column("rank"), strict=True))
    assert (rank["alibi"][0], rank["prism (protocol's own)"]) == ("1", "")
    page.get_by_label("beside the protocol's rows, unranked").uncheck()
    assert visit.names() == ["alibi", "rope"]
    assert "(quick+ab12cd)" in page.inner_text("#facts")
    assert page.locator(".table-facts.chosen").inner_text().count("train.lr = 0.1") == 1


def test_the_link_of_a_comparison_opens_on_its_runs(visit, example):
    found = [one for one in load([example])[0] if one.protocol == "quick+ab12cd"]
    link = site.address(example / "site", {record.run for record in found})
    path, _, state = link.partition("#")
    page = visit.open(Path(url2pathname(urlsplit(path).path)), "#" + state)
    chosen = page.get_by_label("Settings").locator("option:checked").inner_text()
    assert chosen == "quick, learning rate 0.1"
    labels = page.locator("#picks input:checked").evaluate_all("all => all.map((n) => n.value)")
    assert labels == ["alibi", "rope"]
    assert visit.names() == ["alibi", "rope"]
    facts = visit.open(example / "site" / "run" / f"{found[0].run}.html").inner_text("dl")
    assert "quick, learning rate 0.1 (quick+ab12cd)" in facts
    assert "train.lr = 0.1" in facts
    several = site.address(
        example / "site", {one.run for one in load([example])[0] if one.protocol == "quick"}
    )
    assert "index.html#protocol=quick&tuning=protocol" in several


def test_other_seeds_stand_below_their_encoding_without_a_rank(visit, raw, save, tmp_path):
    runs = [raw(name, 0) for name in ("alibi", "nope", "rope", "t5")]
    runs += [raw("rope", seed, {10: 100, 15: 100, 20: 99}) for seed in range(40, 43)]
    build(None, save(*runs), tmp_path / "site", None)
    page = visit.open(tmp_path / "site" / "index.html")
    assert visit.names() == ["alibi", "nope", "rope", "t5"]
    assert page.locator(".badge", has_text="few seeds").count() == 0  # all have few
    page.get_by_label("show evaluation modes and other seeds").check()
    assert visit.names() == ["alibi", "nope", "rope", "seeds 40-42", "t5"]
    row = page.locator(".grid tbody tr.sub").inner_text()
    assert "other seeds" in row
    assert row.split("\t")[1].strip() == ""


def test_words_are_never_zero(visit, example):
    page = visit.open(example / "site" / "index.html")
    assert (
        "cannot represent" in page.locator("#map tbody tr", has_text="learned 2 of 2").inner_text()
    )
    assert "failed" in page.locator("#map").get_by_role("row", name="t5 ").inner_text()
    assert "not run" in page.locator("#map").get_by_role("row", name="t5 ").inner_text()
    visit.open(example / "site" / "task" / "copy.html")
    assert visit.column("20 (2x)")[-2:] == ["cannot represent", "failed"]


def saved(page, press) -> tuple[str, bytes]:
    with page.expect_download() as download:
        press.click()
    return download.value.suggested_filename, Path(download.value.path()).read_bytes()


def test_downloads_of_tables_and_charts(visit, example):
    page = visit.open(example / "site" / "task" / "copy.html", "#modes=1")
    tools = page.locator("#table .tools")
    name, data = saved(page, tools.get_by_role("button", name="CSV"))
    rows = list(csv.DictReader(io.StringIO(data.decode())))
    assert name == "quick.copy.table.csv"
    assert rows[1]["encoding"] == "prism (snapped)"
    assert float(rows[1]["20 (2x)"]) == 97  # the column says percent
    assert float(rows[0]["unseen mean, low"]) < float(rows[0]["unseen mean, %"])
    for column in ("20 (2x)", "reach", "rank"):  # numbers, or nothing
        assert all(not row[column] or float(row[column]) >= 0 for row in rows), column
    assert {row["note"] for row in rows} >= {"cannot represent", ""}
    assert "gates are rounded" in rows[1]["marks"]
    assert rows[0]["rank, last"] == "1"
    _, data = saved(page, tools.get_by_role("button", name="JSON"))
    assert json.loads(data)[1]["encoding"] == "prism (snapped)"
    _, data = saved(page, page.get_by_role("button", name="Download the chart as SVG"))
    assert data.startswith(b"<svg")
    assert b"prism" in data
    assert b"var(" not in data
    _, data = saved(page, page.get_by_role("button", name="Download the chart as PNG"))
    assert data.startswith(b"\x89PNG")


def test_the_chart_has_its_numbers_beside_it_and_seeds_on_demand(visit, example):
    page = visit.open(example / "site" / "task" / "copy.html")
    page.get_by_text("Data of this chart as a table").click()
    assert page.locator("#curve td", has_text="0.78").count() >= 1
    seeds = page.locator("#curve .seed")
    assert seeds.count() == 0
    page.get_by_label("every seed").check()
    assert seeds.count() == 5 * 4  # a line per seed and encoding
    page.wait_for_url(lambda url: "dots=1" in url)
    page.get_by_role("combobox", name="Curve", exact=True).select_option("beside")
    assert "baseline" in page.locator("#curve svg").text_content()
    page.locator("#picks label", has_text="alibi").uncheck()
    page.wait_for_url(lambda url: "pick=prism" in url)
    assert "alibi" not in page.locator("#curve svg").text_content()


def test_curves_that_coincide_are_all_named(visit, raw, save, tmp_path):
    same = [raw(name, seed) for name in ("rope", "alibi") for seed in range(2)]
    build(None, save(*same), tmp_path / "site", None)
    page = visit.open(tmp_path / "site" / "task" / "copy.html")
    assert page.locator("#curve .band:visible").count() == 0
    mark = page.locator("#curve .series .m").first.bounding_box()
    page.mouse.move(mark["x"] + 3, mark["y"] + 3)
    tip = page.locator(".tip").inner_text()
    assert "rope" in tip
    assert "alibi" in tip
    assert page.locator("#curve .series.on").count() == 2


def test_an_encoding_has_one_colour_everywhere(visit, example):
    colour = "#curve .series .m[fill='{}']"
    visit.open(example / "site" / "index.html", drawn=False)
    fill = visit.page.evaluate("PZ.look('alibi')[0]")
    for name in ("task/copy.html", "compare.html#pick=alibi&pick=rope"):
        page_, _, state = name.partition("#")
        page = visit.open(example / "site" / page_, "#" + state)
        assert page.locator(colour.format(fill)).count() > 2


def test_a_page_does_not_jump_when_its_chart_is_drawn(browser, example):
    heights = []
    for scripts in (False, True):
        context = browser.new_context(
            java_script_enabled=scripts, viewport={"width": 1280, "height": 800}
        )
        page = context.new_page()
        page.goto((example / "site" / "task" / "copy.html").as_uri())
        box = page.locator("#curve .plot").bounding_box()
        heights.append((box["width"], box["height"]))
        assert page.locator("#curve svg text", has_text="prism").count() >= 1
        context.close()
    assert heights[0] == heights[1]


def test_dark_and_light(visit, example):
    page = visit.open(example / "site" / "task" / "copy.html")
    ground = "getComputedStyle(document.body).backgroundColor"
    ink = "getComputedStyle(document.querySelector('#curve text.mid:not(.s)')).fill"
    assert page.evaluate(ground) == "rgb(255, 255, 255)"
    page.get_by_role("button", name="Switch to the dark theme").click()
    dark = page.evaluate(ground)
    assert dark == "rgb(20, 23, 27)"
    assert page.evaluate(ink) == "rgb(231, 234, 237)"
    page.reload()
    assert page.evaluate(ground) == dark  # kept
    page.get_by_role("button", name="Switch to the light theme").click()
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(ground) == "rgb(255, 255, 255)"  # the choice wins over the system
    page.evaluate("localStorage.clear()")
    page.reload()
    assert page.evaluate(ground) == dark


def test_pick_unpick_and_pick_again(visit, example):
    page = visit.open(example / "site" / "compare.html", "#pick=prism&pick=alibi")
    rows = page.locator("#table .grid tbody tr")
    names = page.locator("#picks input")
    assert rows.count() == 2  # two tasks, one pair
    for name in ("prism", "alibi"):
        page.locator(f'#picks input[value="{name}"]').uncheck()
    assert "Choose at least two" in page.inner_text("#table")
    for name in ("rope", "learned", "alibi"):
        page.locator(f'#picks input[value="{name}"]').check()
    assert rows.count() == 2 * 3
    drawn(page, "reverse").check()
    assert rows.count() == 2 * 3
    assert names.evaluate_all("all => all.filter((one) => one.checked).length") == 3
    page.go_back()
    visit.until(
        lambda: drawn(page, "copy").is_checked() and not drawn(page, "reverse").is_checked()
    )


def test_numbers_of_compare_subtract(visit, raw, save, tmp_path):
    some = [raw("rope", seed, {10: 100, 20: 90}) for seed in range(3)]
    more = [raw("rope", seed, {10: 100, 20: 100}) for seed in range(3, 9)]
    other = [raw("alibi", seed, {10: 100, 20: 4 * seed}) for seed in range(3)]
    build(None, save(*some, *more, *other), tmp_path / "site", None)
    page = visit.open(tmp_path / "site" / "compare.html", "#pick=rope&pick=alibi")
    numbers = {head: visit.column(head)[0] for head in ("first, %", "second, %", "difference")}
    first, second = float(numbers["first, %"]), float(numbers["second, %"])
    assert float(numbers["difference"].replace("−", "-")) == pytest.approx(first - second, abs=0.11)
    assert page.locator("#table").inner_text().count("shared seeds") == 1


def test_differences_are_a_matrix(visit, example):
    page = visit.open(example / "site" / "task" / "copy.html")
    cells = page.locator(".table-facts.chosen .signs tbody tr").first.locator("td")
    titles = cells.evaluate_all("all => all.map((one) => one.title)")
    assert "prism: better than alibi" in titles


def test_which_to_use_leads_to_tasks_and_encodings(visit, example):
    page = visit.open(example / "site" / "which.html")
    assert page.locator("#answers section:visible h2").all_inner_texts() == ["Copying"]
    page.get_by_role("combobox", name="Kind of task").select_option("reordering")
    assert "reverse" in page.inner_text("#answers section:visible")
    page.get_by_role("combobox", name="Model").select_option("extended")
    assert "trained with RoPE" in page.inner_text("#answers section:visible")
    page.go_back()
    page.go_back()
    page.locator("#answers section:visible").get_by_role("link", name="copy", exact=True).click()
    assert page.inner_text("h1") == "copy"


def test_the_encodings_picked_go_along(visit, example):
    def picked(page):
        return page.locator("#picks input:checked").evaluate_all("all => all.map((n) => n.value)")

    page = visit.open(example / "site" / "task" / "copy.html", "#curve=alibi&curve=rope")
    assert picked(page) == ["alibi", "rope"]
    for name in ("Cost", "Compare"):
        page.get_by_label("Pages").get_by_role("link", name=name).click()
        page.wait_for_selector(".plot .tip", state="attached")
    assert picked(page) == ["alibi", "rope"]
    page.locator("#picks input[value=learned]").check()
    page.get_by_label("Pages").get_by_role("link", name="Overview").click()
    page.locator("#tasks svg").first.wait_for()
    page.locator("#tasks a", has_text="reverse").click()
    page.wait_for_url("**/reverse.html*")
    page.wait_for_selector("#picks input", state="attached")
    assert sorted(picked(page)) == ["alibi", "learned", "rope"]


@pytest.mark.parametrize(
    ("show", "order"), [("cost", ["alibi", "rope", "prism"]), ("reach", ["prism", "alibi", "rope"])]
)
def test_what_the_overview_shows_decides_its_order_and_shading(
    visit, raw, save, tmp_path, show, order
):
    right = {"rope": {10: 95, 20: 80}, "alibi": {10: 95, 20: 95, 40: 0}, "prism": {10: 95, 20: 95}}
    seconds = {"rope": 10.0, "alibi": 20.0, "prism": 99.0}
    records = []
    for name, task in [(name, task) for name in right for task in ("copy", "reverse")]:
        one = raw(name, 0, {10: 95, 20: 0, 40: 0} | right[name], task=task)
        one["scores"]["last"][2] = one["scores"]["last"][1 if name == "prism" else 2] | {
            "length": 40
        }
        one["cost"]["cpu_seconds"] = seconds[name]
        records.append(one)
    build(None, save(*records), tmp_path / "site", None)
    page = visit.open(tmp_path / "site" / "index.html", f"#show={show}", drawn=False)
    assert visit.names() == order
    for task in (0, 1):
        shares = page.locator("#map tbody tr").evaluate_all(
            "(rows, at) => rows.map((row) => +[...row.querySelectorAll('.heat')][at]"
            ".style.getPropertyValue('--share'))",
            task,
        )
        assert shares == sorted(shares, reverse=True)
        assert shares[0] == 1
        assert shares[-1] < 0.6


def test_what_receives_more_than_the_sequence_is_never_the_best(visit, raw, save, tmp_path):
    right = {"ideal_sh": 100, "lbpe_sh": 99, "rope": 60, "alibi": 40}
    runs = [raw(name, seed, {10: 100, 20: n}) for name, n in right.items() for seed in range(3)]
    build(None, save(*runs), tmp_path / "site", None)
    page = visit.open(tmp_path / "site" / "task" / "copy.html")
    names = ["rope", "alibi", "ideal_sh", "lbpe_sh"]
    assert visit.names() == names
    assert [rank[0] for rank in visit.column("rank")] == ["1", "2", "–", "–"]
    badges = page.locator("#table .grid .badge").all_inner_texts()
    assert [text for text in badges if text in ("oracle", "receives the length")] == [
        "oracle",
        "receives the length",
    ]
    page = visit.open(tmp_path / "site" / "index.html", drawn=False)
    assert visit.names() == names
    assert "best: rope" in page.inner_text("#tasks")
    page = visit.open(tmp_path / "site" / "which.html")
    assert "the best is rope (1.0x) with a reach of 1x" in page.inner_text("#answers")
    assert "lbpe_sh" not in page.inner_text("#answers")
    assert "lbpe_sh (receives the length)" in page.inner_text("main")
    page = visit.open(tmp_path / "site" / "cost.html", "#cost=cpu_seconds")
    unbeaten = dict(zip(visit.names(), visit.column("unbeaten"), strict=True))
    assert [unbeaten[name] for name in names] == ["yes", "no", "no", "no"]


def test_every_encoding_can_be_sorted_and_searched(visit, example):
    page = visit.open(example / "site" / "which.html", "#sort=encoding-desc")
    names = page.locator("#every th[scope=row]").all_inner_texts()
    assert names == sorted(names, reverse=True)
    page.get_by_role("button", name="own parameters").click()
    heads = [
        head.split("\n")[0].rstrip(" ▲▼")
        for head in page.locator("#every thead th").all_inner_texts()
    ]
    cells = page.locator(f"#every tbody td:nth-child({heads.index('own parameters') + 1})")
    counts = [int(text.replace(",", "")) for text in cells.all_inner_texts() if text != "-"]
    assert len(counts) > 2
    page.get_by_label("Search").fill("prism")
    assert all("prism" in one for one in page.locator("#every tbody th").all_inner_texts())
    assert page.locator("#every tbody a").first.get_attribute("href") == "encoding/prism.html"
    assert counts == sorted(counts)


def test_every_page_discloses_and_keeps_the_choices(visit, example):
    for name in ("compare", "cost"):
        page = visit.open(example / "site" / f"{name}.html")
        assert "prism on copy" in page.inner_text("#disclosure")
    page = visit.open(example / "site" / "cost.html", "#protocol=prism2025&task=copy")
    for name in ("Which one?", "Method", "Compare"):
        page.get_by_label("Pages").get_by_role("link", name=name).click()
        address = f"/{name.lower().removesuffix(' one?')}.html#protocol=prism2025&task=copy"
        page.wait_for_url(lambda url, address=address: url.endswith(address))


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (390, "dark")])
def test_axe_finds_nothing_on_any_page(visit, example, width, theme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    visit.page.set_viewport_size({"width": width, "height": 800})
    paths = kinds(example / "site")
    if theme == "dark":  # colours and the narrow layout: one page of each layout will do
        paths = [p for p in paths if p.stem in ("index", "cost", "reverse", "prism")]
    alike = {"addition", "rope"}  # tasks and encodings that others of these pages stand for
    states = [(path, "") for path in paths if path.stem not in alike]
    states += [(example / "site" / "index.html", "#variants=1&modes=1")]
    visit.page.emulate_media(color_scheme=theme)
    options = {"preload": False, "rules": {"label-content-name-mismatch": {"enabled": True}}}
    for path, state in states:
        page = visit.open(path, state)
        found = axe.run(page, options=options).response["violations"]
        assert [(one["id"], [n["target"] for n in one["nodes"]]) for one in found] == [], path


def test_compare_has_the_differences_of_one_device(visit, raw, save, tmp_path):
    scores = {("rope", "cpu A"): 50, ("alibi", "cpu A"): 20, ("fox", "cpu B"): 90}
    runs = [
        raw(name, seed, {10: 100, 20: right + seed}) | {"env": raw()["env"] | {"device": device}}
        for (name, device), right in scores.items()
        for seed in range(3)
    ]
    build(None, save(*runs), tmp_path / "site", None)
    pick = "#task=copy&pick=rope&pick=alibi&pick=fox"
    for device, pairs in (("", 3), ("&device=cpu A", 1)):
        page = visit.open(tmp_path / "site" / "compare.html", pick + device)
        lines = page.locator("#table .grid tbody tr", has_text="copy").all_inner_texts()
        assert len(lines) == pairs
        assert all(" is better" in line for line in lines)


def test_compare_corrects_for_the_pairs_with_a_reference(visit, example):
    picks = ["prism", "alibi", "rope"]
    at = "#task=copy&against=prism" + "".join(f"&pick={name}" for name in picks)
    page = visit.open(example / "site" / "compare.html", at)
    found = {table.slug: table for table in tables(load([example])[0])}
    rows = {row.label: row for row in found["quick.copy"].rows}
    own = [one for one in comparisons([*rows.values()]) if "prism" in (one.first, one.second)]
    other = [one.second if one.first == "prism" else one.first for one in own]
    family = {
        name: one.p for name, one in zip(other, own, strict=True)
        if one.p is not None and rows[name].competes
    }  # fmt: skip
    adjusted = dict(zip(family, holm([*family.values()]), strict=True))
    lines = page.locator("#table .grid tbody tr", has_text="copy").all_inner_texts()
    assert len(lines) == 2
    for line, name in zip(lines, ["alibi", "rope"], strict=True):
        p = adjusted[name]
        assert name in line
        assert ("< 0.0001" if p < 1e-4 else f"{p:.4f}") in line
        assert (" is better" in line) == (p < 0.05)


def test_compare_has_the_paired_differences_of_python(visit, example):
    pick = "#task=copy&pick=prism&pick=alibi&pick=rope&pick=learned"
    page = visit.open(example / "site" / "compare.html", pick)
    found = {table.slug: table for table in tables(load([example])[0])}
    found = {(c.first, c.second): c for c in comparisons(found["quick.copy"].rows)}
    lines = page.locator("#table .grid tbody tr", has_text="copy").all_inner_texts()
    (line,) = [one for one in lines if "prism" in one and "alibi" in one]
    pair = found["alibi", "prism"]
    stat = pair.difference  # the page has prism first
    assert f"{pair.adjusted:.4f}" in line or (pair.adjusted < 1e-4 and "< 0.0001" in line)
    assert f"+{percent(-stat.mean)}" in line
    assert f"[+{percent(-stat.high)}, +{percent(-stat.low)}]" in line
    checked = 0
    for pair in found.values():
        p = pair.adjusted
        for one in lines:
            if pair.first in one and pair.second in one:
                better = {1: pair.first, -1: pair.second}.get(pair.sign)
                assert (f"{better} is better" if better else "not distinguishable") in one
                assert ("< 0.0001" if p < 1e-4 else f"{p:.4f}") in one
                checked += 1
    assert checked == 3  # prism, alibi and rope
    (line,) = [one for one in lines if "learned" in one and "rope" in one]
    assert "fewer than two shared seeds: no statement" in line
    assert "cannot represent" in line
    page.get_by_role("checkbox", name="alibi").uncheck()
    page.wait_for_url(lambda url: "pick=alibi" not in url)


def test_ticks_of_a_logarithmic_axis_are_numbers(visit, example):
    page = visit.open(example / "site" / "cost.html")
    small = page.evaluate("PZ.powers(Math.log10(0.0005), Math.log10(0.05))")
    assert small == [0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05]
    assert page.evaluate("PZ.powers(Math.log10(900), Math.log10(2500))") == [1000, 1500, 2000, 2500]
    assert page.evaluate("PZ.powers(Math.log10(20), Math.log10(200))")[:2] == [20, 50]
    assert page.evaluate("PZ.powers(Math.log10(22), Math.log10(180))") == [30, 50, 70, 100, 150]


def test_unbeaten_points_of_cost_have_names_and_one_picture_five_encodings_on_two_tasks(
    visit, raw, save, tmp_path
):
    names = [f"encoding{at}" for at in range(18)]
    right = [(30.0 + at / 3, name, at % 5) for at, name in enumerate(names)]
    right.append((200.0, "slow", 100))
    records = [
        raw(name, seed, {10: 100, 20: n}, cost=raw()["cost"] | {"cpu_seconds": seconds})
        for seconds, name, n in right
        for seed in range(3)
    ]
    records.append(raw("once", 0, {10: 100, 20: 99}))  # one seed says too little
    records += [raw(name, 0, task="reverse") for name in (*names, "slow")]
    build(None, save(*records), tmp_path / "site", None)
    page = visit.open(tmp_path / "site" / "cost.html", "#task=copy&cost=cpu_seconds")
    found = {*page.locator("#plot .series text").all_text_contents()} - {""}
    assert found == {*names[:5], "slow"}
    assert page.locator("#plot .series path.m[fill=none]").count() == 1
    visit.open(tmp_path / "site" / "index.html")
    compare = page.get_by_label("Pages").get_by_role("link", name="Compare")
    compare.click()
    page.wait_for_selector("#curve .plot .tip", state="attached")
    read = "all => all.map((n) => [n.title || n.querySelector('title').textContent, "
    read += "n.querySelector('[fill^=\"#\"]').getAttribute('fill')])"
    picked, curves = (
        dict(page.locator(where).evaluate_all(read))
        for where in ("#picks label:has(input:checked)", "#curve .series")
    )
    assert picked == curves  # one colour for an encoding, in the box and in the chart
    assert len(set(curves.values())) == 5
    drawn(page, "reverse").check()
    _, data = saved(page, page.get_by_role("button", name="Download the charts as SVG"))
    assert [data.count(f">{name}<".encode()) for name in ("copy", "reverse")] == [1, 1]
    assert sum(f">{name}<".encode() in data for name in (*names, "slow", "once")) == 5


def test_the_label_of_a_loss_axis_stands_clear_of_its_ticks(visit, raw, save, tmp_path):
    one = raw()
    one["learning"] = [
        point | {"loss": 10.0**-at} for at, point in enumerate(one["learning"] * 3, start=3)
    ]
    for at, point in enumerate(one["learning"]):
        point["step"] = 500 * (at + 1)
    build(None, save(one), tmp_path / "site", None)
    page = visit.open(tmp_path / "site" / "run" / f"{one['run']}.html", drawn=False)
    label = page.locator("#loss text[transform]").bounding_box()
    ticks = [tick.bounding_box() for tick in page.locator("#loss text.end").all()]
    assert len(ticks) > 2
    assert label["x"] + label["width"] < min(tick["x"] for tick in ticks)


def test_a_curve_that_ends_early_has_no_line_to_its_name(visit, example):
    page = visit.open(example / "site" / "task" / "copy.html")
    series = page.locator("#curve .series")
    lines = {
        name: series.filter(has=page.locator("title", has_text=name)).locator(".l").count()
        for name in ("alibi", "learned")
    }
    assert lines == {"alibi": 1, "learned": 0}
    assert page.evaluate("PZ.powers(Math.log10(310), Math.log10(460))") == [350, 400, 450]


def test_cost_follows_the_choice_of_cost(visit, example):
    page = visit.open(example / "site" / "cost.html")
    page.get_by_role("combobox", name="Cost").select_option("parameters")
    page.wait_for_url(lambda url: "cost=parameters" in url)
    assert page.locator("#plot .v").count() == 1  # the steps
    assert page.locator("#plot text.mid", has_text="parameters").count() == 1
    assert page.get_by_role("columnheader", name="parameters").count() >= 1
    assert "failed" in page.inner_text("#table")


def test_from_overview_to_a_run_and_its_record(visit, example):
    page = visit.open(example / "site" / "index.html")
    page.locator("#tasks a", has_text="copy").click()
    page.locator(".grid tbody tr", has_text="rope").get_by_role("link", name="Run").first.click()
    assert "rope on copy, seed 0" in page.inner_text("h1")
    with page.expect_download() as download:
        page.get_by_role("link", name=".jsonl.gz").click()
    with gzip.open(download.value.path(), "rt") as lines:
        runs = {json.loads(line)["run"] for line in lines}
    assert Path(urlsplit(page.url).path).stem in runs


def test_without_scripts_tables_pictures_and_links_remain(browser, example):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((example / "site" / "index.html").as_uri())
    assert page.locator("#map tbody tr").first.inner_text().startswith("prism")
    page.locator("#map thead").get_by_role("link", name="copy").click()
    assert page.inner_text("h1") == "copy"
    assert page.locator("#curve svg").is_visible()
    assert "78.0" in page.locator("#table tbody tr").first.inner_text()
    assert page.locator(".static table").first.is_visible()  # of other settings
    for name in ("compare", "cost", "runs"):
        page.goto((example / "site" / f"{name}.html").as_uri())
        assert page.locator("noscript a").get_attribute("href") == "runs.csv"
        assert page.locator("h2:visible, legend:visible").count() == 0
    context.close()


def test_a_host_and_a_subfolder_serve_it_as_well(browser, example):
    handler = functools.partial(Quiet, directory=str(example))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        root = f"http://127.0.0.1:{server.server_port}/site"
        visit = Visit(browser.new_context())
        for name in ("index", "task/copy", "compare", "runs"):
            visit.page.goto(f"{root}/{name}.html")
            visit.page.wait_for_selector(".grid tbody tr")
        server.shutdown()
    assert visit.errors == []
    assert all(url.startswith((root, "data:", "blob:")) for url in visit.requests)


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def test_hostile_records_run_nothing_and_ask_for_nothing(visit, raw, tmp_path):
    records = []
    for at, text in enumerate(HOSTILE):
        env = raw()["env"] | {"device": text, "torch": text}
        one = raw(text, at % 3, env=env, reason=text, config={"encoding": text})
        if at % 3 == 2:
            one |= {"status": "failed", "scores": {"last": []}}
        records.append(Record.of(one))
    site.build(tables(records), records, tmp_path)
    hostile = [*tmp_path.glob("*.html"), *tmp_path.glob("run/*.html")]
    hostile += [p for p in tmp_path.glob("encoding/*.html") if "-" in p.stem]
    for path in [*hostile, tmp_path / "task" / "copy.html"]:
        page = visit.open(
            path,
            drawn=False,
            state="#q=%3Cimg%20src=x%20onerror=window.pwned=1%3E&sort=__proto__-asc",
        )
        assert page.evaluate("window.pwned") is None, path
    page = visit.open(tmp_path / "task" / "copy.html", "#pick=<img src=x onerror=pwned=1>")
    labels = page.locator(".grid th[scope=row] .name").evaluate_all(
        "all => all.map((n) => n.title)"
    )
    assert set(labels) == set(HOSTILE)
    page.hover("#curve svg", position={"x": 60, "y": 40})
    _, data = saved(page, page.locator("#table").get_by_role("button", name="CSV"))
    cells = [cell for row in csv.reader(io.StringIO(data.decode())) for cell in row]
    assert "'=HYPERLINK(1)" in cells
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@"))]
    assert page.evaluate("window.pwned") is None
    assert page.evaluate("({}).pwned") is None


def test_five_thousand_runs_load_in_two_seconds(visit, raw, tmp_path):
    records = []
    tasks = [f"task{at}" for at in range(8)]
    for task in tasks:
        for name in [f"encoding{at:02}" for at in range(25)]:
            for seed in range(25):
                score = (7 * len(records)) % 80 + seed % 5
                one = raw(name, seed, {10: 100, 15: score, 20: score // 2}, task=task)
                records.append(Record.of(one))
    assert len(records) == 5000
    site.build(tables(records), records, tmp_path)
    visit.open(tmp_path / "method.html")  # the browser itself is warm
    for name, rows in (("index", 25), ("task/task0", 25), ("compare", 3), ("runs", 20)):
        assert seconds(visit, tmp_path / f"{name}.html", rows) < 2, name
    page = visit.page
    page.get_by_label("Search").fill("encoding07 task3 24")
    visit.until(lambda: "of 5000" in (page.locator(".count").first.text_content() or ""))


def seconds(visit, path: Path, rows: int) -> float:
    """Until the table can be used: by the clock or, where the machine is busy with something else,
    in processor time of the page's main thread."""
    meter = visit.page.context.new_cdp_session(visit.page)
    meter.send("Performance.enable", {"timeDomain": "threadTicks"})
    spent = -busy(meter)
    began = time.perf_counter()
    page = visit.open(path, drawn=False)
    page.wait_for_selector(".grid tbody tr")
    took = time.perf_counter() - began
    spent += busy(meter)
    assert page.locator(".grid tbody tr").count() >= rows
    return min(took, max(spent, 0.05))


def busy(meter) -> float:
    metrics = meter.send("Performance.getMetrics")["metrics"]
    return next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration")


def test_each_of_a_researchers_questions_has_an_answer(visit, example):
    index = example / "site" / "index.html"

    # What works at 2x, what it costs, and what nobody solves: no click.
    page = visit.open(index)
    assert "which positional encoding still works?" in page.inner_text("h1")
    lines = page.locator(".advice tbody tr").all_inner_texts()
    assert len(lines) == 5
    assert "no record yet" in lines[0]
    row = page.locator(".panel:visible tr[data-label=prism]")
    cost = next(one.train for one in measured() if one.encoding == "prism")
    assert row.inner_text().split()[-1] == f"{cost:.1f}x"

    # How sure is it, which seeds failed, with which answers, by which command? One click.
    number = page.locator("#map tbody tr", has_text="prism").first.locator("button.cell").first
    number.click()
    panel = page.locator("#panel")
    text = panel.inner_text()
    assert "median" in text
    assert "seeds whose mean reaches .9: 0/5" in text
    assert panel.locator("tbody tr").count() == 5
    assert "got 13" in text
    command = "pezoo bench --protocol quick --task copy --pe prism --seeds 0-4"
    assert panel.locator(".command code").inner_text() == command
    page.wait_for_url(lambda url: "open=copy%7Cprism" in url)
    panel.get_by_role("button", name="Copy command").click()
    panel.locator(".command").get_by_role("button", name="Copied").wait_for()  # shown for a while
    panel.get_by_role("button", name="Close").click()
    page.wait_for_url(lambda url: "open=" not in url)
    visit.open(index, "#open=copy%7Cprism")
    page.locator("#panel").wait_for()  # a link to this view
    page.locator("#panel tbody a").first.click()
    assert "prism on copy, seed 0" in page.inner_text("h1")

    # The cost of rope beside alibi: one click.
    visit.open(index)
    page.get_by_label("Pages").get_by_role("link", name="Cost").click()
    page.locator("#table tbody tr").first.wait_for()
    assert {"rope", "alibi"} <= set(visit.names())

    # What to use with a pretrained model: one click, and from there for other kinds of tasks.
    page.get_by_label("Pages").get_by_role("link", name="Overview").click()
    page.get_by_role("link", name="have a model trained with RoPE").click()
    answer = page.locator("#answers section:visible")
    visit.until(lambda: answer.count() == 1)  # what the page's script leaves
    assert "pezoo extend MODEL" in answer.inner_text()
    page.get_by_role("combobox", name="Model").select_option("decoder")
    page.get_by_role("combobox", name="Kind of task").select_option("reordering")
    assert "reverse" in answer.inner_text()

    # Ours beside a paper's: one click.
    page.get_by_label("Pages").get_by_role("link", name="Papers").click()
    assert "ours, theirs" in page.inner_text("h1")


def test_seeds_that_reach_a_score_stand_in_cells(visit, example):
    page = visit.open(example / "site" / "index.html", "#show=seeds", drawn=False)
    page.locator("#map .cell").first.wait_for()
    assert page.locator("#map tbody tr").first.locator(".cell").first.inner_text()[:3] == "0/5"
    visit.open(example / "site" / "task" / "copy.html", "#cells=seeds")
    assert visit.column("15 (1.5x)")[0] == "5/5"


def test_fewer_bits_are_better_on_every_page(visit, save, tmp_path):
    bits = {"rope": [4.0, 4.1, 4.2], "alibi": [2.0, 2.1, 2.2]}
    runs = [
        text_record(name, seed, {128: 1.05, 256: own})
        for name, every in bits.items()
        for seed, own in enumerate(every)
    ]
    build(None, save(*runs), tmp_path / "site", None)
    page = visit.open(tmp_path / "site" / "index.html", drawn=False)
    page.locator("#map .cell").first.wait_for()
    cells = page.locator("#map .heat")
    assert visit.names() == ["alibi", "rope"]
    assert [text[:5] for text in cells.all_inner_texts()] == ["2.100", "4.100"]
    share = "all => all.map((one) => +one.style.getPropertyValue('--share'))"
    assert cells.evaluate_all(share) == pytest.approx([1, 2.1 / 4.1], abs=0.001)
    assert "seeds" not in page.locator("#f-show option").evaluate_all(
        "all => all.map((o) => o.value)"
    )
    page = visit.open(tmp_path / "site" / "task" / "text.html", "#open=text|rope")
    assert visit.column("256 (2x)") == ["2.100", "4.100"]
    marks = [page.locator(f"#{name} svg .series path.m") for name in ("curve", "near")]
    assert [one.count() for one in marks] == [4 + 2, 3 + 2]  # rope at 256 is not near; two names
    assert page.locator("#table .heat").evaluate_all(share)[:3] == [0.5, 1, 0.5]
    assert "Reach 1x. Beyond training: mean 4.100 bits [3.852, 4.348], median" in page.inner_text(
        "#panel"
    )
    page = visit.open(tmp_path / "site" / "compare.html")
    assert [*map(visit.column, ("difference", "verdict"))] == [["−2.000"], ["alibi is better"]]
    visit.open(tmp_path / "site" / "cost.html", "#cost=cpu_seconds")
    assert visit.names() == ["alibi", "rope"]
    assert visit.column("unbeaten") == ["yes", "no"]  # of equal cost


def test_tabs_and_tasks_change_the_first_screen(visit, example):
    page = visit.open(example / "site" / "index.html")
    page.locator(".pills:visible button", has_text="reverse").click()
    page.wait_for_url(lambda url: "task=reverse" in url)
    assert page.locator(".panel:visible caption").inner_text().startswith("reverse")
    assert "reverse" in page.locator("#front-curve svg").get_attribute("aria-label")


def test_no_page_moves_while_it_loads_and_none_is_heavy(browser, example):
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.add_init_script(
        "window.moved = 0; new PerformanceObserver((list) => list.getEntries().forEach((one) => {"
        " if (!one.hadRecentInput) window.moved += one.value; }))"
        ".observe({ type: 'layout-shift', buffered: true })"
    )
    page, site_ = context.new_page(), example / "site"
    for name in ("index", "which", "compare", "cost", "runs", "papers", "task/copy"):
        page.goto((site_ / f"{name}.html").as_uri())
        page.wait_for_timeout(200)
        assert page.evaluate("window.moved") < 0.1, name
    page.goto((site_ / "task" / "copy.html").as_uri())
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 1046, "height": 720})  # A4, landscape
    page.locator("#table tbody tr").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 1046
    context.close()


def test_the_last_length_is_on_the_screen(visit, raw, save, tmp_path):
    lengths = (10, 11, 15, 16, 20, 21, 30, 31, 50, 51, 100)
    runs = [
        raw(name, seed, dict.fromkeys(lengths, 90)) for name in ("rope", "alibi") for seed in (0, 1)
    ]
    build(None, save(*runs), tmp_path / "site", None)
    visit.page.set_viewport_size({"width": 1440, "height": 900})
    page = visit.open(tmp_path / "site" / "task" / "copy.html")
    head = page.locator("#table thead th", has_text="100 (10x)").bounding_box()
    assert head["x"] + head["width"] <= 1440 - 20


def test_runs_that_have_not_learned_are_found(visit, raw, save, tmp_path):
    build(None, save(raw("rope", 0, {10: 40, 20: 0}), raw("alibi", 0)), tmp_path / "site", None)
    page = visit.open(tmp_path / "site" / "runs.html", "#q=not+learned")
    assert "rope" in page.locator("#table tbody tr").inner_text()
