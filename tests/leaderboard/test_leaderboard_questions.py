"""The site of the committed records: its size, and what newcomers ask, answered from raw JSON."""

import csv
import gzip
import json
import re
from collections import defaultdict
from functools import cache
from html import unescape
from importlib.resources import files
from math import inf
from statistics import fmean

import pytest
from scipy.stats import ttest_rel

from harness.settings.catalog import read_catalog
from leaderboard.build import build
from leaderboard.record.read import RECORDS

pytestmark = pytest.mark.slow
FAR, SHARE, PASSED, SEEDS = 10, 0.8, 0.9, 3


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("site")
    build(None, RECORDS, out, None, catalog=read_catalog())
    return out


@pytest.fixture(scope="module")
def raw():
    """Finished runs: {(protocol, task, encoding): {seed: scores of the last weights}}."""
    found = defaultdict(dict)
    for path in RECORDS.rglob("*.json"):
        record = json.loads(path.read_text())
        if record["status"] == "done":
            key = record["protocol"], record["task"], record["encoding"]
            found[key][record["seed"]] = record["scores"]["last"]
    return found


def plain(html):
    return re.sub(r"\s+", " ", unescape(re.sub("<[^>]+>", " ", html)))


def answer(site, model, kind, budget):
    section = f'data-model="{model}" data-kind="{kind}" data-budget="{budget}">(.*?)</section>'
    (found,) = re.findall(section, (site / "which.html").read_text(), re.DOTALL)
    return plain(found)


def solves(runs):
    """Exact on 80 % of the seeds at every length up to ten times the training length."""
    lengths = defaultdict(list)
    trained = max(one["length"] for one in next(iter(runs.values())) if one["seen"])
    for scores in runs.values():
        for one in scores:
            if one["length"] <= FAR * trained:
                lengths[one["length"]].append((one["exact"] or 0) >= PASSED)
    return len(runs) >= SEEDS and all(fmean(own) >= SHARE for own in lengths.values())


def bits_at_the_end(runs):
    """The mean over seeds; infinite where an encoding cannot represent the length."""
    return fmean(scores[-1].get("bits") or inf for scores in runs.values())


def costs(protocol):
    rows = csv.DictReader(files("leaderboard.stats").joinpath("costs.csv").read_text().splitlines())
    return {
        row["encoding"]: float(row["step_ratio"]) for row in rows if row["protocol"] == protocol
    }


def test_i_train_a_small_decoder_on_arithmetic(site, raw):
    said = answer(site, "decoder", "arithmetic", "any")
    assert not [key for key, runs in raw.items() if key[1] == "addition" and solves(runs)]
    assert re.search(
        r"addition \([^)]*\) ?: (none of \d+ encodings solves it|learned by none)", said
    )


def test_i_have_a_rope_model(site, raw):
    (row,) = re.findall(
        r'<table class="advice">.*?model=extended.*?</td>(?=<td)',
        (site / "index.html").read_text(),
        re.DOTALL,
    )
    named = (
        plain(row.split("model=extended")[1]).split("longer texts")[1].replace(" ", "").split(",")
    )
    bits = {
        key[2]: bits_at_the_end(runs)
        for key, runs in raw.items()
        if key[:2] == ("extend", "text") and len(runs) >= SEEDS
    }
    assert bits[named[0]] == min(bits.values())
    assert all(bits[name] < min(bits.values()) + 0.05 for name in named)
    assert bits["rope"] > min(bits.values()) + 3


def test_cheap_and_flat_on_text(site, raw):
    said, cost = answer(site, "decoder", "text", "low"), costs("text")
    bits = {
        key[2]: bits_at_the_end(runs)
        for key, runs in raw.items()
        if key[:2] == ("text", "text") and len(runs) >= SEEDS and cost.get(key[2], 9) <= 1.25
    }
    named = re.search(r"Use ([\w:]+) \(", said)[1]
    assert bits[named] < min(bits.values()) + 0.05


def test_what_does_prism_cost_me(site):
    page = plain((site / "encoding" / "prism.html").read_text())
    for protocol, length in (("quick", 10), ("text", 128)):
        step = costs(protocol)["prism"]
        assert f"At length {length} a training step {step:.1f} times rope's" in page


def test_is_fox_better_than_alibi(site, raw):
    """Where both have learned; elsewhere there is no statement."""
    checked = 0
    for page in sorted((site / "task").glob("*.html")):
        for title in re.findall(r'title="(fox: [\w ]+:? alibi)"', page.read_text()):
            checked += 1
            task = page.stem
            fox, alibi = (raw["quick", task, name] for name in ("fox", "alibi"))
            shared = sorted(fox.keys() & alibi.keys())
            unseen = [
                [fmean(one["exact"] for one in runs[seed] if not one["seen"]) for seed in shared]
                for runs in (fox, alibi)
            ]
            if "better" in title or "worse" in title:
                found = ttest_rel(*unseen)
                assert found.pvalue < 0.05
                assert (found.statistic > 0) == ("better" in title)
    assert checked


def test_committed_pages_load_at_most_300_kb(site):
    packed = cache(lambda path: len(gzip.compress(path.read_bytes(), 6)))
    tables, pairs = (max(map(packed, site.glob(f"data/*.{k}.js"))) for k in ("tables", "pairs"))
    pages = [path for path in site.rglob("*.html") if path.name != "runs.html"]
    for path in sorted(pages, key=lambda path: path.stat().st_size)[-100:]:
        names = re.findall(r'(?:src|href)="([^"]+[.](?:js|css))"', path.read_text())
        own = packed(path) + sum(packed((path.parent / name).resolve()) for name in names)
        later = tables + pairs * (path.name == "compare.html") if "data.js" in str(names) else 0
        assert own + later < 300_000, path.name
