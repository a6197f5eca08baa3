"""What `pezoo extend` reads, and what it makes of it."""

import json
import math
from types import SimpleNamespace

import pytest
import torch

from harness.extend import report, rows, ways
from harness.extend.measure import Place, Study, read
from harness.extend.subject import OfRun, OfTransformers, Subject
from harness.extend.texts import DEPTHS, Texts
from harness.extend.tune import Tuner, Tuning
from harness.settings.protocol import load_protocol, resolve
from harness.tasks.corpus import read_corpus
from harness.training.trainer import start
from pezoo.registry import parse

CORPUS = read_corpus("python")
SCALED = [f"{kind}(factor=4)" for kind in ("linear", "ntk", "yarn", "llama3", "dynamic")]


class Copier(Subject):
    """Predicts what followed the last 8 bytes where they occurred before, `window` back at most."""

    name, trained, d_head = "copier", 2048, 8

    def __init__(self, window):
        self.window = window

    def put(self, way):
        return SimpleNamespace(prefix_stable=True)

    def logits(self, ids, last):
        text, total = bytes(ids[0].tolist()), ids.shape[1]
        logits = torch.zeros(1, last, 256)
        for row in range(last):
            end = total - last + row + 1
            at = text.rfind(text[end - 8 : end], max(0, end - self.window), end - 1)
            logits[0, row, text[at + 8] if at >= 0 else 0] = 9.0
        return logits


def texts_of(subject, lengths, count=1, last=16):
    return Texts(subject, CORPUS, lengths, count, last)


def study_of(subject, folder, names=("rope",), tuning=None, count=1):
    lengths = ways.lengths(subject.trained, 2 * subject.trained)
    texts = texts_of(subject, lengths, count)
    tuner = tuning and Tuner(subject, tuning, texts.training(tuning.length))
    return Study(subject, texts, names, lengths, folder, tuner, "cpu")


def test_texts_share_their_end_and_hold_each_passkey_at_its_depth():
    lengths = (2048, 3000, 8192)
    texts = texts_of(Copier(99), lengths, count=3)
    for text in range(3):
        found = [texts.passage(text, n) for n in lengths]
        assert [len(one.ids) for one in found] == [*lengths]
        assert len({bytes(one.ids[-one.tail :].tolist()) for one in found}) == 1
        for one in found:
            whole = bytes(one.ids.tolist()).decode()
            context, tail = whole[: -one.tail], whole[-one.tail :]
            for (depth, place), answer in zip(DEPTHS.items(), one.answers, strict=True):
                said = f"\nThe pass key of {place} is{tail[answer.start : answer.stop]}.\n"
                assert whole.count(said) == 1
                assert abs(context.index(said) / len(context) - depth) < 0.06
    ends = {
        bytes(texts.passage(t, 2048).ids[-texts.passage(t, 2048).tail :].tolist()) for t in range(3)
    }
    assert len(ends) == 3


@pytest.mark.parametrize("share", [1.0, 0.45])
def test_a_copier_retrieves_the_passkeys_within_its_window(share):
    length = 4096
    subject = Copier(int(share * length))
    texts = texts_of(subject, (length,))
    found = read(subject, texts, Place("rope", False, length, 0), "cpu")
    assert found["hits"] == [1 - depth < share for depth in DEPTHS]


def test_no_passkeys_where_a_text_has_no_room():
    assert texts_of(Copier(9), (512,)).depths == ()
    assert texts_of(Copier(9), (512,)).passage(0, 512).tail == 16


@pytest.mark.parametrize("kind", ["Llama", "Qwen3", "Mistral"])
def test_bits_are_those_of_the_model(saved, kind):
    from transformers import AutoModelForCausalLM

    folder = saved(kind)
    subject = OfTransformers(folder, "cpu", "float32")
    texts = texts_of(subject, (48, 200))
    plain = AutoModelForCausalLM.from_pretrained(folder)
    for length in (48, 200):
        subject.put("rope")
        found = read(subject, texts, Place("rope", False, length, 0), "cpu")
        ids = texts.passage(0, length).ids
        logs = plain(ids[None]).logits[0].log_softmax(-1)
        want = -sum(logs[at - 1, ids[at]].item() for at in range(length - 16, length))
        assert found["bits"] == pytest.approx(want / math.log(2) / 16, abs=1e-5)


