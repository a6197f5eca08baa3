"""The encoder track: the reference's whole encoder, both directions, one pass, what counts."""

import json
from pathlib import Path

import pytest
import torch

from experiment.config import ConfigError, Model
from harness import tasks
from harness.data.drawn import DROPOUT
from harness.data.sequences import encoder_sequences, to_sequences
from harness.model.transformer import Transformer
from harness.settings.protocol import load_protocol, resolve
from harness.tasks.base import Batch, TaskError
from harness.training.evaluate import method, score, written
from harness.training.trainer import start
from pezoo.base import Context, Shape
from pezoo.encodings.relative import Relative
from pezoo.encodings.rope import RoPE
from pezoo.registry import entries, make, names
from pezoo.spec import parse

torch.set_num_threads(1)

DATA = Path(__file__).parents[2] / "data" / "encodings.json"
# Width 8, post-LN, ReLU, no biases in attention, three tokens: two bits and the empty one.
MODEL = Model(
    layers=2, heads=2, width=8, vocab=3, norm="post", activation="relu",
    attention_bias=False, tie_embeddings=False,
)  # fmt: skip
VARIANTS = [
    ("NONE", "nope", None),
    ("SIN_COS", "sinusoidal", None),
    ("LEARNT", "learned", None),
    ("RELATIVE", "relative", None),
    ("ROTARY", "rope", None),
    ("ALIBI", "alibi(asymmetric=true)", None),
    ("NOISY_SIN_COS", "randomized(max_len=64):sinusoidal", "positions"),
    ("NOISY_LEARNT", "randomized(max_len=64):learned", "positions"),
    ("NOISY_ROTARY", "randomized(max_len=64):rope", "positions"),
    ("NOISY_ALIBI", "randomized(max_len=64):alibi(asymmetric=true)", "distances"),
    ("NOISY_RELATIVE_intended", "randomized(max_len=64,sample=distances):relative", "distances"),
]


@pytest.fixture(scope="module")
def fixture():
    return json.loads(DATA.read_text())["encoder"]


def reference_model(spec, params):
    """Our encoder with the reference's weights, which multiply from the right."""
    t = torch.tensor
    encoding = make(spec, Shape(d_model=8, n_heads=2, d_head=4, n_layers=2, train_len=64))
    model = Transformer(MODEL, encoding, 0, "eager", track="encoder").eval()
    inner = getattr(encoding, "inner", encoding)
    with torch.no_grad():
        model.embedding.weight.copy_(t(params["embed_W"]))
        model.unembedding.weight[:2] = t(params["head_W"]).T
        model.unembedding.bias[:2] = t(params["head_b"])
        for i, (block, layer) in enumerate(zip(model.blocks, params["layers"], strict=True)):
            block.qkv.weight.copy_(torch.cat([t(layer[f"W{n}"]).T for n in "qkv"]))
            block.out.weight.copy_(t(layer["Wo"]).T)
            for part, name in ((block.up, "ff1"), (block.down, "ff2")):
                part.weight.copy_(t(layer[f"{name}_W"]).T)
                part.bias.copy_(t(layer[f"{name}_b"]))
            for part, name in ((block.norm1, "ln1"), (block.norm2, "ln2")):
                part.weight.copy_(t(layer[f"{name}_scale"]))
                part.bias.copy_(t(layer[f"{name}_offset"]))
            if isinstance(inner, Relative):
                w = t(layer["Wr"])
                w[:4] *= -1  # the sine rows: we count i - j, the reference j - i
                inner.w[i], inner.u[i] = w, t(layer["content_bias"])
                inner.v[i] = t(layer["relative_bias"])
        if inner.name == "learned":
            inner.table.copy_(t(params["learned_table"]))
    return model


@pytest.mark.parametrize(("there", "ours", "sample"), VARIANTS)
def test_the_whole_encoder_is_the_references(fixture, there, ours, sample):
    model = reference_model(ours, fixture["params"])
    tokens = torch.tensor(fixture["tokens"])
    ids = torch.cat([tokens, torch.full_like(tokens, 2)], 1)
    drawn = model.encoding.draw(Context(pos=torch.arange(10)[None]), generator=torch.Generator())
    if sample:
        table = torch.tensor(fixture[f"sampled_{sample}"])
        drawn["randomized.table"] = (
            table if sample == "positions" else torch.cat([table.new_zeros(1), table])
        )
    with torch.no_grad():
        logits = model(ids, torch.arange(10)[None], last=5, drawn=drawn)
    want = torch.tensor(fixture["logits"][there])
    torch.testing.assert_close(logits[..., :2], want, atol=5e-5, rtol=0)


SMALL = (
    *("model.width=16", "model.heads=2", "model.layers=2", "model.vocab=32", "train.batch=8"),
    *("train.steps=9", "train.warmup=1", "train.lengths=[1,4]", "eval.lengths=[4,5]"),
    *("eval.samples=8", "eval.min_samples=8"),
)


SMALLER = {name: f"{name}(cursors=1,d_pe=8)" for name in ("prism", "prism_spectral")}


def config_of(pe, task="copy", seed=0, *sets):
    protocol = load_protocol("ruoss2023-mini", (*SMALL, *sets))
    return resolve(protocol, task, parse(pe), seed, "cpu", "auto")


def test_the_layout_by_hand():
    task = tasks.make("copy")
    vocab = task.vocab
    batch = encoder_sequences(Batch(vocab.encode("471=")[None], vocab.encode("471")[None]), task)
    pad, empty = vocab.pad, vocab.eos
    assert batch.inputs.tolist() == [[4, 7, 1, empty, empty, empty]]
    assert batch.labels.tolist() == [[pad, pad, pad, 4, 7, 1]]
    assert (batch.pos.tolist(), batch.last) == ([[0, 1, 2, 3, 4, 5]], 3)
    assert batch.answer.tolist() == batch.counted.tolist() == [[False] * 3 + [True] * 3]


