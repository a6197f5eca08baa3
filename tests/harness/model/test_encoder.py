"""The encoder track: the reference's whole encoder, both directions, one pass, what counts."""

import json
from pathlib import Path

import pytest
import torch

from harness.model.transformer import Transformer
from leaderboard.config import Model
from pezoo.base import Shape
from pezoo.encodings.relative import Relative
from pezoo.registry import make

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
    drawn = model.encoding.draw(
        __import__("pezoo").Context(pos=torch.arange(10)[None]), generator=torch.Generator()
    )
    if sample:
        table = torch.tensor(fixture[f"sampled_{sample}"])
        drawn["randomized.table"] = (
            table if sample == "positions" else torch.cat([table.new_zeros(1), table])
        )
    with torch.no_grad():
        logits = model(ids, torch.arange(10)[None], last=5, drawn=drawn)
    want = torch.tensor(fixture["logits"][there])
    torch.testing.assert_close(logits[..., :2], want, atol=5e-5, rtol=0)