@pytest.mark.parametrize("scaling", SCALED)
def test_what_is_pasted_computes_the_same(saved, llama, scaling):
    from transformers import AutoModelForCausalLM

    subject = OfTransformers(llama, "cpu", "float32")
    way = f"rope(rope_parameters={scaling})"
    told = ways.paste(way, subject, 256)["config.json"]
    subject.put(way)
    pasted = AutoModelForCausalLM.from_pretrained(llama, **json.loads(f"{{{told}}}"))
    for length in (60, 256):
        ids = texts_of(subject, (256,)).passage(0, length).ids[None]
        assert torch.allclose(subject.logits(ids, length), pasted(ids).logits, atol=1e-4)


def test_flags_of_other_software():
    subject = Copier(9)
    subject.rotation, subject.d_head = {"rope_theta": 10_000.0}, 64
    told = {s: ways.paste(f"rope(rope_parameters={s})", subject, 8000) for s in SCALED[:3]}
    assert told[SCALED[0]]["llama.cpp"] == "--ctx-size 8000 --rope-scaling linear --rope-scale 4"
    assert (
        told[SCALED[1]]["llama.cpp"]
        == f"--ctx-size 8000 --rope-freq-base {10_000 * 4 ** (64 / 62):.6g}"
    )
    yarn = "--ctx-size 8000 --rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 2048"
    assert told[SCALED[2]]["llama.cpp"] == yarn
    assert told[SCALED[2]]["vLLM"].endswith("--max-model-len 8000")
    assert ['"max_position' in one["vLLM"] for one in told.values()] == [False, True, False]
    auto = ways.paste("rope(rope_parameters=yarn(factor=auto))", subject, 8000)
    assert auto["llama.cpp"] == yarn
    group = ways.paste("self_extend(group=8)", subject, 8000)["llama.cpp (llama-completion)"]
    assert group == "--ctx-size 8000 --grp-attn-n 8 --grp-attn-w 1024"
    assert {*ways.paste("rerope", subject, 8000)} == {"pezoo"}


def test_a_study_that_is_killed_goes_on(llama, tmp_path, monkeypatch):
    subject, names = OfTransformers(llama, "cpu", "float32"), ("rope", "rerope")
    whole = study_of(subject, tmp_path / "whole", names)
    whole.run(lambda what, done: None)
    said = []

    def say(what, done):
        said.append(done)
        if len(said) in (2, 4):
            raise KeyboardInterrupt

    for stop in (True, True, False):
        study = study_of(subject, tmp_path / "killed", names)
        if stop:
            with pytest.raises(KeyboardInterrupt):
                study.run(say)
        else:
            study.run(say)
    assert len(said) == len(whole.cells) == 6
    assert said[-1] == pytest.approx(1.0)
    for place, cell in whole.cells.items():
        assert study.cells[place]["bits"] == cell["bits"]


@pytest.mark.parametrize("lora", [False, True])
def test_each_way_is_tuned_from_the_own_weights(llama, tmp_path, lora):
    if lora:
        pytest.importorskip("peft")
    alone, both = (OfTransformers(llama, "cpu", "float32") for _ in range(2))
    alone.rate = both.rate = 1e-2
    tuning, found = Tuning(3, 64, lora), []
    for subject, names in ((alone, ["rerope"]), (both, ["rope", "rerope"])):
        texts = texts_of(subject, (64, 128))
        tuner = Tuner(subject, tuning, texts.training(64))
        for name in names:
            assert [*tuner.tune(name, tmp_path / name)] == [1, 2, 3]
        tuner.load("rerope", tmp_path / "rerope")
        found.append(read(subject, texts, Place("rerope", True, 128, 0), "cpu")["bits"])
    fresh = OfTransformers(llama, "cpu", "float32")
    fresh.put("rerope")
    before = read(fresh, texts_of(fresh, (64, 128)), Place("rerope", False, 128, 0), "cpu")["bits"]
    assert found[0] == pytest.approx(found[1], abs=1e-6)
    assert abs(found[0] - before) > 1e-5


def test_tuning_is_resumed(llama, tmp_path):
    subject, tuning = OfTransformers(llama, "cpu", "float32"), Tuning(2, 128)
    first = study_of(subject, tmp_path, tuning=tuning)
    first.run(lambda what, done: None)
    steps = []
    again = study_of(OfTransformers(llama, "cpu", "float32"), tmp_path, tuning=tuning)
    for path in (tmp_path / "cells").iterdir():
        path.unlink()
    again.run(lambda what, done: steps.append(what))
    assert not any("tuning" in one for one in steps)
    assert {p: c["bits"] for p, c in again.cells.items()} == {
        p: pytest.approx(c["bits"], abs=1e-6) for p, c in first.cells.items()
    }


