"""Compiled training is training, with one graph for each size."""

import shutil

import pytest
import torch
from torch._dynamo.testing import CompileCounter
from torch._dynamo.utils import counters

from harness.model.compiled import compile_blocks
from harness.model.transformer import Block
from harness.runs.run import execute
from harness.settings.protocol import load_protocol, resolve
from harness.training.trainer import start
from pezoo.spec import parse

torch.set_num_threads(1)
SETTINGS = ("train.steps=12", "model.width=16", "model.heads=2", "train.batch=4", "train.warmup=2",
            "model.dropout=0.1", "train.lengths=[1, 20]", "train.curriculum=[]")  # fmt: skip
PRISM = "prism_2025(cursors=1,d_pe=8,hidden=6,state_noise=0.3,gate_noise=0.2)"
WORDS = [word for text in SETTINGS for word in ("--set", text)]


def config_of(text, *settings, device="cpu"):
    protocol = load_protocol("quick", (*SETTINGS, *settings))
    return resolve(protocol, "copy", parse(text), 0, device, "auto")


@pytest.fixture(autouse=True)
def fresh():
    """No graphs of other tests."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def sizes_seen(trainer, monkeypatch):
    """The sizes that `read` and `feed` are given, which are what is compiled for."""
    seen = {"read": set(), "feed": set()}
    for name, part in (("read", Block.read), ("feed", Block.feed)):
        for block in trainer.model.blocks:
            own = part.__get__(block)
            spy = lambda x, own=own, name=name: seen[name].add(tuple(x.shape)) or own(x)  # noqa: E731
            monkeypatch.setattr(block, name, spy)
    return seen


@pytest.mark.parametrize("text", ["randomized:relative", PRISM])
def test_graphs_are_those_of_the_sizes_and_not_of_the_lengths(text, monkeypatch):
    plain, compiled, watched = (start(config_of(text)) for _ in range(3))
    watched.buckets = compiled.buckets = True
    for trainer in (plain, compiled):
        trainer.model.double()  # AdamW makes steps of any size from gradients that are rounding
    counter = CompileCounter()
    compile_blocks(compiled.model, "cpu", backend=counter)
    seen, lengths = sizes_seen(watched, monkeypatch), set()
    for step in range(12):
        plain.step = compiled.step = watched.step = step
        lengths.add(plain.make_batch()[1])
        watched.backward()
        assert compiled.advance() == pytest.approx(float(plain.advance()), abs=1e-5)
    assert counter.frame_count == len(seen["read"]) + len(seen["feed"])
    assert len(seen["read"]) <= 6 < len(lengths)  # 8, 16, 24, 32, 40 and 48 hold 41 tokens
    for a, b in zip(plain.model.parameters(), compiled.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-5)


def test_evaluation_is_not_compiled():
    trainer = start(config_of("rope"))
    counter = CompileCounter()
    compile_blocks(trainer.model, "cpu", backend=counter)
    batch, _ = trainer.make_batch()
    with torch.no_grad():
        trainer.model.eval()(batch.inputs, batch.pos)
    assert counter.frame_count == 0
    trainer.model.train()(batch.inputs, batch.pos, drawn=batch.drawn)
    assert counter.frame_count == 2


def test_only_compiled_runs_have_another_identity():
    plain, compiled = config_of("rope"), config_of("rope", "train.compile=true")
    assert "compile" not in plain.train.model_dump(mode="json")
    assert compiled.train.model_dump(mode="json")["compile"] is True
    assert plain.hash != compiled.hash


def test_without_a_compiler_it_says_so(call, monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", "no-such-compiler")
    words = ["--pe", "rope", "--task", "copy", "--runs", tmp_path, "--compile", "--seeds", "0"]
    code, out, err = call("bench", *words, *WORDS)
    assert (code, out) == (2, "")
    assert "needs a C++ compiler, and 'no-such-compiler' is not found" in err
    assert "Traceback" not in err


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_inductor_computes_the_same_and_compiles_nothing_for_a_new_length(tmp_path):
    plain = start(config_of("rope", "train.lengths=[5, 6]"))
    compiled = start(config_of("rope", "train.lengths=[5, 6]", "train.compile=true"))
    assert compiled.buckets
    for trainer in (plain, compiled):
        trainer.model.double()
    lengths, counts = [], []
    for _ in range(8):
        lengths.append(compiled.make_batch()[1])
        assert compiled.advance() == pytest.approx(float(plain.advance()), abs=1e-5)
        counts.append(counters["stats"]["unique_graphs"])
    assert set(lengths) == {5, 6}  # 11 and 13 tokens: one size
    assert counts[0] == counts[-1] > 0
    for a, b in zip(plain.model.parameters(), compiled.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-5)
    record = execute(compiled.config, tmp_path, "", lambda event: None)
    assert record.env.compiled is True
    assert record.status == "done"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("text", ["rope", PRISM])
def test_cuda_graphs_compute_the_same(text):
    settings = ("model.dropout=0.0",)
    plain = start(config_of(text, *settings, device="cuda"))
    compiled = start(config_of(text, *settings, "train.compile=true", device="cuda"))
    for _ in range(8):
        assert compiled.advance() == pytest.approx(float(plain.advance()), abs=1e-4)
    for a, b in zip(plain.model.parameters(), compiled.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-3)