def test_the_task_says_which_tokens_count():
    class FirstOnly(type(tasks.make("copy"))):
        def counted(self, target):
            return torch.arange(target.shape[1]).expand_as(target) == 0

    task = FirstOnly()
    batch = encoder_sequences(task.sample(torch.Generator(), 2, 3), task)
    assert batch.answer.sum().item() == 6
    assert batch.counted.sum(1).tolist() == [1, 1]


@pytest.mark.parametrize(
    "pe", ["rope", "relative", "geometric", "prism_2025(cursors=1,d_pe=8,hidden=6)"]
)
def test_every_token_sees_every_other(pe):
    trainer = start(config_of(pe))
    batch, _ = trainer.make_batch()
    x = trainer.model.embedding.weight
    logits = trainer.model.double()(batch.inputs[:1], batch.pos[:1], drawn=batch.rows(0, 1).drawn)
    tokens = batch.inputs[0].tolist()
    (grad,) = torch.autograd.grad(logits[0, 0].sum(), x)
    assert grad[tokens[batch.prompt - 2]].abs().max() > 0  # the prompt's last, from its first


BOTH_WAYS = [name for name in names() if not entries()[name].load().causal_only]


@pytest.mark.parametrize("pe", sorted({*BOTH_WAYS} - {"ideal", "ideal_sh", "coupled"}))
def test_every_encoding_trains_and_is_scored(pe):
    config = config_of(SMALLER.get(pe, pe))
    trainer = start(config)
    assert trainer.advance().isfinite()
    assert score(trainer.model, trainer.task, config, 4).status == "ok"


@pytest.mark.parametrize("pe", ["nope", "rope", "alibi", "relative", "t5", "geometric"])
def test_padding_changes_nothing(pe):
    """addition has prompts and answers of several lengths."""
    trainer = start(config_of(pe, "addition"))
    model, task = trainer.model.double().eval(), trainer.task
    batch = encoder_sequences(task.sample(torch.Generator().manual_seed(0), 6, 3), task)
    assert (batch.pos[:, 0] < 0).any()
    with torch.no_grad():
        together = model(batch.inputs, batch.pos)
        for row in range(6):
            real = batch.pos[row] >= 0
            alone = model(batch.inputs[row : row + 1, real], batch.pos[row : row + 1, real])
            torch.testing.assert_close(together[row, real], alone[0])


def test_an_encoder_is_scored_in_one_pass():
    config = config_of("randomized:rope")
    trainer = start(config)
    assert method(trainer.model, trainer.task) == "one pass"
    found = score(trainer.model, trainer.task, config, 5)
    assert (found.method, found.count, found.status) == ("one pass", 8, "ok")
    assert 0 <= found.exact <= found.token <= 1
    batch = to_sequences(trainer.task.sample(torch.Generator(), 3, 5), trainer.task, "encoder")
    with torch.no_grad():
        out = written(trainer.model, batch, 5, torch.Generator(), None, config.eval)
    assert out.shape == batch.labels.shape


def test_dropout_of_embeddings_is_of_sums_with_positions_alone():
    """With masks of ones elsewhere, what is dropped of the embeddings alone changes the logits."""
    for name, drops in (("sinusoidal", True), ("learned", True), ("rope", False)):
        trainer = start(config_of(name, "copy", 0, "model.dropout=0.5"))
        batch, _ = trainer.make_batch()
        model, whole = trainer.model.train(), batch.drawn[DROPOUT].clone().fill_(True)
        part = whole.clone()
        part[:, :, -1] = False
        got = [
            model(batch.inputs, batch.pos, drawn={**batch.drawn, DROPOUT: masks})
            for masks in (whole, part)
        ]
        assert got[0].equal(got[1]) != drops


def test_evaluation_has_no_dropout():
    configs = [config_of("rope", "copy", 0, f"model.dropout={p}") for p in (0.0, 0.9)]
    plain, dropped = trainers = [start(config) for config in configs]  # of equal weights
    batch, _ = plain.make_batch()
    for trainer in trainers:
        trainer.model.train()
        score(trainer.model, trainer.task, trainer.config, 5)
    logits = [trainer.model(batch.inputs, batch.pos) for trainer in trainers]
    torch.testing.assert_close(*logits, atol=0, rtol=0)
    batch, _ = dropped.make_batch()
    dropped.model.train()
    assert not dropped.model(batch.inputs, batch.pos, drawn=batch.drawn).equal(logits[1])


def test_an_encoder_refuses_encodings_that_need_a_causal_mask(monkeypatch):
    with pytest.raises(ConfigError, match="fire needs a causal mask"):
        config_of("randomized:fire")
    monkeypatch.setattr(RoPE, "causal_only", True)
    with pytest.raises(ConfigError, match="rope needs a causal mask"):
        config_of("rope")
    shape = Shape(d_model=8, n_heads=2, d_head=4, n_layers=2, train_len=64)
    with pytest.raises(ValueError, match="causal mask"):
        Transformer(MODEL, RoPE(shape), 0, track="encoder")


def test_the_relation_of_a_decoder_is_an_error_in_an_encoder():
    with pytest.raises(TaskError, match="decoder"):
        start(config_of("ideal")).advance()


def test_a_track_is_part_of_a_runs_identity():
    config = config_of("rope")
    decoder = config.replace(track="decoder")
    assert config.track == "encoder"
    assert decoder.hash != config.hash
    assert "track" not in decoder.model_dump()