def test_the_model_of_a_run():
    sets = ("model.layers=1", "model.width=16", "model.heads=2")
    config = resolve(load_protocol("text", sets), "text", parse("rope"), 0, "cpu", "auto")
    trainer = start(config)
    subject = OfRun(trainer, config.hash)
    assert subject.trained == 128
    texts = texts_of(subject, (64, 300))
    subject.put("rope(rope_parameters=yarn(factor=4))")
    scaled = read(subject, texts, Place("rope", False, 300, 0), "cpu")["bits"]
    subject.put("rope")
    found = read(subject, texts, Place("rope", False, 300, 0), "cpu")["bits"]
    ids = texts.passage(0, 300).ids[None]
    logs = start(config).model.eval()(ids, torch.arange(300)[None])[0].log_softmax(-1)
    want = -logs[283:299].gather(1, ids[0, 284:, None]).mean().item() / math.log(2)
    assert found == pytest.approx(want, abs=1e-5)
    assert scaled != found


def filled(bits, hits=None, count=2):
    """A study with these mean bits of each way, by length, as if measured."""
    subject = Copier(9)
    subject.rotation = {"rope_theta": 10_000.0}
    lengths = (1024, 2048, 4096, 8192)
    texts = SimpleNamespace(ends=[0] * count, depths=(0.5,), last=16)
    study = Study(
        subject, texts, [*bits], lengths, None, None, "cpu", stable=dict.fromkeys(bits, True)
    )
    for way, means in bits.items():
        for n, mean in zip(lengths, means, strict=True):
            for text in range(count):
                cell = {"bits": mean + 0.1 * text, "hits": [(hits or {}).get(way, False)]}
                more = {"tokens": 1.0, "seconds": 1.0, "peak_mb": 1.0}
                study.cells[Place(way, False, n, text)] = cell | more
    return study


FLAT, FAR = (1.0, 0.9, 0.9, 0.9), "rope(rope_parameters=yarn(factor=4))"


def test_advice_takes_the_way_that_reads_furthest_then_the_one_that_retrieves():
    study = filled(
        {"rope": (1, 0.9, 3, 4), "rerope": (1, 0.9, 0.91, 0.95), FAR: (1.1, 1, 0.91, 0.9)}
    )
    found = {row.way: row for row in rows.rows(study)}
    assert [found[way].reach() for way in study.ways] == [2048, 4096, 0]
    assert found["rope"].gain(8192).mean == pytest.approx(-3.1)
    assert found[FAR].cost() == pytest.approx(0.1)
    assert rows.advice(study)[0].startswith("without tuning, take rerope up to 4,096 tokens: 0.010")
    study = filled({"rope": (1, 0.9, 3, 4), "rerope": FLAT, FAR: FLAT}, {FAR: True})
    assert FAR in rows.advice(study)[0]
    assert "2 of 2 passkeys" in rows.advice(study)[0]
    assert "--yarn-orig-ctx 2048" in "".join(rows.advice(study))
    none = rows.advice(filled({"rope": (1, 0.9, 3, 4)}))
    last = "its own last 2,048 tokens: cut the text"
    assert none == [f"without tuning, no way is within 0.02 bits per byte of {last}"]


def test_the_picture_and_the_interval():
    study = filled({"rope": (1, 1, 3, 4), "rerope": (1, 1, 1, 1)})
    lines = report.picture(study).splitlines()
    assert [line.split("|")[1].split() for line in (lines[0], lines[11])] == [
        ["A"],
        ["AB", "AB", "B", "B"],
    ]
    half = 12.706 * 0.1 / math.sqrt(2) / math.sqrt(2)
    assert f"1.050 ±{half:.3f}" in str(report.table(study))


def test_a_way_that_cannot_read_a_length_is_named(llama, tmp_path, monkeypatch):
    subject = OfTransformers(llama, "cpu", "float32")
    study = study_of(subject, tmp_path)
    logits = subject.logits

    def fail(ids, last):
        if ids.shape[1] == 128:
            raise torch.OutOfMemoryError("2 GiB")
        return logits(ids, last)

    monkeypatch.setattr(subject, "logits", fail)
    study.run(lambda what, done: None)
    assert study.notes == {("rope", False, 128): "out of memory: 2 GiB"}
    assert "out of memory" in str(report.table(study))
