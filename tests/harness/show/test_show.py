"""`pezoo show`: what is watched is what happens, and a page says it in full."""

import base64
import math
import re
import struct
import xml.etree.ElementTree as ET
import zlib
from dataclasses import replace
from html.parser import HTMLParser

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

import pezoo
from harness import tasks
from harness.cli.show import _load, find
from harness.model.decoder import Decoder, shape_of
from harness.runs.execute import execute
from harness.runs.folder import RunFolder
from harness.settings.protocol import Model, load_protocol, resolve
from harness.show import examples, png, svg
from harness.show.axes import Tokens, round_numbers
from harness.show.figures import FOLDED, MOST, figures
from harness.show.page import words
from harness.show.watch import View, view
from harness.training.trainer import start
from pezoo.encodings.randomized import Randomized
from pezoo.pictures import Axis, Picture
from pezoo.spec import parse

MODEL = Model(layers=2, heads=2, width=16)
SET = (
    "train.steps=3", "train.batch=4", "eval.samples=2", "eval.min_samples=2",
    "eval.validation_samples=1", "eval.lengths=[10,20]",
    "model.width=16", "model.heads=2",
)  # fmt: skip
CURSORS = "prism(cursors=1,d_pe=8,hidden=6)"
SVG = "{http://www.w3.org/2000/svg}"


