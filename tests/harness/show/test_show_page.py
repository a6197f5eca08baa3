"""`pezoo show`: the page is whole and safe; wrong input and lost files are explained."""

import re
import shutil
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from html.parser import HTMLParser

import pytest
import torch
from safetensors.torch import load_file

from harness.cli.show import _load, find
from harness.runs.execute import execute
from harness.runs.folder import RunFolder
from harness.runs.record import new_record
from harness.show import plots
from harness.show.page import Inspection, labelled, page
from harness.training.trainer import start

CURSORS = "prism(cursors=1,d_pe=8,hidden=6)"


@pytest.fixture(scope="module")
def runs(config_of, tmp_path_factory):
    """Finished runs by encoding, and the folder that they lie in; nobody changes them."""
    root = tmp_path_factory.mktemp("runs")
    made = {
        name: execute(config_of(name), root, "test", lambda _: None)["run"]
        for name in (CURSORS, "alibi", "learned")
    }
    return root, made


@pytest.fixture
def copied(runs, tmp_path):
    """The folder of a copy of a run, without its page."""
    root, made = runs
    source, target = root / made["alibi"], tmp_path / made["alibi"]
    return shutil.copytree(source, target, ignore=shutil.ignore_patterns("show.html"))


class Page(HTMLParser):
    """Titles, anchors, and whatever could load something from elsewhere."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.outside, self.tags, self.text = [], [], [], [], ""
        self.feed(text)

    def handle_data(self, data):
        self.text += data

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        values = dict(attrs)
        if "id" in values:
            self.ids.append(values["id"])
        href = values.get("href") or values.get("xlink:href") or ""
        if tag == "a":
            self.links.append(href.removeprefix("#"))
        elif not href.startswith(("data:image/png;base64,", "#")) and href:
            self.outside.append(href)
        self.outside += [values[name] for name in ("src", "srcset", "data") if name in values]


def test_the_page_of_a_run_is_whole_and_needs_nothing_else(call, runs):
    root, made = runs
    code, out, err = call("show", made[CURSORS][:8], "--runs", root)
    assert code == 0, err
    path = root / made[CURSORS] / "show.html"
    assert f"page {path}" in out
    assert "last checkpoint" in out
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    assert page.outside == []
    assert not {"script", "link", "iframe", "object"} & set(page.tags)
    inside = {f"#{name}" for name in page.ids}
    assert set(re.findall(r"url\(([^)]*)\)", text)) <= inside
    assert "@import" not in text
    assert set(page.links) <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    for anchor in ("scores", "attention-of-every-head", "gates", "learned-constants"):
        assert anchor in page.links
    assert "example 1: length 10, seen in training" in text
    assert "example 2: length 20, longer than in training" in text


@pytest.mark.parametrize(("size", "numbered"), [(48, False), (54, False), (55, True), (95, True)])
def test_tokens_that_pictures_number_can_be_found_in_the_example(example, size, numbered):
    """A picture shows one token less than there are: the last is written, never read."""
    one = example("1" * (size // 2) + "=" + "1" * (size - size // 2 - 1))
    assert len(one.tokens) == size + 1
    label = plots._words(plots.Axis("key"), one)[1]
    assert label == ("key, by number" if numbered else "key")
    numbers = [number for _, _, number in labelled(one)]
    wanted = [i for i in range(10, size + 1, 10) if numbered]
    assert numbers == [i if i in wanted else None for i in range(size + 1)]


def test_prompts_out_and_single_pictures(call, runs, tmp_path):
    root, made = runs
    out, folder = tmp_path / "page.html", tmp_path / "pictures"
    where = ["--runs", root, "--out", out, "--svg", folder, "--length", "13"]
    code, _, err = call("show", made["alibi"], *where, "--prompt", "4711=", "--prompt", "12=")
    assert code == 0, err
    text = out.read_text(encoding="utf-8")
    assert "example 1: length 4, seen in training" in text
    assert "example 2: length 2, seen in training" in text
    assert "at length 10, " in text
    assert "at length 13." in text
    assert "Gates" not in text
    names = {path.name for path in folder.iterdir()}
    assert "bias-1-all-layers-head-0.svg" in names
    assert "attention-of-every-head-2-layer-0-head-0.svg" in names
    for path in folder.iterdir():
        root = ElementTree.fromstring(path.read_text(encoding="utf-8"))
        assert root.get("aria-label")
        assert [e.text for e in root.iter("{http://www.w3.org/2000/svg}text")]


def test_a_length_that_cannot_be_represented_is_said(call, runs):
    root, made = runs
    code, _, err = call("show", made["learned"], "--runs", root)
    assert code == 0, err
    text = (root / made["learned"] / "show.html").read_text(encoding="utf-8")
    assert "Learned represents positions" in text
    assert "example 1" in text
    assert "example 2" not in text


def test_hostile_text_in_a_run_stays_text(runs):
    root, made = runs
    evil = "</style><script>alert(1)</script>"
    run, _ = _load(find(made["learned"], str(root)), str(root), (), None)
    settings = dict.fromkeys(("encoding", "task", "protocol", "label"), evil)
    run = replace(
        run,
        config=run.config.model_copy(update=settings),
        record=run.record
        | dict.fromkeys(("run", "encoding", "task", "seed"), evil)
        | {"scores": {evil: run.record["scores"]["last"]}, "env": {"pezoo": evil, "torch": evil}},
    )
    found = Page(page(run, Inspection([], [evil], []), evil))
    assert "script" not in found.tags
    assert found.text.count(evil) >= 11


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["ffffffff"], "found none"),
        (["../x"], "found none"),
        (["RUN", "--prompt", "1a="], "unknown symbol"),
        (["RUN", "--prompt", "12"], "no prompt of copy"),
        (["RUN", "--prompt", "="], "no instance of length 0"),
        (["RUN", "--mode", "snaped"], "did you mean snapped"),
        (["RUN", "--length", "10"], "expected a length beyond training's 10, was given 10"),
        (["RUN", "--length", "0"], "x>=1"),
        (["RUN", "--out", "/nowhere/page.html"], "no folder /nowhere"),
    ],
)
def test_bad_input_exits_2(call, runs, args, words):
    root, made = runs
    args = [made[CURSORS] if arg == "RUN" else arg for arg in args]
    code, out, err = call("show", *args, "--runs", root)
    assert code == 2
    assert words in err
    assert "Traceback" not in out + err
    assert out == ""


def test_a_run_that_is_not_finished_exits_2(call, config_of, tmp_path):
    config = config_of("nope")
    folder = RunFolder(tmp_path, config)
    folder.path.mkdir()
    (folder.path / "config.json").write_text("{}")
    code, _, err = call("show", config.hash, "--runs", tmp_path)
    assert code == 2
    assert "is not finished" in err


def test_scores_are_shown_when_the_weights_are_gone_or_do_not_fit(call, copied, monkeypatch):
    def strange(*args):
        raise RuntimeError("size mismatch for blocks.0.up.weight")

    where = "--runs", copied.parent
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "restore", strange)
        code, out, err = call("show", copied.name, *where)
    assert (code, "last checkpoint" in out, "another version" in err) == (2, True, True)
    for path in copied.glob("ckpt-*"):
        path.unlink()
    code, out, err = call("show", copied.name, *where)
    assert (code, "last checkpoint" in out, "checkpoint is gone" in err) == (0, True, True)
    assert not (copied / "show.html").exists()


def test_a_failed_run_is_told_without_a_page(call, config_of, tmp_path):
    config = config_of("nope")
    folder = RunFolder(tmp_path, config)
    folder.path.mkdir()
    (folder.path / "config.json").write_text("{}")
    record = new_record(config, "pezoo bench --pe nope --task copy")
    folder.finish(record | {"status": "failed", "reason": "Diverged: loss is nan"})
    code, out, _ = call("show", config.hash, "--runs", tmp_path)
    assert code == 0
    assert "failed: Diverged" in out
    assert not (folder.path / "show.html").exists()


def test_a_run_whose_settings_are_not_those_of_its_hash_exits_2(call, config_of, copied):
    folder = RunFolder(copied.parent, config_of("alibi"))
    record = folder.result()
    record["config"]["seed"] = 1
    folder.finish(record)
    with pytest.warns(UserWarning, match="is of another run, not used"):
        code, _, err = call("show", copied.name, "--runs", copied.parent)
    assert code == 2
    assert "has a result that is damaged, or of other settings or code" in " ".join(err.split())


def test_a_run_is_loaded_as_it_was_before_and_after_training(runs):
    root, made = runs
    loaded, _ = _load(find(made[CURSORS], str(root)), str(root), (), None)
    weights = load_file(root / made[CURSORS] / "ckpt-00000003.safetensors")
    for name, value in loaded.trained.state_dict().items():
        assert torch.equal(value, weights[name])
    fresh = start(loaded.config).model.state_dict()
    for name, value in loaded.untrained.state_dict().items():
        assert torch.equal(value, fresh[name])
    assert not torch.equal(loaded.trained.encoding.alpha, loaded.untrained.encoding.alpha)
