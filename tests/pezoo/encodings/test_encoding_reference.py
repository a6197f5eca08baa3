"""Attention and a whole encoder around our encodings, against those of Ruoss et al. 2023."""

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import layer_norm

from pezoo.base import Context, Memo, Shape
from pezoo.encodings.relative import Relative
from pezoo.registry import make

SHAPE = Shape(d_model=8, n_heads=2, d_head=4, n_layers=2, train_len=64)

# The variant's name there, ours, and which random choice it reads. *_released reads other rows of
# the relative table (see test_encoding_relative.py): not reproduced.
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
    (
        "NOISY_ALIBI",
        "randomized(max_len=64,sample=distances):alibi(asymmetric=true)",
        "distances",
    ),
    (
        "NOISY_RELATIVE_intended",
        "randomized(max_len=64,sample=distances):relative",
        "distances",
    ),
]

ABSOLUTE = ("SIN_COS", "LEARNT")  # they act before attention


def build(spec, layers, learned=None):
    """The encoding with the reference's relative weights, one dict of them per layer."""
    encoding = make(spec, SHAPE).eval()
    inner = getattr(encoding, "inner", encoding)
    with torch.no_grad():
        if isinstance(inner, Relative):
            for index, layer in enumerate(layers):
                w = layer["Wr"].clone()
                w[:4] *= -1  # the sine rows: we count i - j, the reference j - i
                inner.w[index], inner.u[index] = w, layer["content_bias"]
                inner.v[index] = layer["relative_bias"]
        if inner.name == "learned":
            inner.table.copy_(learned)
    return encoding


def context(t, draw):
    """Positions 0..T-1, and the reference's draw in the place of our own."""
    memo = Memo() if draw is None else Memo({"randomized.table": draw})
    return Context(pos=torch.arange(t)[None], memo=memo)


def choice(values, sample):
    if sample is None:
        return None
    return (
        torch.cat([torch.zeros(1, dtype=torch.long), values]) if sample != "positions" else values
    )


def attention(encoding, x, layer, ctx):
    """Logits (B, H, T, T) and output (B, T, D) of one attention layer without a mask."""
    q, k, v = ((x @ layer[f"W{name}"]).view(*x.shape[:2], 2, 4).transpose(1, 2) for name in "qkv")
    q, k = encoding.transform(q, k, ctx)
    bias = encoding.bias(q, k, ctx)
    logits = q @ k.mT / 2 + (0 if bias is None else bias)
    return logits, (logits.softmax(-1) @ v).transpose(1, 2).flatten(2) @ layer["Wo"]


@pytest.mark.parametrize(
    ("there", "ours", "sample"),
    [variant for variant in VARIANTS if not variant[0].endswith(ABSOLUTE)],
)
def test_attention(reference, there, ours, sample):
    inputs, want = reference["inputs"], reference["mha"][there]
    layer = {f"W{name}": inputs[f"mha_W{name}"] for name in "qkvo"} | {
        "Wr": inputs["Wr"] / 8,
        "content_bias": inputs["content_bias"] / 4,
        "relative_bias": inputs["relative_bias"] / 4,
    }
    encoding, x = build(ours, [layer, layer]), inputs["mha_x"]
    draw = choice(inputs.get(sample), sample)
    ctx = encoding.prepare(context(x.shape[1], draw))
    with torch.no_grad():
        logits, output = attention(encoding, x, layer, ctx.at(0, x))
    torch.testing.assert_close(logits, want["logits"], atol=1e-3, rtol=0)
    torch.testing.assert_close(output, want["output"], atol=1e-3, rtol=0)


@pytest.mark.parametrize(("there", "ours", "sample"), VARIANTS)
def test_encoder(reference, there, ours, sample):
    fixture = reference["encoder"]
    params, tokens = fixture["params"], fixture["tokens"]
    encoding = build(ours, params["layers"], params["learned_table"][: SHAPE.train_len])
    ids = torch.cat([tokens, torch.full_like(tokens, 2)], 1)
    ctx = context(10, choice(fixture.get(f"sampled_{sample}"), sample))
    with torch.no_grad():
        logits = encode(encoding, ids, params, ctx)[:, 5:]
    torch.testing.assert_close(logits, fixture["logits"][there], atol=5e-5, rtol=0)


def encode(encoding, ids, params, ctx):
    """The reference's post-LN encoder: logits (B, T, 2)."""
    x = params["embed_W"][ids] * 8**0.5
    ctx = encoding.prepare(replace(ctx, x=x))
    x = encoding.embed(x, ctx)
    for index, layer in enumerate(params["layers"]):
        x = x + attention(encoding, x, layer, ctx.at(index, x))[1]
        x = layer_norm(x, (8,), layer["ln1_scale"], layer["ln1_offset"], 1e-5)
        hidden = (x @ layer["ff1_W"] + layer["ff1_b"]).relu()
        x = x + hidden @ layer["ff2_W"] + layer["ff2_b"]
        x = layer_norm(x, (8,), layer["ln2_scale"], layer["ln2_offset"], 1e-5)
    return x @ params["head_W"] + params["head_b"]
