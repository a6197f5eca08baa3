"""Models of every kind that transformers has, with an encoding in place of their positions.

The whole list takes minutes: PEZOO_ARCHITECTURES=1 python -m pytest -m slow tests/benchmarks
"""

import os

import pytest
import torch

pytest.importorskip("transformers", minversion="5.20")
from architectures import KINDS, Row, architectures, build, check, counts, logits, reloads

from pezoo.adapters.transformers import use
from pezoo.functional import encodings_in, parameter_groups

SEQ = "sequence-to-sequence"
DECODERS = {  # a kind, and a model of it
    "windows": "mistral",
    "layer types": "gemma3_text",
    "soft caps": "gemma2",
    "sinks": "gpt_oss",
    "part of a head": "phi",
    "no keywords": "stablelm",
    "layers without rotation": "smollm3",
    "complex rotation": "llama4_text",
    "latent attention": "deepseek_v3",
    "linear layers": "lfm3",
    "rotation in the layers": "moshi",
    "a table": "opt",
}
FIRST = ["alibi", "fox", "prism_2025(cursors=1,d_pe=8,hidden=6)"]
IDS = torch.randint(4, 60, (2, 10), generator=torch.Generator().manual_seed(2))


def model_of(name, kind="causal"):
    return build(name, KINDS[kind]._model_mapping[name], kind)


QUICK = [("alibi", "layer types"), ("fox", "sinks"), (FIRST[2], "windows"), ("alibi", "a table")]
PAIRS = [(FIRST[(at + own) % 3], kind) for at, kind in enumerate(DECODERS) for own in (0, 1)]
SLOW = [pair for pair in PAIRS if pair not in QUICK]
CASES = [*QUICK, *(pytest.param(*pair, marks=pytest.mark.slow) for pair in SLOW)]


@pytest.mark.parametrize(("text", "kind"), CASES)
def test_a_decoder_trains_decodes_pads_packs_and_is_saved(kind, text):
    model = use(model_of(DECODERS[kind]), text).train()
    optimiser = torch.optim.AdamW(parameter_groups(model), lr=3e-3)
    losses = []
    for _ in range(5):
        losses.append(model(input_ids=IDS, labels=IDS, use_cache=False).loss)
        losses[-1].backward()
        optimiser.step()
        optimiser.zero_grad()
    assert losses[-1] < losses[0]
    model.eval()
    with torch.no_grad():
        want = logits(model, IDS, "causal")
        first = model(input_ids=IDS[:, :4], use_cache=True)
        got = [first.logits]
        for i in range(4, 10):
            told = {"past_key_values": first.past_key_values, "use_cache": True}
            got.append(model(input_ids=IDS[:, i : i + 1], **told).logits)
        torch.testing.assert_close(torch.cat(got, 1), want, atol=1e-4, rtol=0)
        if kind != "linear layers":  # whose state passes over padding and documents
            mask = torch.ones_like(IDS)
            mask[0, :3] = 0
            padded = logits(model, IDS, "causal", attention_mask=mask)[:1, 3:]
            alone = logits(model, IDS[:1, 3:], "causal")
            torch.testing.assert_close(padded, alone, atol=1e-4, rtol=0)
            pos = torch.cat([torch.arange(3), torch.arange(7)])[None]
            packed = logits(model, IDS[:1], "causal", position_ids=pos)[:, 3:]
            torch.testing.assert_close(packed, alone, atol=1e-4, rtol=0)
    assert reloads(model, IDS, "causal") == 0


@pytest.mark.parametrize(("kind", "name"), [("masked", "bert"), ("masked", "roberta")])
def test_an_encoder_sees_both_sides_and_no_positions_of_its_own(kind, name):
    model = use(model_of(name, kind), "nope")
    order = torch.randperm(10, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        want, got = logits(model, IDS, kind), logits(model, IDS[:, order], kind)
        torch.testing.assert_close(got, want[:, order], atol=1e-5, rtol=0)
        use(model, "alibi")
        long = IDS[:1].repeat(1, 10)  # beyond max_position_embeddings
        assert (logits(model, IDS[:, order], kind) - want[:, order]).abs().max() > 1e-3
        assert logits(model, long, kind).isfinite().all()
    with pytest.raises(ValueError, match="needs a causal mask"):
        use(model, "fox")


def test_an_encoder_of_images():
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
        image_size=16, patch_size=4,
    )  # fmt: skip
    torch.manual_seed(0)
    model = use(transformers.ViTModel(config).eval(), "nope")
    x = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        flipped = x.flip(2)  # rows of patches change places, and rows within patches
        out = [model(pixel_values=one).last_hidden_state for one in (x, flipped.flip(2))]
        torch.testing.assert_close(out[0], out[1])
        bare = use(model, "alibi")(pixel_values=x).last_hidden_state
        assert (bare - out[0]).abs().max() > 1e-3


def test_an_encoder_and_a_decoder():
    model = use(model_of("t5", SEQ), "alibi")
    assert [one.name for one in encodings_in(model)] == ["alibi", "alibi"]
    greedy = {"max_new_tokens": 6, "do_sample": False, "num_beams": 2}
    with torch.no_grad():
        a, b = (model.generate(IDS, use_cache=on, **greedy) for on in (True, False))
    assert torch.equal(a, b)


def test_layers_of_one_type_only():
    model = model_of("gemma3_text")
    with torch.no_grad():
        own = logits(model, IDS, "causal")
        both = logits(use(model, "alibi"), IDS, "causal")
        one = logits(use(model, "alibi", layers="sliding_attention"), IDS, "causal")
        torch.testing.assert_close(logits(use(model, "rope"), IDS, "causal"), own)
    assert (both - own).abs().max() > 1e-3
    kinds = {*model.config.layer_types}
    assert torch.equal(one, both) == (kinds == {"sliding_attention"})
    with pytest.raises(ValueError, match="sliding_attention"):
        use(model, "alibi", layers="sliding")


SAMPLE = [("causal", name) for name in ("llama", "cohere2", "bart")] + [
    ("masked", "modernbert"), (SEQ, "t5"), (SEQ, "switch_transformers"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "name"), SAMPLE)
def test_a_sample_of_the_table(kind, name):
    row = check(kind, name, KINDS[kind]._model_mapping[name])
    assert (row.built, row.alibi, row.own in ("yes", "-")) == (True, "yes", True), row


@pytest.mark.parametrize(
    ("kind", "name", "cause"),
    [
        ("causal", "minimax", "has a cache of its own, MiniMaxCache"),
        ("causal", "rwkv", "has no softmax over keys"),
        ("causal", "bloom", "call pezoo.attention in BloomAttention, or"),
        (SEQ, "longt5", "the encoder of LongT5ForConditionalGeneration computes attention itself"),
    ],
)
def test_a_refusal_names_the_cause(kind, name, cause):
    assert cause in check(kind, name, KINDS[kind]._model_mapping[name]).trouble


def test_counts():
    rows = [Row("causal", "a", "A", True, "yes", "yes"), Row("causal", "b", "B", False)]
    assert "| causal | 2 | 1 | 1 | 1 of 1 |" in counts(rows)


@pytest.mark.slow
@pytest.mark.skipif("PEZOO_ARCHITECTURES" not in os.environ, reason="takes minutes")
def test_every_architecture():
    rows = [check(*one) for one in architectures()]
    works = {kind: sum(row.works for row in rows if row.kind == kind) for kind in KINDS}
    least = {"causal": 95, "masked": 15, SEQ: 5}
    assert all(works[kind] >= number for kind, number in least.items()), counts(rows)
