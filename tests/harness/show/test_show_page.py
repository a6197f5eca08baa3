"""`pezoo show`: the page is whole and safe; wrong input and lost files are explained."""

import shutil
import xml.etree.ElementTree as ElementTree
from base64 import b64decode
from html.parser import HTMLParser

import pytest
import torch
from safetensors.torch import load_file

from harness.cli.show import config_of, find, restore, started
from harness.runs.folder import RunFolder
from harness.runs.record import new_record
from harness.runs.run import execute
from harness.show.page import FinishedRun, Inspection, labelled, page
from harness.show.plots import Scale, heat_maps
from pezoo.pictures import Axis

IMAGE = "data:image/svg+xml;base64,"

CURSORS = "prism_2025(cursors=1,d_pe=8,hidden=6)"


@pytest.fixture(scope="module")
def runs(config_of, tmp_path_factory):
    """Finished runs by encoding, and the folder that they lie in; nobody changes them."""
    root = tmp_path_factory.mktemp("runs")
    made = {
        name: execute(config_of(name), root, "test", lambda _: None).run
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
    """Ids, links within the page, pictures by name, and whatever loads from elsewhere."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.pictures, self.outside = [], [], {}, []
        self.tags, self.text = set(), ""
        self.feed(text)

    def handle_data(self, data):
        self.text += data

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        values = dict(attrs)
        if "id" in values:
            self.ids.append(values["id"])
        for name in {"href", "src", "srcset", "data", "xlink:href"} & set(values):
            address = values[name]
            if tag == "a" and address.startswith("#"):
                self.links.append(address[1:])
            elif tag == "img" and address.startswith(IMAGE):
                svg = b64decode(address.removeprefix(IMAGE)).decode()
                self.pictures.setdefault(values["alt"], []).append(svg)
            else:
                self.outside.append(address)


@pytest.mark.slow
def test_the_page_of_a_run_is_whole_and_needs_nothing_else(call, runs):
    root, made = runs
    code, out, err = call("show", made[CURSORS][:8], "--runs", root)
    assert code == 0, err
    path = root / made[CURSORS] / "show.html"
    assert str(path) in out
    assert "last and best checkpoint" in out
    page = Page(path.read_text())
    assert page.outside == []
    assert not {"script", "link", "iframe", "object"} & page.tags
    assert "@import" not in page.text  # of the style sheet
    assert "url(" not in page.text
    assert set(page.links) <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    for anchor in ("scores", "attention-of-every-head", "gates", "learned-constants"):
        assert anchor in page.links
    for name in ("exact match", "lengths of the answer", "layer 0, head 0", "increment"):
        assert ElementTree.fromstring(page.pictures[name][0]).tag.endswith("svg")
    assert "example 1: length 10, seen in training" in page.text
    assert "example 2: length 20, longer than in training" in page.text


@pytest.mark.parametrize(("size", "numbered"), [(48, False), (54, False), (55, True), (95, True)])
def test_tokens_that_pictures_number_can_be_found_in_the_example(example, size, numbered):
    """A picture shows one token less than there are: the last is written, never read."""
    one = example("1" * (size // 2) + "=" + "1" * (size - size // 2 - 1))
    assert len(one.tokens) == size + 1
    values, axes = torch.ones(1, size, size), (Axis("query"), Axis("key"))
    (svg,) = heat_maps(["x"], values, *axes, Scale(0, 1, "Blues"), one)
    assert ("key, by number" in svg) == numbered
    numbers = [number for _, _, number in labelled(one)]
    wanted = [i for i in range(10, size + 1, 10) if numbered]
    assert numbers == [i if i in wanted else None for i in range(size + 1)]


def test_prompts_out_and_single_pictures(call, runs, tmp_path):
    root, made = runs
    out, folder = tmp_path / "page.html", tmp_path / "pictures"
    where = ["--runs", root, "--out", out, "--svg", folder, "--length", "13"]
    code, _, err = call("show", made["alibi"], *where, "--prompt", "4711=", "--prompt", "12=")
    assert code == 0, err
    text = Page(out.read_text()).text
    assert "example 1: length 4, seen in training" in text
    assert "example 2: length 2, seen in training" in text
    assert "at length 13." in text
    assert "Gates" not in text
    names = {path.name for path in folder.iterdir()}
    assert "bias-1-all-layers-head-0.svg" in names
    assert "attention-of-every-head-2-layer-0-head-0.svg" in names
    for path in folder.iterdir():
        assert ElementTree.fromstring(path.read_text(encoding="utf-8")).tag.endswith("svg")


def test_a_length_that_cannot_be_represented_is_said(call, runs):
    root, made = runs
    code, _, err = call("show", made["learned"], "--runs", root)
    assert code == 0, err
    text = Page((root / made["learned"] / "show.html").read_text()).text
    assert "represents positions" in text
    assert "example 1" in text
    assert "example 2" not in text


def test_hostile_text_in_a_run_stays_text(runs):
    root, made = runs
    evil = "</style><script>alert(1)</script>"
    record = find(made["learned"], str(root))
    trainer = started(config_of(record))
    settings = dict.fromkeys(("encoding", "task", "protocol", "spec"), evil)
    config = trainer.config.model_copy(update=settings)
    record = record.data() | dict.fromkeys(("run", "encoding", "task", "seed"), evil)
    record |= {"scores": {evil: record["scores"]["last"]}, "env": {"pezoo": evil, "torch": evil}}
    run = FinishedRun(record, config, trainer.task, trainer.model, trainer.model)
    found = Page(page(run, Inspection([], [evil], []), evil))
    assert "script" not in found.tags
    assert found.text.count(evil) >= 11


def test_of_text_bits_are_shown_and_no_verdict(runs, example):
    root, made = runs
    record = find(made["learned"], str(root))
    trainer = started(config_of(record))
    config, record = trainer.config.replace(track="text"), record.data()
    score = record["scores"]["last"][0] | {"bits": 1.5, "gain": -0.25}
    record["scores"] = {"last": [score, score | {"gain": None}]}
    record["learning"] = [{"step": 10, "loss": 2.0, "exact": None}]
    run = FinishedRun(record, config, trainer.task, trainer.model, trainer.model)
    found = Page(page(run, Inspection([example()], [], [])))
    words = found.text.split("training lengths, during")[0].split("longer than in training.")[1]
    assert "last1.5001.500" in "".join(words.split())
    assert "last-0.250" in "".join(words.split())
    assert "batch loss" in found.pictures
    assert "exact match" not in found.pictures
    assert "Right." not in found.text
    assert "in the file" in found.text


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["ffffffff"], "found none"),
        (["../x"], "found none"),
        (["RUN", "--prompt", "1a="], "unknown symbol"),
        (["RUN", "--prompt", "12"], "copy"),
        (["RUN", "--prompt", "="], "length 0"),
        (["RUN", "--mode", "snaped"], "did you mean snapped"),
        (["RUN", "--length", "10"], "beyond training's 10"),
        (["RUN", "--length", "0"], "--length"),
        (["RUN", "--out", "/nowhere/page.html"], "/nowhere"),
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
    assert (code, "last and best checkpoint" in out, "another version" in err) == (2, True, True)
    for path in copied.glob("ckpt-*"):
        path.unlink()
    code, out, err = call("show", copied.name, *where)
    assert (code, "last and best checkpoint" in out, "checkpoint is gone" in err) == (0, True, True)
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
    record = folder.result().data()
    record["config"]["seed"] = 1
    folder.finish(record)
    with pytest.warns(UserWarning, match="another run"):
        code, _, err = call("show", copied.name, "--runs", copied.parent)
    assert code == 2
    assert "damaged result" in err


def test_a_run_is_loaded_as_it_was_before_and_after_training(runs):
    root, made = runs
    config = config_of(find(made[CURSORS], str(root)))
    trained, untrained = started(config), started(config)
    assert restore(trained, config, str(root))
    weights = load_file(root / made[CURSORS] / "ckpt-00000003.safetensors")
    for name, value in trained.model.state_dict().items():
        assert torch.equal(value, weights[name])
    assert not torch.equal(trained.model.encoding.alpha, untrained.model.encoding.alpha)
