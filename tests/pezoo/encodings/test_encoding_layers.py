import re
from pathlib import Path

import pytest
import torch
from transformers import (
    Cohere2Config,
    Cohere2ForCausalLM,
    CohereConfig,
    CohereForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    Olmo2Config,
    Olmo2ForCausalLM,
    Olmo3Config,
    Olmo3ForCausalLM,
    SmolLM3Config,
    SmolLM3ForCausalLM,
)
from transformers.masking_utils import chunked_overlay

from pezoo import Context, Shape, make
from pezoo.adapters.transformers import use
from pezoo.base import Pass
from pezoo.registry import check, parse, parse_list
from pezoo.testing import build, tokens
from pezoo.testing.probe import Decoding, run

SHAPE = Shape(d_model=16, n_heads=4, d_head=4, n_layers=5, train_len=12)
SIZES = {
    "vocab_size": 31, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 5,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None, "initializer_range": 0.3,
}  # fmt: skip
PAIRS = {
    "layers(every=2):rope,nope": (
        SmolLM3ForCausalLM, SmolLM3Config(**SIZES, no_rope_layer_interval=2),
        LlamaForCausalLM, LlamaConfig(**SIZES, rope_theta=2000000.0),
    ),
    "layers(every=3):window(size=4):rope,nope": (
        Cohere2ForCausalLM, Cohere2Config(**SIZES, sliding_window=4, sliding_window_pattern=3),
        CohereForCausalLM, CohereConfig(**SIZES, rope_theta=10_000.0),
    ),
    "layers(every=4):window(size=4):rope,rope": (
        Olmo3ForCausalLM, Olmo3Config(**SIZES, sliding_window=4),
        Olmo2ForCausalLM, Olmo2Config(**SIZES, rope_theta=500_000.0),
    ),
}  # fmt: skip


@pytest.mark.parametrize("text", PAIRS)
def test_it_gives_llama_cohere_and_olmo_the_positions_of_their_successors(text):
    new, config, old, plain = PAIRS[text]
    torch.manual_seed(0)
    model, other = new(config).double().eval(), old(plain).double().eval()
    other.load_state_dict(model.state_dict())
    ids = torch.randint(1, 31, (2, 11))
    with torch.no_grad():
        want = model(ids).logits
        assert (other(ids).logits - want).abs().max() > 1e-3
        got = use(other, text)(ids).logits
    torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)


def test_the_models_in_the_docs_run_and_have_their_layers():
    text = (Path(__file__).parents[3] / "docs" / "run-a-comparison.md").read_text()
    models = dict(re.findall(r"^ *\| (\w+)[^|]*\| `(layers\(every[^`]*)` \|", text, re.M))
    types = {"Gemma": Gemma3TextConfig(), "OLMo": Olmo3Config()}
    assert {*models} == {"SWAN", *types}
    for name, spec in models.items():
        shape = SHAPE.replaced(n_layers=12, train_len=600)
        encoding = make(spec, shape)
        assert run(build(lambda _, made=encoding: made), tokens(2, 8)).isfinite().all()
        pos = torch.arange(5000)[None]
        ctx = encoding.prepare(Pass(pos, n_new=1, x=torch.zeros(1, 1, 16)))
        q, k = torch.zeros(1, 4, 1, 4), torch.zeros(1, 4, 5000, 4)
        biases = [encoding.bias(q, k, ctx.at(n, None)) for n in range(12)]
        wide = [x is None or not x.isneginf().any() for x in biases]
        layers = types[name].layer_types if name in types else 3 * [*3 * ["sliding"], "full_"]
        assert wide == [kind.startswith("full_") for kind in layers[:12]]


def test_the_chunks_of_llama_4():
    pos = torch.arange(11)
    encoding = make("window(chunk=4):nope", SHAPE)
    bias = encoding.bias(None, None, encoding.prepare(Context(pos[None])).at(0, None))
    mask = chunked_overlay(4, torch.zeros(1, dtype=torch.long))
    same = [[bool(mask(0, 0, i, j)) for j in pos] for i in pos]
    assert torch.equal(~bias[0, 0].isneginf(), torch.tensor(same))


@pytest.mark.filterwarnings("ignore:every=6")
@pytest.mark.parametrize(("every", "one"), [(1, "alibi"), (6, "rope")])
def test_one_encoding_for_all_layers(every, one):
    ids = tokens(2, 8)
    both = make(f"layers(every={every}):rope,alibi", SHAPE)
    assert torch.equal(run(both, ids), run(make(one, SHAPE), ids))
    assert both.reads_distance == (one == "alibi")


def test_a_second_encoding_that_no_layer_has_is_told():
    with pytest.warns(UserWarning, match="every=6: no layer of 5 has the second encoding"):
        make("layers(every=6):rope,alibi", SHAPE)


def test_each_layer_has_its_own_encoding_and_each_encoding_its_layers():
    encoding = make("layers(every=2):rope,kerple", SHAPE)
    assert encoding.other.shape.n_layers == 2
    ctx = encoding.prepare(Context(torch.arange(4)[None]))
    found = [encoding.within(ctx.at(n, None)) for n in range(5)]
    assert [(one.name, here.layer) for one, here in found] == [
        ("rope", 0), ("kerple", 0), ("rope", 1), ("kerple", 1), ("rope", 2),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "inner", ["randomized:rope,learned(max_len=40)", "prism(d_pe=16,hidden=12),rope(base=70)"]
)
def test_what_is_drawn_and_kept_stays_apart(inner):
    encoding, ids = build(lambda s: make(f"layers(every=2):{inner}", s)), tokens(2, 10)
    decoding = Decoding(encoding, ids)
    steps = [decoding.feed(n) for n in (4, 1, 5)]
    full = run(encoding, ids, length=10)
    torch.testing.assert_close(torch.cat(steps, 1), full, atol=1e-5, rtol=0)


def test_a_window_keeps_the_inner_bias():
    pos = torch.tensor([[0, 1, 2, 3, 9]])
    inner, own = (
        encoding.bias(None, None, encoding.prepare(Context(pos)).at(0, None))
        for encoding in (make("alibi", SHAPE), make("window(size=3):alibi", SHAPE))
    )
    seen = pos.mT - pos < 3
    assert torch.equal(own, inner.masked_fill(~seen, -torch.inf))


@pytest.mark.parametrize("inner", ["bipe:rope", "randomized:rope", "randomized:alibi"])
def test_a_window_refuses_to_count_positions_that_are_replaced(inner):
    encoding = make(f"window(size=3):{inner}", SHAPE)
    with pytest.raises(ValueError, match=r"window counts positions, which (bipe|randomized)"):
        run(encoding.train(), tokens(2, 8))
    outer, _, rest = inner.partition(":")
    run(make(f"{outer}:window(size=3):{rest}", SHAPE).train(), tokens(2, 8))


def test_texts():
    texts = ["alibi", "layers(every=4):rope,nope", "randomized:layers:ssmax:rope,ssmax:nope", "t5"]
    assert [str(spec) for spec in parse_list(",".join(texts))] == texts
    for name in ("smollm3", "cohere2", "llama4"):
        spec = check(parse(name))
        assert check(parse(str(spec))) == spec
