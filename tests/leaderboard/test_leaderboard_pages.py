"""Files written: tables, pictures, LEADERBOARD.md, the site. Hostile texts are escaped."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from xml.etree import ElementTree

import pandas
import pytest
from filelock import FileLock, Timeout
from made_records import KNOWN, markdown, raw_record, text_record
from parsed import Page

import leaderboard
import pezoo
from experiment.files import write
from harness.cli.tables import print_records
from leaderboard.build import build as build_site
from leaderboard.catalog import Catalog, PRFMaps
from leaderboard.charts.curves import curves
from leaderboard.charts.styles import COLOURS, DASHES, Style, apart, shown, styles
from leaderboard.escape import script_json
from leaderboard.processes import in_processes
from leaderboard.record.read import Record, load
from leaderboard.render import columns, site
from leaderboard.render.columns import rows_as_csv, rows_as_markdown
from leaderboard.render.data import runs_data, site_data
from leaderboard.render.front import CHOSEN, GENERAL, ORACLE, TOLD, fronts
from leaderboard.render.markdown import files
from leaderboard.render.overviews import findings
from leaderboard.render.prose import ENTRIES, cited
from leaderboard.render.which import answers
from leaderboard.stats.costs import measured, training_costs
from leaderboard.stats.frame import COLUMNS
from leaderboard.stats.overview import baseline
from leaderboard.stats.rows import Points
from leaderboard.stats.summary import summarise
from leaderboard.stats.tables import tables
from leaderboard.text import shortened

COST = raw_record()["cost"]
COSTS = Path(__file__).parents[2] / "leaderboard" / "stats" / "costs.csv"
MEASURED = {
    row["encoding"]: float(row["step_ratio"] or 0)
    for row in csv.DictReader(COSTS.read_text("utf-8").splitlines())
    if row["protocol"] == "quick"
}
build = partial(build_site, catalog=KNOWN)


@pytest.fixture
def rows(record):
    records = [record("rope", s) for s in (0, 1)]
    records.append(record("learned", right={10: 99, 15: "cannot represent", 20: "no instance"}))
    return summarise(records)


def test_the_encoder_track_is_a_section_of_the_front_page(record, tmp_path):
    def encoder(encoding, task, **more):
        more |= {"task": task, "config": {"track": "encoder"}}
        return record(encoding, protocol="mine", right={10: 100, 20: 50}, **more)

    records = [record("rope"), encoder("rope", "copy")]
    pair = ("alibi", "randomized:alibi")
    records += [encoder(name, "reverse", seed=seed) for name in pair for seed in (0, 1)]
    found = tables(records)
    site.build(found, records, tmp_path)
    page = Page(tmp_path / "index.html")
    assert page.text.count("The encoder track: mine") == 1
    head = "copy (run by 1 of 3)"
    lines = {line["encoding"]: line for line in page.table(head)}
    assert (lines["rope"][head], lines["rope"]["reverse"]) == ("1x¹75.0", "not run")
    assert (lines["baseline"][head], lines["baseline"]["reverse"]) == ("10.0", "10.0")
    assert "task/copy.html#protocol=mine" in page.all("href")
    assert "## Encoder track: mine" in markdown(found)
    assert "Encoder track: quick" not in markdown(found)


def markdown_rows(text):
    """The lines of a table in Markdown as lists of cells, without the rule below the heads."""
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    return [lines[0], *lines[2:]]


def test_headers_and_cells(rows):
    heads, rope, learned = markdown_rows(rows_as_markdown(rows))
    assert heads == [
        "rank", "encoding", "reach", "unseen mean", "training mean", "10 (trained)", "15 (1.5x)",
        "20 (2x)", "unseen tokens", "steps until learned", "seeds", "parameters", "CPU s",
    ]  # fmt: skip
    assert rope[:5] == ["1", "rope", "1.5x²", "70.0 [65.5, 74.5]", "90.0"]
    assert rope[8:] == ["85.0", "-", "2", "100,000", "35"]
    assert learned[:4] == ["-", "learned", "1x¹", "cannot represent"]
    assert learned[6:9] == ["cannot represent", "no instance", "-"]


def test_a_column_that_is_added_in_one_place_is_in_every_output(raw, monkeypatch, capsys, tmp_path):
    new = columns.Column("double", lambda row: 2 * len(row.seeds), head="twice the seeds")
    monkeypatch.setattr(columns, "COLUMNS", (*columns.COLUMNS, new))
    records = [Record.of(raw()), Record.of(raw(seed=1))]
    print_records(records, "table", wide=True)
    print_records(records, "markdown")
    print_records(records, "csv")
    terminal, text, lines = re.split(r"(?=###|^protocol,)", capsys.readouterr().out, flags=re.M)
    assert re.search(r"twice the seeds\n.*\n.* 4\n", terminal)
    heads, row = markdown_rows("\n".join(text.splitlines()[2:5]))
    assert dict(zip(heads, row, strict=True))["twice the seeds"] == "4"
    assert next(csv.DictReader(io.StringIO(lines)))["double"] == "4"
    found = tables(records)
    data = site_data(found, Catalog())
    assert {"key": "double", "title": "twice the seeds"} in data["columns"]
    (row,) = data["tables"][0]["rows"]
    assert (row["double"], row["shown"]["double"]) == (4, "4")
    site.build(found, [r for t in found for r in t.records], tmp_path)
    (table,) = json.loads((tmp_path / "leaderboard.json").read_text())
    assert table["rows"][0]["double"] == 4


def test_what_has_not_learned_the_training_length_is_marked_wherever_scores_are(
    record, capsys, tmp_path, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "200")
    low = {10: 89, 15: 20, 20: 0}
    records = [record("rope"), record("nope", right=low), record("nope", right=low, task="reverse")]
    words, found = "not learned¹", tables(records)
    print_records(records, "table")
    out = capsys.readouterr().out
    printed = " ".join(out.split())  # lines are folded to the terminal's width
    assert printed.count("of the seeds at 0.9 at the training length): nope (0 of 1 seeds)") == 2
    assert next(line.split()[1:] for line in out.splitlines() if line.startswith("nope")) == [
        "-", "not", "learned¹", "-", "89.0", "[81.4,", "93.7]", "-", "-", "1", "35",
    ]  # fmt: skip
    heads, rope, nope = markdown_rows(rows_as_markdown(found[0].rows))
    assert [row[heads.index("reach")] for row in (rope, nope)] == ["1.5x¹", words]
    assert {nope[heads.index(head)] for head in ("15 (1.5x)", "20 (2x)", "unseen mean")} == {"-"}
    site.build(found, records, tmp_path)
    task = {row["encoding"]: row for row in Page(tmp_path / "task/copy.html").table("reach")}
    assert (task["rope"]["reach"], task["nope"]["reach"]) == ("1.5x¹", words)
    page = {row["encoding"]: row for row in Page(tmp_path / "index.html").table("mean, %")}
    assert (page["rope"]["copy"], page["nope"]["copy"]) == ("1.5x¹70.0", "not learned")
    assert page["nope"]["mean, %"] == "learned 0 of 2"
    (data,) = site_data(found, Catalog())["tables"][1]["rows"]
    assert (data["unlearned"], data["shown"]["reach"]) == (True, words)
    (line,) = (
        line
        for line in csv.DictReader(io.StringIO(rows_as_csv(found[1].rows)))
        if line["length"] == "15"
    )
    assert [line[key] for key in ("learned", "status", "exact_mean", "unseen_mean", "reach")] == [
        "False", "not learned", "", "", "",
    ]  # fmt: skip
    assert "Not learned by any encoding: reverse." in markdown(found)


def test_rows_of_several_tables_are_refused(record):
    rows = summarise([record("rope"), record("rope", task="odds_first")])
    with pytest.raises(ValueError, match="do not share one table"):
        rows_as_markdown(rows)


def test_csv_has_one_line_per_length_with_raw_numbers(rows):
    lines = list(csv.DictReader(io.StringIO(rows_as_csv(rows))))
    assert len(lines) == 6
    first, word = lines[0], lines[4]
    assert (first["exact_mean"], first["interval"], first["count"]) == ("1", "t", "200")
    assert (word["status"], word["exact_mean"], word["correct"]) == ("cannot represent", "", "")


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


def test_numbers_lead_to_runs_and_refused_files_are_counted(raw, save, failed, tmp_path):
    good, bad = raw("rope"), failed("rope", 1, "out of memory")
    report = build(save(good, folder="runs"), save(bad, "{"), tmp_path / "out", None)
    assert (report.records, len(report.problems)) == (2, 1)
    assert "1 file left out" in Page(tmp_path / "out" / "index.html").text
    (table,) = json.loads((tmp_path / "out" / "leaderboard.json").read_text())
    assert set(table["rows"][0]["runs"]) == {good["run"], bad["run"]}
    assert "out of memory" in Page(tmp_path / "out" / "run" / f"{bad['run']}.html").text
    lines = gzip.decompress((tmp_path / "out/record/quick.copy.jsonl.gz").read_bytes()).splitlines()
    (record,) = (one for one in map(json.loads, lines) if one["run"] == good["run"])
    assert (record["scores"]["last"][0]["exact"], record["schema"]) == (1.0, 1)


def test_a_run_page_shows_what_could_explain_a_difference(raw, save, tmp_path):
    old, new = raw("rope", data_hash=None), raw("alibi", data_hash="d0d0")
    env = {"numpy": "2.3.4", "triton": "3.5.0", "cpu": "a processor", "cores": 16}
    new["env"] |= env
    new["cost"] |= {"tokens": 123456, "sessions": 3}
    answer = {"prompt": "123=", "expected": "321⟨end⟩", "given": "31…"}
    new["scores"]["last"][1]["wrong"] = [answer]
    assert build(None, save(old, new), tmp_path / "out", None).problems == ()
    page = Page(tmp_path / "out" / "run" / f"{new['run']}.html")
    cells = [cell.strip() for table in page.tables for row in table for cell in row]
    assert {*answer.values()} <= {*cells}
    for name, value in {**env, "tokens": 123456, "sessions": 3}.items():
        assert f"{name} {value} " in page.text.replace(name, f"{name} ")
    assert "hash d0d0" in page.text
    assert "hash weights0" in page.text
    page = Page(tmp_path / "out" / "run" / f"{old['run']}.html")
    assert "None" not in page.text
    assert "Training data" not in page.text
    assert "Wrong answers" not in page.text


def test_every_link_leads_to_a_file_of_the_site(raw, save, tmp_path):
    build(None, save(raw(), raw("randomized:rope"), raw("mine(x=1)")), tmp_path / "out", None)
    for path in (tmp_path / "out").rglob("*.html"):
        page = Page(path)
        for link in page.all("src") + page.all("href"):
            plain = link.partition("#")[0]
            ours = link.startswith("#") or (path.parent / plain).is_file()
            assert (
                ours
                or link.startswith("data:image/svg+xml,")
                or link in {*(entry.get("url") for entry in ENTRIES.values())}
            )
        (policy,) = (tag["content"] for _, tag in page.tags if tag.get("http-equiv"))
        assert policy.startswith("default-src 'none'; script-src 'self' file:;")


def test_files_of_others_are_neither_deleted_nor_written_among(raw, save, tmp_path):
    records, site = save(raw()), tmp_path / "out"
    (tmp_path / "mine" / "run").mkdir(parents=True)
    (tmp_path / "mine" / "run" / "notes.html").write_text("mine")
    with pytest.raises(ValueError, match="so it is not a built site"):
        build(None, records, tmp_path / "mine", None)
    assert [path.name for path in (tmp_path / "mine").rglob("*")] == ["run", "notes.html"]
    build(None, save(raw(), raw("alibi"), folder="two"), site, None)
    (site / "run" / "notes.html").write_text("mine")
    with (site / "files.txt").open("a") as file:
        file.write("run/../../mine/run/notes.html\n../mine/run/notes.html\nindex.html\n")
    build(None, records, site, None)
    left = {path.stem for path in (site / "run").iterdir()}
    assert left == {raw()["run"], "notes"}
    (kept,) = gzip.decompress((site / "record" / "quick.copy.jsonl.gz").read_bytes()).splitlines()
    assert json.loads(kept)["run"] == raw()["run"]
    assert (tmp_path / "mine" / "run" / "notes.html").is_file()
    assert (site / "index.html").is_file()


def test_what_a_killed_build_had_half_written_goes_with_the_next(raw, save, tmp_path):
    records, site, pages = save(raw()), tmp_path / "out", tmp_path / "LEADERBOARD.md"
    left = [site / f"run/.{raw()['run']}.html.{2**31 - 1}", site / f".index.html.{2**31 - 1}"]
    left += [site / f"run/.alibi.html.{2**31 - 1}", tmp_path / f".LEADERBOARD.md.{2**31 - 1}"]
    stay = [site / f"run/.notes.html.{2**31 - 1}", site / f"run/.{raw()['run']}.html.{os.getpid()}"]
    stay += [tmp_path / f".mine.{2**31 - 1}"]
    build(None, records, site, pages)
    with (site / "files.txt").open("a") as file:
        file.write("run/alibi.html\nrun/../../mine\n../mine\n")  # a page that another build began
    for path in (*left, *stay):
        path.touch()
    build(None, records, site, pages)
    assert ([*map(Path.exists, left)], [*map(Path.exists, stay)]) == ([False] * 4, [True] * 3)


@pytest.mark.parametrize("name", ["", "run", "record", "task", "encoding"])
def test_a_link_is_no_folder_of_a_site(name, raw, save, tmp_path):
    site = tmp_path / "out"
    (tmp_path / "mine").mkdir()
    if name:
        build(None, save(raw()), site, None)
        shutil.rmtree(site / name)
    (site / name).symlink_to(tmp_path / "mine")
    with pytest.raises(ValueError, match="is a link"):
        build(None, save(raw()), site, None)
    assert list((tmp_path / "mine").iterdir()) == []


def test_an_encoding_page_draws_the_relation_that_it_is_given(raw, save, tmp_path):
    drawn = PRFMaps((("<first>", ((0, -1), (1, 0))),), "of <two> positions")
    records = save(raw("randomized:rope"), raw("alibi"))
    rope = replace(KNOWN.encodings["rope"], prf_maps=drawn)
    alibi = replace(KNOWN.encodings["alibi"], prf_maps=None)
    known = replace(KNOWN, encodings=KNOWN.encodings | {"rope": rope, "alibi": alibi})
    report = build(None, records, tmp_path / "out", None, catalog=known)
    assert report.problems == ()
    (path,) = (tmp_path / "out" / "encoding").glob("randomized-rope*.html")
    text = Page(path).text
    assert "Positional relation function of rope, <first>" in text
    assert "Query 0, keys from 0: 0, -1. Query 1, keys from 0: 1, 0." in text
    assert "of <two> positions" in text
    other = Page(tmp_path / "out" / "encoding" / "alibi.html")
    assert "Positional relation function of" not in other.text


def test_an_encoding_page_says_what_it_is_and_how_to_get_it(raw, save, tmp_path):
    report = build(
        None, save(raw()), tmp_path / "out", None, site.Built("", source="https://host/x/blob/main")
    )
    page = Page(tmp_path / "out" / "encoding" / "rope.html")
    shown = ("from pezoo.encodings.rope import RoPE", "Su et al. 2021", "class RoPE(Encoding)")
    assert all(text in page.text for text in shown)
    assert "w_m = base^(-2m/K)" in page.text  # the formula
    assert "https://host/x/blob/main/pezoo/encodings/rope.py" in page.all("href")
    assert tmp_path / "out" / "task" / "copy.html" in report.paths


def test_an_encoding_page_has_the_picture_that_explains_it(raw, save, tmp_path):
    build(None, save(raw("prism"), raw("rope")), tmp_path / "out", None)
    page, rope = (tmp_path / "out" / "encoding" / f"{name}.html" for name in ("prism", "rope"))
    (picture,) = [link for link in Page(page).all("src") if link.endswith(".svg")]
    docs = Path(leaderboard.__file__).parent.parent / "docs"
    drawn = (page.parent / picture).read_text("utf-8")
    assert drawn == (docs / "what-prism-learned" / "meeting.svg").read_text("utf-8")
    assert not any(link.endswith(".svg") for link in Page(rope).all("src"))


def test_a_mode_is_a_row_of_its_own(raw, save, tmp_path):
    one = raw("prism", right={10: 100, 20: 10})
    one["modes"] = {"snapped": raw("prism", right={10: 100, 20: 90})["scores"]}
    build(
        None, save(one, raw("rope", right={10: 100, 20: 50})), tmp_path / "out", tmp_path / "L.md"
    )
    (table,) = json.loads((tmp_path / "out" / "leaderboard.json").read_text())
    rows = [(row["label"], row["mode"], row["rank"]) for row in table["rows"]]
    assert rows == [("rope", "", 1), ("prism", "", 2), ("prism (snapped)", "snapped", None)]
    assert "| prism (snapped) † " in (tmp_path / "L-quick.md").read_text()


def test_devices_have_tables_of_their_own(raw, save, tmp_path):
    env = raw()["env"]
    some = [raw("rope", seed, env=env | {"device": d}) for seed, d in enumerate(("cpu", "gpu"))]
    build(None, save(*some), tmp_path / "out", None)
    found = json.loads((tmp_path / "out" / "leaderboard.json").read_text())
    seeds = {table["device"]: table["rows"][0]["seeds"] for table in found}
    assert seeds == {"": [0, 1], "cpu": [0], "gpu": [1]}


def test_fewer_seeds_than_the_protocol_asks_are_marked(raw, save, tmp_path):
    three = [raw("alibi", seed) for seed in range(3)]
    build(None, save(raw(), *three), tmp_path / "out", None)
    (table,) = json.loads((tmp_path / "out" / "leaderboard.json").read_text())
    assert {row["label"]: row["few"] for row in table["rows"]} == {"rope": True, "alibi": False}


def test_markdown_page_has_pictures_and_commands(record):
    text = markdown(tables([record("rope"), record("alibi")]))
    assert "## quick / copy" in text
    assert "(pictures/quick.copy.svg)" in text
    assert "\npezoo bench --protocol quick --task copy --pe alibi,rope --seeds 0\n```" in text


def test_links_and_pictures_of_the_committed_pages_lead_to_files():
    folder = Path(leaderboard.__file__).parent
    page, *others = [folder / "LEADERBOARD.md", *sorted(folder.glob("LEADERBOARD-*.md"))]
    assert len(page.read_text("utf-8").splitlines()) <= 240
    assert len(others) > 1
    for path in (page, *others):
        links = re.findall(r"\]\(([^)#]+)\)", path.read_text("utf-8"))
        assert links
        assert [link for link in links if not (path.parent / link).is_file()] == []


def test_pages_and_pictures_without_records_go_and_those_of_others_stay(raw, save, tmp_path):
    page, pictures = tmp_path / "md" / "README.md", tmp_path / "md" / "pictures"
    both = save(raw(), raw(task="reverse"), raw(protocol="prism2025"), folder="two")
    build(None, both, tmp_path / "out", page)
    assert (page.parent / "README-prism2025.md").is_file()
    (page.parent / "README-mine.md").write_text("mine")
    (pictures / "mine.svg").write_text("<svg/>")
    build(None, save(raw()), tmp_path / "out", page)
    names = {path.name for path in page.parent.glob("*.md")}
    assert names == {f"README{end}.md" for end in ("", "-encodings", "-quick", "-mine")}
    assert {path.name for path in pictures.iterdir()} == {"quick.copy.svg", "mine.svg"}


def test_a_curve_ends_where_numbers_end(record):
    right = {5: 90, 10: 90, 15: "cannot represent", 20: 50, 30: 40}
    row = summarise([record("learned", right=right)])[0]
    svg = curves("t", [row])
    assert 'learned<tspan class="s"> (cannot represent from 15)' in svg
    line = re.search(r'<path class="c" d="([^"]*)"', svg)
    assert line.group(1).count("M") == 2  # one stretch before the gap, one after
    assert "longest length in training" in svg


def test_long_names_that_differ_at_their_ends_stay_apart_in_a_picture():
    start = "prism_spectral(controller=latch,cursors=2,key_bias=6.0,"
    labels = [
        start + end for end in ("window=1)", "window=1) (snapped)", "top=1.0,window=1)", "x)")
    ]
    shown = {shortened(label, 38) for label in labels}
    assert len(shown) == 4
    assert all(len(text) == 38 and text.startswith("prism_spectral") for text in shown)
    assert shortened("rope", 38) == "rope"


def test_a_picture_of_nothing_is_still_a_picture():
    picture = ElementTree.fromstring(curves("nothing & more", []))
    assert "nothing & more" in " ".join(picture.itertext())


def test_the_style_of_an_encoding_follows_from_its_name_alone(record):
    names = ["prism", "rope", "alibi", "mine", "prism(gamma=2.0)"]
    rows = summarise([record(name) for name in names])
    alone = [styles([row])[row.label] for row in rows]
    assert [styles(rows)[row.label] for row in rows] == alone
    known = summarise([record(name) for name in sorted(KNOWN.encodings)])
    assert len({(one.colour, one.dash) for one in styles(known).values()}) == len(known)
    folder = Path(leaderboard.__file__).parent
    for name in ("charts/templates/curves.svg", "render/static/chart.js"):  # what draws them
        text = (folder / name).read_text("utf-8")
        assert all(re.search(rf'\b{dash}"?: "', text) for dash in DASHES)
    by = styles(rows)
    assert by["prism(gamma=2.0)"].colour == by["prism"].colour
    points = [Points(name, (), "exact match", None) for name in ("rope", "alibi")]
    assert styles(points) == {name: by[name] for name in ("rope", "alibi")}
    other = styles([*points, Points("seed 3", (), "exact match", None)])
    assert len({one.colour for one in other.values()}) == 3
    assert not [c for c in COLOURS if len({c[1:3], c[3:5], c[5:7]}) == 1]  # no grey


def test_write_leaves_the_old_file_when_it_fails(tmp_path, monkeypatch):
    path = write(tmp_path / "new" / "a.txt", "old")

    def broken(*_):
        raise OSError("disk full")

    monkeypatch.setattr("experiment.files.os.replace", broken)
    with pytest.raises(OSError, match="disk full"):
        write(path, "new")
    assert [(p.name, p.read_text()) for p in path.parent.iterdir()] == [("a.txt", "old")]


def test_torch_is_not_imported():
    code = "import sys, leaderboard.build; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_run_is_in_one_flat_file(raw, save, tmp_path):
    one = raw("prism", 3, right={10: 90, 20: 50})
    one["modes"] = {"snapped": one["scores"]}
    build(None, save(one, raw("rope", status="failed", reason="x", scores={"last": []})),
          tmp_path / "out", None)  # fmt: skip
    frame = pandas.read_csv(tmp_path / "out" / "runs.csv")
    assert len(frame) == 2 * 2 + 1
    first = frame[frame.encoding == "prism"].iloc[0]
    assert (first.seed, first.length, first.exact, first["count"]) == (3, 10, 0.9, 100)
    assert (first.device, first.commit) == (one["env"]["device"], "abc1234")
    own = leaderboard.frame(tmp_path / "records", modes=True)
    frame["mode"] = frame["mode"].fillna("")
    pandas.testing.assert_frame_equal(frame.astype(COLUMNS), own, rtol=1e-5)


def test_options_that_were_chosen_on_a_task_are_marked(raw, save, tmp_path):
    runs = [raw(name, seed, task=task) for name in ("prism", "rope") for seed in range(2)
            for task in ("copy", "addition")]  # fmt: skip
    build(None, save(*runs), tmp_path / "out", tmp_path / "L.md")
    tables = json.loads((tmp_path / "out" / "leaderboard.json").read_text())
    marked = {(t["task"], r["label"]): r["chosen_here"] for t in tables for r in t["rows"]}
    assert marked == {("copy", "prism"): True, ("copy", "rope"): False,
                      ("addition", "prism"): False, ("addition", "rope"): False}  # fmt: skip
    text = (tmp_path / "L.md").read_text()
    assert "prism on copy." in text
    assert "| prism † " in text


def test_leaderboard_md_begins_with_findings_a_picture_and_bare_encodings(raw):
    shares = {"rope": 100, "alibi": 30, "rope(base=2.0)": 99}
    rows = [
        raw(name, seed, {10: 100, 20: share, 40: share})
        for name, share in shares.items()
        for seed in range(3)
    ]
    text = markdown(tables([Record.of(one) for one in rows]))
    lines = text.splitlines()
    assert lines[2].startswith("- ")
    assert sum(line.startswith("- ") for line in lines[:8]) <= 5
    first = text[: text.index("<details>")]
    assert "![quick / copy" in first
    assert "rope(base" not in first
    assert first.index("| rope ") < first.index("| alibi ")


def test_findings_name_what_is_solved_and_what_is_not(record):
    far = {10: 100, 20: 50}
    found = tables(
        [
            *(record("rope", task=task, right=far) for task in ("copy", "reverse")),
            *(record("rope", seed, far, task="addition") for seed in (0, 1)),
            record("learned", task="addition", right={10: 99, 20: "cannot represent"}),
            *(record("alibi", seed, {10: 99, 20: 91}, task="addition") for seed in (0, 1, 2)),
        ]
    )
    lines = findings(found)
    solved, unsolved, unable = lines[-3:]
    assert solved.endswith("addition (alibi; 3 seeds).")
    assert unsolved.endswith("copy (rope, 1x¹), reverse (rope, 1x¹).")
    assert unable.endswith(" learned.")
    assert {f"- {line}" for line in lines} <= {*markdown(found).splitlines()}


def test_one_seed_tells_no_two_apart(record):
    found = tables(
        [
            record(name, task=task, right={10: 100, 20: right})
            for task in ("copy", "reverse")
            for name, right in (("rope", 50), ("alibi", 30))
        ]
    )
    untested = findings(found)[0]
    assert "do not share two seeds" in untested
    assert markdown(found).count(untested) == 1
    assert "| 1 | rope" in re.sub(" +", " ", markdown(found))  # no brackets


def test_a_protocol_without_a_comparison_is_a_link(record):
    pairs = [record(name, seed=seed) for name in ("rope", "alibi") for seed in (0, 1)]
    once = [record(name, protocol="recall") for name in ("rope", "alibi")]
    text = markdown(tables([*pairs, *once]))
    page = text[: text.index("How to read this")]
    assert "## quick" in page
    assert "## recall" not in page
    assert "share two seeds: [recall](LEADERBOARD-recall.md)." in page
    assert "## recall" in markdown(tables(once))  # the only one


def test_the_baseline_of_leaderboard_md_is_that_of_the_pages(raw):
    one = raw(right={10: 100, 20: 50})
    for score in one["scores"]["last"]:
        score["tokens"] = 400
    found = tables([Record.of(one)])
    told = baseline(found[0], Catalog())
    assert told.knows
    assert f"knows the length has token accuracy {100 * told.unseen:.1f} % beyond" in markdown(
        found
    )


def test_the_baseline_of_an_encoder_is_the_best_constant_where_the_task_tells_it(record):
    def with_baseline(track):
        raw = {"task": "bucket_sort", "config": {"track": track}}
        return baseline(
            tables([record("rope", right={10: 9, 20: 9, 28: 9, 60: 9}, **raw)])[0], known
        )

    known = KNOWN
    share = dict(known.tasks["bucket_sort"].best_constant)
    by_length, unseen, knows = with_baseline("encoder")
    assert [by_length[at] for at in (0, 1, 3)] == [share[10], share[20], share[60]]
    between = share[20] + (share[60] - share[20]) * math.log(1.4) / math.log(3)
    assert by_length[2] == pytest.approx(between)
    assert unseen == pytest.approx(fmean(by_length[1:]))
    assert knows
    assert with_baseline("decoder").by_length != by_length


def test_the_first_screen_counts_runs_and_keeps_hints_and_chosen_options_apart(record):
    right = {"rope": 40, "alibi": 95, "lbpe_sh": 99, "ideal_sh": 100, "prism": 100}
    runs = [
        record(
            name,
            seed,
            {10: 100, 20: 100, 100: value if seed else 0},
        )
        for name, value in right.items()
        for seed in range(5)
    ]
    (one,) = fronts([tables(runs, known := KNOWN)], {}, known)
    (task,) = one.tasks
    groups = {e.row.label: (e.group, e.far) for _, own in task.shown for e in own}
    assert groups["alibi"] == (GENERAL, (4, 5))
    assert groups["prism"] == (CHOSEN, (4, 5))
    assert (groups["lbpe_sh"][0], groups["ideal_sh"][0]) == (TOLD, ORACLE)
    assert groups["rope"] == (GENERAL, (0, 5))
    assert one.headline.startswith("Train on 10 digits, test on 100")


def test_markdown_says_what_tests_leave_of_the_ranks(record):
    def page(worse):
        runs = [
            record(name, seed, {10: 100, 20: value})
            for name, values in {"rope": [90, 91, 92, 93, 94], "alibi": worse}.items()
            for seed, value in enumerate(values)
        ]
        return markdown(tables(runs))

    assert "best first; paired tests tell all ranks apart." in page([10, 12, 11, 14, 10])
    assert "best first; brackets behind a rank" in page([95, 80, 95, 90, 89])


def test_costs_are_measured_and_never_the_seconds_of_runs(record):
    def costs(**changes):
        names = ("rope", "alibi", "rope(theta=500)")
        runs = [record(name, 0, cost=COST | {"cpu_seconds": 9.0}, **changes) for name in names]
        (table,) = tables(runs, KNOWN)
        return training_costs(table, "rope")

    known = {name: MEASURED[name] for name in ("rope", "alibi")}
    assert costs() == costs(protocol="quick+ab12cd") == known
    assert costs(protocol="recall") == known  # which was not measured


def test_the_command_of_a_row_makes_its_runs_and_no_other(record):
    batch = "pezoo bench --pe rope,alibi --task copy,reverse --seeds 0-9 --set train.steps=1500"
    came = raw_record()["provenance"] | {"command": batch}
    runs = [record("alibi", n, protocol="quick+ab12cd", provenance=came) for n in (0, 1, 4)]
    (table,) = tables(runs)
    words = shlex.split(table.command(table.rows[0]))
    given = dict(zip(words[2::2], words[3::2], strict=True))
    assert given == {
        "--protocol": "quick",
        "--task": "copy",
        "--pe": "alibi",
        "--seeds": "0-1,4",
        "--set": "train.steps=1500",
    }


def test_curves_of_one_picture_have_distinct_colours():
    looks = [Style(COLOURS[0], "solid", "circle")] * 8 + [Style(COLOURS[0], "dot", "cross")]
    found = apart(looks)
    assert len({one.colour for one in found[:8]}) == 8
    assert found[8].colour == COLOURS[0]  # a mode of a curve keeps the colour of that curve
    later, own = Style(COLOURS[0], "dash", "square"), Style(COLOURS[0], "solid", "circle")
    assert apart([later, own]) == [replace(later, colour=COLOURS[1]), own]


def test_charts_have_the_baselines_beside_the_best(record):
    names = [f"encoding{at}" for at in range(12)]
    runs = [record(name, 0, {10: 100, 20: 90 - at}) for at, name in enumerate(names)]
    runs += [record(name, 0, {10: 100, 20: 0}) for name in ("nope", "rope", "alibi")]
    own = [row.label for row in shown(tables(runs)[0].rows)]
    assert len(own) == 8
    assert own[0] == "encoding0"
    assert {"nope", "rope", "alibi"} <= set(own)


SOLVES, FAILS = {10: 100, 20: 100, 100: 100}, {10: 100, 20: 80, 100: 70}


def asked(runs, family="copying", budget="any", model="decoder"):
    """The answer of "Which one?", and the labels that it says to use."""
    every = answers(tables(runs, KNOWN), KNOWN)
    (own,) = (a for a in every if (a.model, a.family, a.budget) == (model, family, budget))
    return own, [entry.row.label for entry in own.use]


def many(record, outcomes, **changes):
    """Runs by label: one seed for each outcome."""
    return [
        record(name, seed, own, **changes)
        for name, every in outcomes.items()
        for seed, own in enumerate(every)
    ]


def test_advice_counts_every_protocol(record):
    runs = many(record, {"rope": [FAILS] * 3, "alibi": [FAILS] * 3}, task="parity")
    runs += many(record, {"nope": [SOLVES] * 3}, task="majority", protocol="crasp-mini")
    own, use = asked(runs, "counting")
    assert use == ["nope"]
    found = {(one.one.task, len(one.solvers), one.tested) for one in own.verdicts}
    assert found == {("parity", 0, 2), ("majority", 1, 1)}


def test_advice_counts_seeds_before_costs_and_three_seeds_before_one(record):
    outcomes = {"prism": [SOLVES] * 5, "alibi": [SOLVES] * 4 + [FAILS], "rope": [SOLVES]}
    _, use = asked(many(record, outcomes))
    assert use == ["prism"]


def test_costs_within_a_quarter_are_equal_and_dearer_encodings_are_named(record):
    own, use = asked(many(record, dict.fromkeys(("prism", "fire", "alibi"), [SOLVES] * 3)))
    assert use == ["alibi", "fire"]
    assert [entry.row.label for entry in own.dearer] == ["prism"]
    assert asked(many(record, {"prism": [SOLVES] * 3, "rope": [FAILS] * 3}), budget="low")[1] == []


def test_advice_says_what_a_test_does_not_tell_from_the_best(record):
    outcomes = {
        "fire": [{10: 100, 20: 60 + n, 100: 0} for n in (0, 9, 3)],
        "nope": [{10: 100, 20: 58 + n, 100: 0} for n in (9, 0, 4)],
        "rope": [{10: 100, 20: n, 100: 0} for n in (1, 0, 2)],
    }
    own, use = asked(many(record, outcomes))
    (verdict,) = own.verdicts
    assert use == []
    assert verdict.best.row.label == "fire"
    assert [entry.row.label for entry in verdict.alike] == ["nope"]
    (alone,) = asked(many(record, {"fire": [FAILS]}))[0].verdicts
    assert alone.alike is None


def test_advice_names_tasks_that_none_has_learned_and_better_typed_options(record):
    runs = many(record, {"rope": [{10: 50}] * 3, "alibi": [{10: 50}] * 3}, task="addition")
    runs += many(record, {"rope": [FAILS] * 3, "rope(theta=500)": [SOLVES] * 3}, task="sum")
    verdicts = {v.one.task: v for v in asked(runs, "arithmetic")[0].verdicts}
    assert (verdicts["addition"].best, verdicts["addition"].tested) == (None, 2)


def test_ways_to_extend_compete_with_their_options_and_stand_apart(record):
    start = record("rope", 0).config.model_copy(update={"steps": 5})
    ways = ("rope", "rope(theta=500)", "rerope")
    runs = [
        record(name, seed, {10: 100, 20: 100 - 30 * at, 100: 0}, protocol="extend")
        for at, name in enumerate(ways)
        for seed in range(3)
    ]
    runs = [
        one.model_copy(update={"config": one.config.model_copy(update={"start": start})})
        for one in runs
    ]
    (table,) = tables(runs, KNOWN)
    assert [row.competes for row in table.rows] == [True] * 3
    assert asked(runs, model="extended")[0].verdicts[0].tested == 3


def test_no_matrix_where_nothing_was_compared(record, tmp_path):
    found = tables([record("rope"), record("alibi")])
    site.build(found, [r for t in found for r in t.records], tmp_path / "site")
    page = Page(tmp_path / "site" / "task" / "copy.html")
    assert "no two encodings share two seeds" in page.text
    assert not [name for name in page.all("class") if "signs" in name]


def test_a_tasks_page_shows_no_other_machine_than_that_of_its_file(record, tmp_path):
    own = record(task="turing_machine(file=w.toml)", config={"task_version": 1_234_567})
    known = KNOWN
    for task, example, by_option in (
        (own, False, True),
        (record(task="turing_machine(machine=3)"), True, False),
    ):
        found = tables([task], known)
        assert found[0].policy == "protocol"
        written = site.build(found, [task], tmp_path / "site", catalog=known)
        (page,) = (p for p in written if p.match("task/turing_machine-*.html"))
        text = Page(page).text
        assert ("Worked example without options" in text) == example
        assert ("made by the option file" in text) == by_option


def test_every_paper_that_an_encoding_names_is_known():
    for name, known in KNOWN.encodings.items():
        found = cited(known.paper)
        assert found, (name, known.paper)
        assert all(entry.bibtex.startswith("@article{") for entry in found)


def test_kept_predictions_can_be_downloaded_from_the_page_of_their_run(save, tmp_path):
    runs, out = save(raw_record("rope"), raw_record("alibi"), folder="runs"), tmp_path / "out"
    run = raw_record("rope")["run"]
    for name in (run, "a" * 16):  # the second is of no record
        write(runs / name / "predictions.jsonl.gz", gzip.compress(name.encode()))
    (nothing := tmp_path / "none").mkdir()

    def links(one):
        page = Page(out / "run" / f"{one}.html")
        found = [own["href"] for tag, own in page.tags if tag == "a"]
        return [href for href in found if "predictions" in href]

    build(runs, nothing, out, None)
    (link,) = links(run)
    assert gzip.decompress((out / "run" / link).read_bytes()) == run.encode()
    assert links(raw_record("alibi")["run"]) == []
    assert len([*out.rglob("*predictions*")]) == 1
    kept = runs / run / "predictions.jsonl.gz"
    write(elsewhere := tmp_path / "elsewhere.gz", gzip.compress(b"not of this run"))
    for bad in (
        lambda: None,
        lambda: os.mkfifo(kept),
        kept.mkdir,
        lambda: kept.symlink_to(elsewhere),
        lambda: kept.write_bytes(gzip.compress(b"cut" * 99)[:20]),
        lambda: kept.write_bytes(b"no gzip"),
    ):
        kept.rmdir() if kept.is_dir() else kept.unlink(missing_ok=True)
        bad()
        problems = build(runs, nothing, out, None).problems
        assert (links(run), [*out.rglob("*predictions*")]) == ([], [])
        assert [one.partition(": ")[0] for one in problems] == [str(kept)] * kept.exists()


def test_citation_cff_has_the_version():
    text = (Path(__file__).parents[2] / "CITATION.cff").read_text()
    assert f"version: {pezoo.__version__}\n" in text


def test_text_is_scored_in_bits_and_by_what_longer_context_saves(save, tmp_path):
    runs = [text_record("alibi", seed, {128: 2.5, 256: 2.4 + seed / 10}) for seed in (0, 1)]
    runs += [text_record("rope", seed, {128: 2.5, 256: 3.5}) for seed in (0, 1)]
    runs += [text_record("learned", seed, {128: 2.5, 256: None}) for seed in (0, 1)]
    assert build(None, save(*runs), tmp_path / "out", None).problems == ()
    page = Page(tmp_path / "out" / "index.html")
    assert "Train on 128 bytes, test on 256" in page.text
    (alibi, rope, learned) = page.table("encoding", "256", "cost")[1:]
    assert (alibi["256"], rope["256"], learned["256"]) == ("2.45", "3.50", "–")
    which = Page(tmp_path / "out" / "which.html").text
    assert "alibi (1.0x) has the fewest bits per byte of 3 encodings, 2.45 at 2x" in which
    assert "by paired tests ahead of every other" in which
    (run,) = [run for run in map(Record.of, runs) if (run.encoding, run.seed) == ("alibi", 1)]
    assert "Unseen bits per byte2.500" in Page(tmp_path / "out" / "run" / f"{run.run}.html").text
    pages = markdown(tables([*map(Record.of, runs)]))
    assert "Mean bits per byte over the unseen lengths; best first" in pages
    assert "Fewest bits per byte beyond training: text (alibi, 2.450)." in pages
    drawn = files(tables([*map(Record.of, runs)]))["pictures/text.text.svg"]
    assert "bits per byte, lower is better" in drawn
    levels = [float(y) for y in re.findall(r'<path class="g" d="M56 ([0-9.]+)h', drawn)]
    assert len(levels) == 3  # 2, 3 and 4 bits
    assert levels == sorted(levels, reverse=True)
    assert [line[5] for line in runs_data(map(Record.of, runs))] == ["done"] * 6


@pytest.mark.parametrize(("least", "most"), [(0.0, 1e12), (0.0, 0.0), (1.7, 5.5), (3.0, 44.0)])
def test_any_number_of_bits_is_drawn(save, tmp_path, least, most):
    bits = {"alibi": {128: 2.5, 256: least, 512: least}, "rope": {128: 2.5, 256: most, 512: most}}
    runs = [text_record(name, 0, own) for name, own in bits.items()]
    assert build(None, save(*runs), tmp_path / "out", None).problems == ()
    drawn = files(tables([*map(Record.of, runs)]))["pictures/text.text.svg"]
    levels = [int(n.replace(",", "")) for n in re.findall(r'class="s end">([0-9,]+)<', drawn)]
    assert 2 <= len(levels) <= 12
    assert levels[0] <= least
    assert levels[-1] >= most


def test_two_builds_into_one_folder_take_turns(raw, save, tmp_path):
    out, (records, _) = tmp_path / "out", load([save(raw())])

    def share(work):
        with pytest.raises(Timeout):
            FileLock(out / ".lock", timeout=0).acquire()
        return in_processes(work)

    assert site.build(tables(records), records, out, share=share)
    with FileLock(out / ".lock", timeout=0):
        assert (out / "index.html").is_file()
    shutil.rmtree(out)
    write(out / ".lock", "")
    assert site.build(tables(records), records, out)


def test_files_of_others_are_not_listed_as_the_sites(raw, save, tmp_path):
    records = save(raw(protocol="ruoss2023-mini", task="even_pairs"))
    report = build(None, records, tmp_path / "out", tmp_path / "L.md")
    assert any(path.suffix == ".svg" for path in (tmp_path / "pictures").iterdir())
    listed = (tmp_path / "out" / "files.txt").read_text().splitlines()
    assert all((tmp_path / "out" / name).is_file() for name in listed)
    assert set(report.paths) > {tmp_path / "out" / name for name in listed}


def test_what_an_interrupted_build_left_goes_with_the_next(raw, save, tmp_path):
    out, (records, _) = tmp_path / "out", load([save(raw("rope"), raw("alibi"))])

    def stopped(work):
        work[-1]()  # the pages of runs
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        site.build(tables(records), records, out, share=stopped)
    pages = [out / "run" / f"{raw(name)['run']}.html" for name in ("rope", "alibi")]
    assert all(page.is_file() for page in pages)
    build(None, save(raw("rope"), folder="fewer"), out, None)
    assert [page.is_file() for page in pages] == [True, False]


def test_a_page_of_an_encoding_has_its_costs(raw, save, tmp_path):
    build(None, save(raw("prism")), tmp_path / "site", None)
    text = Page(tmp_path / "site" / "encoding" / "prism.html").text
    own = [one for one in measured() if one.encoding == "prism"]
    assert len(own) > 1
    for one in own:
        assert f"At length {one.length:,}" in text
        assert f"a training step {one.train:.1f} times rope's" in text