def config_of(encoding, task="copy"):
    return resolve(load_protocol("quick", SET), task, parse(encoding), 0, "cpu", "auto")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Finished runs by encoding, and the folder that they lie in."""
    root = tmp_path_factory.mktemp("runs")
    made = {
        name: execute(config_of(name), root, "test", lambda _: None)["run"]
        for name in (CURSORS, "alibi", "learned")
    }
    return root, made


# The PNG


def levels_of(uri):
    """Width, height and the palette index of every pixel of a PNG, and its palette."""
    content = base64.b64decode(uri.removeprefix("data:image/png;base64,"))
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = {}, 8
    while at < len(content):
        size = struct.unpack(">I", content[at : at + 4])[0]
        kind, body = content[at + 4 : at + 8], content[at + 8 : at + 8 + size]
        assert zlib.crc32(kind + body) == struct.unpack(">I", content[at + 8 + size :][:4])[0]
        chunks[kind], at = body, at + 12 + size
    width, height, depth, colour = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    assert (depth, colour) == (8, 3)
    lines = zlib.decompress(chunks[b"IDAT"])
    rows = [lines[r * (width + 1) :][: width + 1] for r in range(height)]
    assert len(lines) == height * (width + 1)
    assert {row[0] for row in rows} == {0}  # no filter
    assert chunks[b"tRNS"][0] == 0  # index 0 is transparent, and it alone
    assert len(chunks[b"tRNS"]) == 1
    return [list(row[1:]) for row in rows], chunks[b"PLTE"]


@given(
    st.integers(1, 5).flatmap(
        lambda n: st.lists(
            st.lists(
                st.floats(-2, 2) | st.just(math.nan) | st.just(-math.inf), min_size=n, max_size=n
            ),
            min_size=1,
            max_size=4,
        )
    )
)
def test_a_pixel_of_the_png_is_a_value(values):
    rows, palette = levels_of(png.data_uri(torch.tensor(values), -1.0, 1.0, png.SEQUENTIAL))
    assert len(palette) == 3 * 256
    assert tuple(palette[3:6]) == png.SEQUENTIAL[0]
    assert tuple(palette[-3:]) == png.SEQUENTIAL[-1]
    for row, line in zip(rows, values, strict=True):
        for level, value in zip(row, line, strict=True):
            if not math.isfinite(value):
                assert level == 0
            else:
                assert abs(level - (1 + 127 * (min(1, max(-1, value)) + 1))) <= 0.51


def test_colours_of_a_scale():
    low = svg.scale_of(torch.tensor([[-3.0, math.nan], [-1.0, -math.inf]]), None)
    assert (low.low, low.high, low.colours) == (-3.0, 0.0, png.SEQUENTIAL[::-1])
    both = svg.scale_of(torch.tensor([-3.0, 1.0]), None)
    assert (both.low, both.high, both.colours) == (-3.0, 3.0, png.DIVERGING)
    assert png.DIVERGING[3] == (255, 255, 255)  # 0, in the middle
    high = svg.scale_of(torch.tensor([2.0, 5.0]), None)
    assert (high.low, high.high) == (0.0, 5.0)
    assert svg.scale_of(torch.full((2, 2), math.nan), None).high == 1.0
    assert svg.scale_of(torch.zeros(2), None).high == 1.0
    assert svg.scale_of(torch.tensor([7.0]), (0.0, 1.0)).high == 1.0


# Panels


def drawn(text):
    """The SVG as a tree, and its words."""
    root = ET.fromstring(text)
    kinds = {element.tag.removeprefix(SVG) for element in root.iter()}
    assert kinds <= {"svg", "rect", "image", "path", "text", "title", "circle", "style"}
    return root, [element.text for element in root.iter(f"{SVG}text")]


@settings(max_examples=40)
@given(st.lists(st.sampled_from(["<b>", "&", '"x"', "1", "]]>", "walk"]), min_size=2, max_size=60))
def test_a_heat_map_is_well_formed_and_shows_every_token(words):
    count = len(words) - 1
    tokens = Tokens(tuple(words[:-1]), tuple(words[1:]), max(1, count // 2))
    values = torch.rand(count, count)
    scale = svg.scale_of(values, None)
    text = svg.heat("a <name>", values, Axis("query"), Axis("key"), scale, tokens)
    root, found = drawn(text)
    assert root.get("aria-label") == "a <name>"
    assert "writes" in found or count > 48
    if count <= 48:
        for word in set(words):
            beside = words[:-1].count(word) * 2 + words[tokens.prompt :].count(word)
            assert found.count(word) == beside
    else:
        assert "query, by number" in found
        assert "0" in found


def test_marks_stand_in_the_middle_of_their_row():
    values = torch.rand(4, 3)
    axes = Axis("offset", ("3", "2", "1", "0")), Axis("token")
    tokens = Tokens(("a", "b", "c"), ("b", "c", "d"), 2)
    marks = torch.tensor([0, 3, 1])
    text = svg.heat("x", values, *axes, svg.Scale(0, 1, png.SEQUENTIAL), tokens, marks)
    root, _ = drawn(text)
    path = next(e.get("d") for e in root.iter() if e.get("class") == "mark")
    image = next(root.iter(f"{SVG}image"))
    row = float(image.get("height")) / 4
    steps = [float(y) for y in re.findall(r"V([\d.]+)h", path)]
    assert steps == pytest.approx([0.5 * row, 3.5 * row, 1.5 * row])


def test_bars_are_as_high_as_their_values():
    values, before = torch.tensor([0.0, 0.5, 1.0]), torch.tensor([0.5, 0.5, 0.5])
    text = svg.bars("x", values, "mu", Axis("head", ("0", "1", "2")), (0.0, 1.0), before)
    root, words = drawn(text)
    heights = [float(e.get("height")) for e in root.iter(f"{SVG}rect") if e.get("class") == "bar"]
    assert heights == pytest.approx([0.5, 55, 110])  # the least height can still be seen
    starts = [e.get("d") for e in root.iter() if e.get("class") == "before"]
    assert [float(d.split()[1].split("h")[0]) for d in starts] == [55, 55, 55]
    assert {"mu", "head", "0", "1", "2", "0.5"} <= set(words)


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6), st.integers(2, 6))
def test_round_numbers_lie_between_and_are_few(low, size, most):
    found = round_numbers(low, low + size, most)
    assert all(low - 1e-6 * size <= x <= low + size * (1 + 1e-6) + abs(low) * 1e-9 for x in found)
    assert len(found) <= most + 1
    assert found == sorted(found)


def test_a_standalone_file_has_its_own_colours():
    text = svg.standalone(svg.colour_bar(svg.Scale(0, 1, png.SEQUENTIAL)))
    root, words = drawn(text)
    assert words == ["0", "1"]
    assert "--ink" in next(root.iter(f"{SVG}style")).text


# What is watched


def decoder(text, train_len=32):
    torch.manual_seed(0)
    encoding = pezoo.make(text, shape_of(MODEL, train_len))
    return Decoder(MODEL, encoding, 0).eval()


def example(text="4711=4711", number=1):
    """An example as if the model had answered with the right half of the text."""
    task = tasks.make("copy")
    ids = torch.cat([task.vocab.encode(text), torch.tensor([task.vocab.eos])])[None]
    words = tuple(examples.word(task, int(i)) for i in ids[0])
    prompt = text.index("=") + 1
    return examples.Example(
        number, prompt - 1, True, prompt, ids, words, (False,) * len(words), "", ids.shape[1] - 1
    )


def test_attention_is_that_of_a_plain_loop():
    model, one = decoder("alibi"), example()
    seen = view(model, one)
    block, t = model.blocks[0], one.ids.shape[1] - 1
    with torch.no_grad():
        x = model.embedding(one.ids[:, :-1]) * 4
        q, k, _ = block.qkv(block.norm1(x))[0].view(t, 3, 2, 8).unbind(1)
    for h, slope in enumerate((2**-4, 2**-8)):
        for i in range(t):
            logits = [float(q[i, h] @ k[j, h]) / 8**0.5 - slope * (i - j) for j in range(i + 1)]
            row = torch.tensor(logits).softmax(0)
            torch.testing.assert_close(seen.attention[0, h, i, : i + 1], row)
            assert seen.bias[1, h, i, 0] == pytest.approx(-slope * i)


@pytest.mark.parametrize("text", [*pezoo.names(), f"randomized:{CURSORS}"])
def test_watching_any_encoding_changes_nothing(text):
    model, one = decoder(text), example()
    before = model.encoding, model.attention
    ids = one.ids[:, :-1]

    def logits():
        pos, scale = torch.arange(ids.shape[1])[None], torch.tensor([one.length])
        draws = examples.positions(one.length)
        return model(ids, pos, scale=scale, generator=draws, total=one.planned)

    with torch.no_grad():
        expected = logits()
        seen = view(model, one)
        assert (model.encoding, model.attention) == before
        torch.testing.assert_close(logits(), expected)
    assert seen.attention.shape == (2, 2, 9, 9)
    if not before[0].replaces_softmax:
        torch.testing.assert_close(seen.attention.sum(-1), torch.ones(2, 2, 9))
    assert (seen.attention.sum(-1) < 1 + 1e-5).all()
    assert not bool(seen.attention.triu(1).any())
    found = figures([seen], [seen])
    assert [f.title for f in found[:2]] == [
        "Attention: maximum over heads",
        "Attention of every head",
    ]
    assert ("Bias" in [f.title for f in found]) == (seen.bias is not None)


def test_an_encoding_is_restored_when_it_cannot_represent_the_example():
    model = decoder("learned", train_len=4)
    before = model.encoding
    with pytest.raises(pezoo.PositionError):
        view(model, example())
    assert model.encoding is before


def test_random_positions_are_those_that_the_answer_was_given_with(monkeypatch):
    drawn, draw = [], Randomized.draw
    monkeypatch.setattr(Randomized, "draw", lambda *args: drawn.append(draw(*args)) or drawn[-1])
    task, config = tasks.make("copy"), config_of("randomized:alibi")
    model = decoder("randomized:alibi")
    one = examples.answer(model, task, config, task.vocab.encode("4711="))
    cut = replace(one, ids=one.ids[:, :7])  # as if the model had stopped early
    view(model, cut)
    assert len(drawn) == 2
    assert torch.equal(*drawn)


# Examples


def test_an_answer_ends_where_the_model_ends_it_and_says_what_is_wrong(monkeypatch):
    task, config = tasks.make("copy"), config_of("nope")
    prompt = task.vocab.encode("471=")
    said = torch.cat([prompt, task.vocab.encode("49"), torch.tensor([task.vocab.eos, 3])])[None]
    monkeypatch.setattr(examples, "decode", lambda *args: said)
    one = examples.answer(decoder("nope"), task, config, prompt, 3)
    assert one.tokens == ("4", "7", "1", "=", "4", "9", "end")
    assert one.wrong == (False, False, False, False, False, True, True)
    assert (one.right, one.truth, one.prompt, one.planned) == (False, "471", 4, 7)
    assert one.title == "example 3: length 3, seen in training"


@pytest.mark.parametrize("name", tasks.names())
def test_example_lengths_lie_within_and_beyond_training(name):
    task, config = tasks.make(name), config_of("nope", name)
    seen, *beyond = examples.lengths(task, config)
    top = config.train.lengths[1]
    assert seen == max(task.lengths(1, top))
    assert beyond
    assert all(top < n <= 3 * top for n in beyond)
    for n in (seen, *beyond):
        prompt = examples.sample(task, n)
        assert task.measure(prompt.tolist()) == n
        assert torch.equal(prompt, examples.sample(task, n))


# Figures


def panels(weights=None, count=12, title="Title", value=0.0, group=1):
    values = torch.full((count, 2, 2), value)
    names = tuple(f"panel {i}" for i in range(count))
    axes = Axis("query"), Axis("key")
    return Picture(title, "Caption.", names, values, *axes, weights=weights, group=group)


def seen_with(*pictures):
    one = example("1=")
    return View(one, torch.eye(2).expand(1, 2, 2, 2), None, list(pictures))


def names_of(groups):
    return [name for group in groups for name, _ in group]


def test_panels_that_matter_after_training_come_first_in_every_part():
    weights = torch.arange(12.0)
    first, last = seen_with(panels(torch.zeros(12))), seen_with(panels(weights))
    figure = figures([last], [first])[-1]
    assert [part.heading.split()[0] for part in figure.parts] == ["Before", "After"]
    for part in figure.parts:
        assert names_of(part.panels) == [f"panel {i}" for i in range(11, 11 - MOST, -1)]
        assert names_of(part.folded) == [f"panel {i}" for i in range(11 - MOST, -1, -1)]
        assert part.left_out == 0


def test_one_colour_means_one_value_before_and_after_training():
    first, last = seen_with(panels(value=-1.0)), seen_with(panels(value=4.0))
    before, after = figures([last], [first])[-1].parts
    assert drawn(before.legend)[1] == drawn(after.legend)[1] == ["-4", "4"]
    pixels = [re.search(r'href="(data:[^"]+)"', p.panels[0][0][1])[1] for p in (before, after)]
    levels = [levels_of(uri)[0][0][0] for uri in pixels]
    assert levels == [1 + round(254 * 3 / 8), 255]


def test_neighbours_that_are_read_together_stay_together():
    weights = torch.tensor([1.0, 1, 3, 3, 2, 2])
    figure = figures([seen_with(panels(weights, 6, group=2))], [])[-1]
    pairs = [[name for name, _ in group] for group in figure.parts[0].panels]
    assert pairs == [["panel 2", "panel 3"], ["panel 4", "panel 5"], ["panel 0", "panel 1"]]


def test_what_is_not_drawn_is_counted():
    part = figures([seen_with(panels(count=MOST + FOLDED + 5))], [])[-1].parts[0]
    assert (len(part.panels), len(part.folded), part.left_out) == (MOST, FOLDED, 5)


def test_constants_stand_beside_their_start():
    def bars(value):
        values = torch.full((1, 1, 2), value)
        axes = Axis("mu", ("",)), Axis("head", ("0", "1"))
        return Picture("Mu", "Caption.", ("layer 0",), values, *axes, kind="bars")

    figure = figures([seen_with(bars(1.0))], [seen_with(bars(0.25))])[-1]
    assert (figure.title, figure.parts[0].heading) == ("Learned constants", "Mu")
    root, _ = drawn(figure.parts[0].panels[0][0][1])
    start = next(e.get("d") for e in root.iter() if e.get("class") == "before")
    assert float(start.split()[1].split("h")[0]) == pytest.approx(110 * 0.75)


# The page


class Page(HTMLParser):
    """Titles, anchors, and whatever could load something from elsewhere."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.outside, self.tags = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        values = dict(attrs)
        if "id" in values:
            self.ids.append(values["id"])
        href = values.get("href") or ""
        if tag == "a":
            self.links.append(href.removeprefix("#"))
        elif href and not href.startswith("data:image/png;base64,"):
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
    assert "url(" not in text
    assert "@import" not in text
    assert set(page.links) <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    for anchor in ("scores", "attention-of-every-head", "gates", "learned-constants"):
        assert anchor in page.links
    assert "example 1: length 10, seen in training" in text
    assert "example 2: length 20, longer than in training" in text


@pytest.mark.parametrize(("size", "counted"), [(48, False), (54, False), (55, True), (95, True)])
def test_tokens_that_pictures_count_can_be_found_in_the_example(size, counted):
    """A picture shows one token less than there are: the last is written, never read."""
    one = example("1" * (size // 2) + "=" + "1" * (size - size // 2 - 1))
    assert len(one.tokens) == size + 1
    numbers = [number for _, _, number in words(one)]
    axis = svg.heat(
        "", torch.rand(size, size), Axis("query"), Axis("key"), svg.Scale(0, 1, png.SEQUENTIAL),
        Tokens(one.tokens[:-1], one.tokens[1:], one.prompt),
    )  # fmt: skip
    assert ("key, by number" in drawn(axis)[1]) == counted
    wanted = [i for i in range(10, size + 1, 10) if counted]
    assert numbers == [i if i in wanted else None for i in range(size + 1)]


def test_prompts_out_and_single_pictures(call, runs, tmp_path):
    root, made = runs
    out, folder = tmp_path / "page.html", tmp_path / "pictures"
    where = ["--runs", root, "--out", out, "--svg", folder]
    code, _, err = call("show", made["alibi"], *where, "--prompt", "4711=", "--prompt", "12=")
    assert code == 0, err
    text = out.read_text(encoding="utf-8")
    assert "example 1: length 4, seen in training" in text
    assert "example 2: length 2, seen in training" in text
    assert "Gates" not in text
    names = {path.name for path in folder.iterdir()}
    assert "bias-1-all-layers-head-0.svg" in names
    assert "attention-maximum-over-heads-2-layer-1.svg" in names
    for path in folder.iterdir():
        drawn(path.read_text(encoding="utf-8"))


def test_a_length_that_cannot_be_represented_is_said(call, runs):
    root, made = runs
    code, _, err = call("show", made["learned"], "--runs", root)
    assert code == 0, err
    text = (root / made["learned"] / "show.html").read_text(encoding="utf-8")
    assert "Learned represents positions" in text
    assert "example 1" in text
    assert "example 2" not in text


def test_hostile_text_in_a_run_stays_text(call, tmp_path):
    evil = "</style><script>alert(1)</script>"
    config = config_of("nope").model_copy(update={"label": evil, "protocol": evil})
    run = execute(config, tmp_path, "test", lambda _: None)["run"]
    code, _, err = call("show", run, "--runs", tmp_path)
    assert code == 0, err
    page = Page((tmp_path / run / "show.html").read_text(encoding="utf-8"))
    assert "script" not in page.tags


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["ffffffff"], "found none"),
        (["../x"], "found none"),
        (["RUN", "--prompt", "1a="], "unknown symbol"),
        (["RUN", "--prompt", "12"], "no prompt of copy"),
        (["RUN", "--prompt", "="], "no instance of length 0"),
        (["RUN", "--mode", "snaped"], "did you mean snapped"),
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


def test_a_run_that_is_not_finished_exits_2(call, tmp_path):
    config = config_of("nope")
    folder = RunFolder(tmp_path, config)
    (folder.path / "config.json").write_text("{}")
    code, _, err = call("show", config.hash, "--runs", tmp_path)
    assert code == 2
    assert "is not finished" in err


def test_scores_are_shown_when_the_weights_are_gone_or_do_not_fit(call, tmp_path, monkeypatch):
    config = config_of("nope")
    run = execute(config, tmp_path, "test", lambda _: None)["run"]

    def strange(*args):
        raise RuntimeError("size mismatch for blocks.0.up.weight")

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "restore", strange)
        code, out, err = call("show", run, "--runs", tmp_path)
    assert (code, "last checkpoint" in out, "another version" in err) == (2, True, True)
    for path in (tmp_path / run).glob("ckpt-*"):
        path.unlink()
    code, out, err = call("show", run, "--runs", tmp_path)
    assert (code, "last checkpoint" in out, "checkpoint is gone" in err) == (0, True, True)
    assert not (tmp_path / run / "show.html").exists()


def test_a_failed_run_is_told_without_a_page(call, tmp_path):
    config = config_of("nope")
    folder = RunFolder(tmp_path, config)
    (folder.path / "config.json").write_text("{}")
    words = {"encoding": "nope", "task": "copy", "seed": 0, "protocol": "quick"}
    folder.finish({**words, "status": "failed", "reason": "Diverged: loss is nan"})
    code, out, _ = call("show", config.hash, "--runs", tmp_path)
    assert code == 0
    assert "failed: Diverged" in out
    assert not (folder.path / "show.html").exists()


def test_a_run_whose_settings_are_not_those_of_its_hash_exits_2(call, tmp_path):
    config = config_of("nope")
    record = execute(config, tmp_path, "test", lambda _: None)
    record["config"]["seed"] = 1
    RunFolder(tmp_path, config).finish(record)
    code, _, err = call("show", config.hash, "--runs", tmp_path)
    assert code == 2
    assert "settings that are no longer read" in err


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
