"""Models of transformers with an encoding of the zoo in place of their own positions."""

import copy
import pickle
import re
import subprocess
import sys

import pytest
import torch

pytest.importorskip("transformers", minversion="5.20")
import transformers
from transformers import (  # after the skip
    CohereConfig,
    CohereModel,
    DynamicCache,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Trainer,
    TrainingArguments,
)

import pezoo
from pezoo import adapters
from pezoo.adapters.devices import moved, placed
from pezoo.adapters.transformers import EncodingTrainer, as_trained, check_rotation, load, use
from pezoo.base import Encoding, PositionError
from pezoo.context import Memo
from pezoo.encodings.nope import NoPE
from pezoo.encodings.rope import LAYOUTS, RoPE
from pezoo.functional import encodings_in
from pezoo.spec import Spec, SpecError, parse
from pezoo.testing import SHAPE

SIZES = {
    "vocab_size": 31,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
    "initializer_range": 0.3,
}
GPT2 = {
    "vocab_size": 31,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
    "initializer_range": 0.3,
}
PRISM = "prism_2025(cursors=2,d_pe=16,hidden=12,copy_every=2)"
TWICE = "prism_2025(cursors=1,d_pe=8,hidden=6,before=0+1)"
IDS = torch.randint(2, 31, (3, 9), generator=torch.Generator().manual_seed(3))
MASK = torch.ones_like(IDS)
MASK[0, :4] = 0  # the first row has padding on the left
MAKERS = {
    "llama": lambda **k: LlamaForCausalLM(LlamaConfig(**{**SIZES, **k})),
    "qwen2": lambda **k: Qwen2ForCausalLM(Qwen2Config(**{**SIZES, **k})),
    "qwen3": lambda **k: Qwen3ForCausalLM(Qwen3Config(head_dim=8, **{**SIZES, **k})),
    "gpt2": lambda **k: GPT2LMHeadModel(GPT2Config(**GPT2, **k)),
}


def build(maker, **options):
    """In float64, so that the same computed twice is the same to a few digits."""
    torch.manual_seed(0)
    return MAKERS[maker](**options).eval().double()


SEVERAL = "Gemma3", "Cohere2"
FAMILIES = "Cohere", "Helium", "Phi", "SmolLM3", "NanoChat", "GptOss", "Llama4"


def family(cls, rope_theta=None, **options):
    """A model of another architecture."""
    name = "Llama4Text" if cls == "Llama4" else f"{cls}Text" if cls == "Gemma3" else cls
    kind = getattr(transformers, f"{name}Config")
    known = kind()
    sizes = {
        **SIZES,
        "head_dim": 8,
        "num_hidden_layers": 4,
        "num_local_experts": 2,
        "num_experts_per_tok": 1,
        **options,
    }
    sizes = {k: v for k, v in sizes.items() if k in options or hasattr(known, k)}
    config = kind(**sizes)
    if rope_theta:
        config.rope_parameters = {**config.rope_parameters, "rope_theta": rope_theta}
    torch.manual_seed(0)
    return getattr(transformers, f"{cls}ForCausalLM")(config).eval()


def slots_of(ids):
    return ids % 7


def generated(model, **options):
    """Tokens, and the beams' scores, which tell more."""
    torch.manual_seed(1)
    settings = {"max_new_tokens": 8, "do_sample": False, "num_beams": 3, **options}
    return model.generate(
        IDS, attention_mask=MASK, return_dict_in_generate=True, output_scores=True, **settings
    )


@pytest.mark.parametrize("maker", ["llama", "qwen2", "qwen3"])
def test_rope_is_the_models_own(maker):
    with torch.no_grad():
        model = build(maker, initializer_range=0.02).float()
        want = model(IDS).logits
        torch.testing.assert_close(use(model, "rope")(IDS).logits, want, atol=3e-7, rtol=0)


AS_ROPE = [
    "grape(rotary=true,bias=none)",
    "window(size=30):rerope",
    "window(size=9,sinks=4):rope",
    "ssmax(floor=40):rope",
]
FIXED = "needs frequencies that do not depend"
REFUSED = {
    **dict.fromkeys(("fope", AS_ROPE[0]), ("dynamic", FIXED)),
    "carope": ("dynamic yarn", "has powers of one frequency"),
}
SCALED = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}


@pytest.mark.parametrize(
    ("cls", "parameters"),
    [
        *[("Llama", one) for one in ({}, SCALED, {"rope_type": "dynamic", "factor": 2.0})],
        *[("GPTNeoX", {"partial_rotary_factor": 1.0, **one}) for one in ({}, SCALED)],
        ("Cohere", {}),
    ],
)
def test_what_serves_models_trained_with_rope_changes_nothing_in_its_window(cls, parameters):
    """And what turns pairs otherwise has the model's base, layout and rope_parameters too."""
    config = getattr(transformers, f"{cls}Config")(
        **SIZES, rope_parameters={"rope_type": "default", "rope_theta": 5e5, **parameters}
    )
    torch.manual_seed(0)
    model = getattr(transformers, f"{cls}ForCausalLM")(config).eval()
    twin, ids = copy.deepcopy(model), IDS[:1].repeat(1, 6)
    served, rotation = set(), as_trained(parse("rope"), model.base_model).options
    texts = {*pezoo.names(), *AS_ROPE}
    for text in sorted(x for x in texts if pezoo.make(x, SHAPE).rope_within is not None):
        types, reason = REFUSED.get(text, ("", ""))
        if parameters.get("rope_type", "none") in types:
            with pytest.raises(ValueError, match=reason):
                use(twin, text)
            continue
        encoding = use(twin, text, slots=slots_of).base_model.encoding
        parts = [one for one in encoding.modules() if isinstance(one, RoPE)]
        assert all(one.base == 5e5 and one.pairs == LAYOUTS[rotation["layout"]] for one in parts)
        n = min(encoding.rope_within or 0, ids.shape[1])
        if n:
            served.add(text)
            with torch.no_grad():
                want, got = (one(ids[:, :n], use_cache=False).logits for one in (model, twin))
            torch.testing.assert_close(got, want, atol=1e-5, rtol=0, msg=text)
    assert served >= {*AS_ROPE[1:], "rope", "rerope", "self_extend", "dual_chunk", "window", "pose"}


FACTORS = [1.0, 1.5, 2.0, 3.0]
TRAINED = {"rope_theta": 500.0, "original_max_position_embeddings": 16}


@pytest.mark.parametrize(
    ("text", "parameters"),
    [
        ("rope(rope_parameters=linear(factor=4))", {"rope_type": "linear", "factor": 4.0}),
        (
            "rope(rope_parameters=yarn(factor=4,original_max_position_embeddings=16))",
            {"rope_type": "yarn", "factor": 4.0, **TRAINED},
        ),
        (
            "rope(rope_parameters=llama3(factor=8,original_max_position_embeddings=16))",
            {
                "rope_type": "llama3",
                "factor": 8.0,
                **TRAINED,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
            },
        ),
        (
            "rope(rope_parameters=longrope(factor=4,original_max_position_embeddings=16,"
            "short_factor=[1,1,1,1],long_factor=[1,1.5,2,3]))",
            {
                "rope_type": "longrope",
                "factor": 4.0,
                **TRAINED,
                "short_factor": [1.0] * 4,
                "long_factor": FACTORS,
            },
        ),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_a_trained_model_gets_a_scaling(text, parameters):
    """The logits equal those of a model that transformers made with the scaling."""
    parameters = {"rope_theta": 500.0, **parameters}
    ids = torch.randint(2, 31, (1, 40), generator=torch.Generator().manual_seed(4))
    with torch.no_grad():
        scaled = build("llama", rope_parameters=parameters)
        want = scaled(ids).logits
        plain = build("llama", rope_parameters={"rope_type": "default", "rope_theta": 500.0})
        assert (plain(ids).logits - want).abs().max() > 1e-3
        given = use(plain, text)(ids, use_cache=False).logits
        own = use(scaled, "rope")(ids, use_cache=False).logits
    torch.testing.assert_close(given, want, atol=2e-5, rtol=0)
    torch.testing.assert_close(own, want, atol=2e-5, rtol=0)


def test_positions_are_dropped_and_gpt2_keeps_its_table():
    with torch.no_grad():
        model = use(use(build("llama"), "rope"), "nope")
        turned = model(IDS[:, [1, 0, 2, 3]]).logits[:, -1]
        assert isinstance(model.base_model.encoding, NoPE)
        other = use(build("llama"), "nope")(IDS[:, [1, 0, 2, 3]]).logits[:, -1]
        assert torch.equal(turned, other)
        gpt2 = build("gpt2")
        want, table = gpt2(IDS).logits, gpt2.transformer.wpe.weight.clone()
        model = use(gpt2, "learned")
        model.base_model.encoding.table.copy_(table)
        torch.testing.assert_close(model(IDS).logits, want)


@pytest.mark.parametrize(
    ("maker", "text"),
    [
        *[(maker, text) for maker in ("llama", "gpt2") for text in ("rope", PRISM)],
        *[("llama", "t5"), ("qwen3", "geometric"), ("gpt2", "sinusoidal"), ("qwen2", TWICE)],
        *[("llama", text) for text in ("fox", "stick_breaking", "pope", "cope", "bam")],
        *[("llama", "coupled"), ("llama", "abacus(digits=[2,3,5,7,8,9,11,14])")],
    ],
)
def test_beams_with_and_without_a_cache(maker, text):
    model = use(build(maker), text, slots=slots_of)
    a, b = generated(model, use_cache=True), generated(model, use_cache=False)
    assert torch.equal(a.sequences, b.sequences)
    torch.testing.assert_close(a.sequences_scores, b.sequences_scores)
    greedy = [generated(model, use_cache=c, num_beams=1) for c in (True, False)]
    assert torch.equal(greedy[0].sequences, greedy[1].sequences)
    for x, y in zip(greedy[0].scores, greedy[1].scores, strict=True):
        torch.testing.assert_close(x, y)
    with torch.no_grad():  # a padded row is the row alone
        alone = model(IDS[:1, 4:]).logits
        torch.testing.assert_close(model(IDS, attention_mask=MASK).logits[:1, 4:], alone)


@pytest.mark.parametrize(
    "text",
    ["rope", "alibi", "fox", "kerple", "rerope", "window:t5", "layers:fox,rope", PRISM, TWICE],
)
def test_layers_on_several_devices(text):
    """As accelerate's device_map spreads them, with the device meta, which computes shapes alone.

    The encoding stays where it is, and what it gives later layers comes to theirs.
    """
    hooks = pytest.importorskip("accelerate.hooks")
    model = use(build("llama"), text)
    encoding = model.base_model.encoding
    for part in (model.model.layers[1], model.model.norm, model.lm_head):
        hooks.add_hook_to_module(part.to("meta"), hooks.AlignDevicesHook("meta"))
    with torch.no_grad():
        assert model(IDS, attention_mask=MASK, use_cache=False).logits.is_meta
        cache = model(IDS[:, :7], attention_mask=MASK[:, :7]).past_key_values
        cache.reorder_cache(torch.tensor([0, 2, 2]))
        options = {"attention_mask": MASK, "past_key_values": cache}
        assert model(IDS[:, 7:], **options).logits.shape == (3, 2, 31)
    there = placed(encoding, torch.device("meta"))
    assert not any(x.is_meta for x in encoding.state_dict().values())
    for (name, own), x in zip(encoding.named_parameters(), there.parameters(), strict=False):
        assert x.is_meta, name
        assert x.grad_fn.next_functions[0][0].variable is own, name
    if list(encoding.parameters()):
        with pytest.raises(ValueError, match="are offloaded: give the model's module"):
            placed(encoding.to("meta"), torch.device("cpu"))


def test_what_a_memo_gets_on_another_device():
    memo = Memo(a=(torch.ones(2), None), inner=Memo(b=torch.ones(2)))
    there = moved(memo, torch.device("meta"))
    assert there["a"][0].is_meta
    assert there.get("inner")["b"].is_meta
    assert not memo["a"][0].is_meta
    there["new"] = torch.zeros(2, device="meta")
    there["inner"].setdefault("c", 3)
    assert memo["new"] is there["new"]
    assert (memo["inner"]["c"], there.get("none", 4)) == (3, 4)


def test_a_memo_that_stays_behind_is_seen(monkeypatch):
    """That the tests here are sharp enough."""
    model = use(build("llama"), PRISM)
    want = generated(model, use_cache=True).sequences_scores
    monkeypatch.setattr(Memo, "reorder", lambda memo, rows: None)
    assert (generated(model, use_cache=True).sequences_scores - want).abs().max() > 1e-6


def assisted(model):
    row = IDS[1:2].repeat(1, 3)
    torch.manual_seed(2)
    draft = use(MAKERS["llama"]().eval().double(), "prism_2025(cursors=1,d_pe=8,hidden=6)")
    options = {"max_new_tokens": 12, "do_sample": False}
    want = model.generate(row, use_cache=False, **options)
    assert torch.equal(model.generate(row, assistant_model=draft, **options), want)
    assert torch.equal(model.generate(row, prompt_lookup_num_tokens=3, **options), want)


@pytest.mark.parametrize("text", [PRISM, TWICE])
def test_assisted_decoding_crops(text):
    assisted(use(build("llama"), text))


def test_a_cache_of_the_users_own():
    model, cache = use(build("llama"), PRISM), DynamicCache()
    with torch.no_grad():
        want = model(IDS, attention_mask=MASK).logits
        one = model(IDS[:, :4], attention_mask=MASK[:, :4], past_key_values=cache).logits
        two = model(IDS[:, 4:8], attention_mask=MASK[:, :8], past_key_values=cache).logits
        cache.crop(-2)
        again = model(IDS[:, 6:], attention_mask=MASK, past_key_values=cache).logits
    got = torch.cat([one, two[:, :2], again], 1)
    torch.testing.assert_close(got[1:], want[1:])
    torch.testing.assert_close(got[0, 4:], want[0, 4:])
    cache.batch_repeat_interleave(2)
    cache.batch_select_indices(torch.tensor([0, 3]))
    assert cache.layers[-1].pos.shape == (2, 9)
    cache.reset()
    assert cache.get_seq_length() == cache.layers[-1].get_seq_length() == 0


def test_a_refused_pass_leaves_the_cache_as_it_was():
    model, cache = use(build("llama"), "learned(max_len=10)"), DynamicCache()
    with torch.no_grad():
        model(IDS[:, :8], past_key_values=cache)
        with pytest.raises(ValueError, match="was given position 15"):
            model(IDS[:, :8], past_key_values=cache)
        got = model(IDS[:, 8:], past_key_values=cache).logits
        torch.testing.assert_close(got, model(IDS).logits[:, 8:])


def test_a_cache_goes_on_as_it_began():
    model = use(build("llama"), "rope")
    other = torch.ones_like(MASK)
    other[:, 2:5] = 0
    with torch.no_grad():
        plain = model(IDS[:, :8]).past_key_values
        padded = model(IDS[:, :8], attention_mask=MASK[:, :8]).past_key_values
        for cache, mask in ((plain, MASK), (plain, other), (padded, torch.ones_like(MASK))):
            with pytest.raises(ValueError, match="hide the same cached tokens"):
                model(IDS[:, 8:], attention_mask=mask, past_key_values=cache)
        with pytest.raises(ValueError, match="the cache holds padding"):
            model(IDS[:, 8:], past_key_values=padded)
        with pytest.raises(ValueError, match="filled with rope"):
            use(build("llama"), "alibi")(IDS[:, 8:], past_key_values=plain)
        want = model(IDS, attention_mask=MASK).logits[:, 8:]
        at = torch.tensor([[4], [8], [8]])
        got = model(IDS[:, 8:], position_ids=at, past_key_values=copy.deepcopy(padded)).logits
        torch.testing.assert_close(got, want)
        got = model(IDS[:, 8:], attention_mask=MASK, past_key_values=padded).logits
        torch.testing.assert_close(got, want)
        padded.reset()
        assert padded.layers[-1].encoding is None


@pytest.mark.parametrize("text", ["rope", PRISM])
def test_documents_side_by_side(text):
    """position_ids that do not rise begin a document, with a cache too."""
    model = use(build("qwen2"), text)
    ids, pos = IDS[:1], torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4]])
    with torch.no_grad():
        apart = torch.cat([model(ids[:, :4]).logits, model(ids[:, 4:]).logits], 1)
        packed = model(ids, position_ids=pos, use_cache=False).logits
        first = model(ids[:, :6], position_ids=pos[:, :6])
        later = {"position_ids": pos[:, 6:], "past_key_values": first.past_key_values}
        cached = torch.cat([first.logits, model(ids[:, 6:], **later).logits], 1)
        masked = model(ids, attention_mask=torch.ones_like(ids), position_ids=pos).logits
    for got in (packed, cached, masked):
        torch.testing.assert_close(got, apart)


def test_a_mask_is_made_once_a_pass(monkeypatch):
    """And only where there is padding."""
    model, made, mask = use(build("llama"), "nope"), [], adapters.attention_mask
    monkeypatch.setattr(
        adapters, "attention_mask", lambda ctx, causal: made.append(ctx) or mask(ctx, causal)
    )
    with torch.no_grad():
        cache = model(IDS[:, :5]).past_key_values
        model(IDS[:, 5:6], past_key_values=cache)
        model(IDS, attention_mask=torch.ones_like(MASK))
        assert not made
        model(IDS, attention_mask=MASK)
        assert len(made) == 1


def test_a_mask_of_the_callers_own():
    model = use(build("llama"), "alibi")
    mask = torch.ones(9, 9, dtype=torch.bool).tril()
    mask[4:, :4] = False
    added = torch.where(mask, 0.0, -torch.inf).double()
    blind = mask.clone()
    blind[2] = False
    with torch.no_grad():
        want = model(IDS[:1, 4:]).logits
        for own in (mask, added, blind):
            got = model(IDS[:1], attention_mask=own[None, None]).logits
            torch.testing.assert_close(got[:, 4:], want)
            assert got.isfinite().all()
    with pytest.raises(ValueError, match="bias"):
        model(IDS[:1], attention_mask=torch.where(mask, 0.0, -0.5)[None, None].double())


@pytest.mark.parametrize(
    ("maker", "text"),
    [("llama", TWICE), ("gpt2", "learned(max_len=64)")],
)
def test_saved_and_loaded(tmp_path, maker, text):
    model = use(build(maker), text, length=30)
    for parameter in model.base_model.encoding.parameters():
        torch.nn.init.normal_(parameter)
    model.save_pretrained(tmp_path)
    other = load(tmp_path, dtype=torch.float64)
    assert other.state_dict().keys() == model.state_dict().keys()
    saved = {"encoding": text, "length": 30, "weights": True, "attention": "sdpa", "layers": None}
    saved["class"] = type(model.base_model.encoding).__name__
    assert other.config.pezoo == saved
    with torch.no_grad():
        torch.testing.assert_close(other(IDS).logits, model(IDS).logits)
    half = load(tmp_path, dtype=torch.bfloat16)
    assert {parameter.dtype for parameter in half.parameters()} == {torch.bfloat16}
    plain = type(model).from_pretrained(tmp_path)
    with pytest.raises(ValueError, match=re.escape(text)):
        use(plain, "rope")
    plain.config.pezoo = saved | {"encoding": None}  # as where it was given as a class
    with pytest.raises(ValueError, match=r"load\(folder, TheClass\)"):
        use(plain, NoPE)
    plain.config.pezoo = None
    assert use(plain, "nope")(IDS).logits.isfinite().all()


@pytest.mark.parametrize("text", ["rope(drop=0.7)", "rope(rope_parameters=dynamic(factor=2))"])
def test_what_draws_is_loaded_as_it_was_saved(tmp_path, text):
    model = use(build("llama"), text, length=30).eval()
    model.save_pretrained(tmp_path)
    with torch.no_grad():
        assert torch.equal(load(tmp_path, dtype=torch.float64)(IDS).logits, model(IDS).logits)


TESTED = "Llama", "Qwen2", "Qwen3", "GPT2", "Cohere", "Granite", "GPTNeoX", "Helium", "Ernie4_5"


@pytest.mark.parametrize("cls", TESTED)
def test_every_tested_architecture_is_loaded_as_it_was_saved(tmp_path, cls):
    """Logits are equal to the last bit: transformers renames keys of some."""
    sizes = GPT2 if cls == "GPT2" else {**SIZES, "head_dim": 8}
    config = getattr(transformers, f"{cls}Config")(**sizes)
    name = "LMHeadModel" if cls == "GPT2" else "ForCausalLM"
    model = use(getattr(transformers, f"{cls}{name}")(config), "alibi").eval()
    model.save_pretrained(tmp_path)
    with torch.no_grad():
        assert torch.equal(load(tmp_path)(IDS).logits, model(IDS).logits)


@pytest.mark.parametrize("text", sorted(set(pezoo.names()) - {"ideal", "ideal_sh", "lbpe_sh"}))
def test_every_encoding(tmp_path, text):
    """It decodes with a cache, of which tokens are taken back, and is saved and loaded."""
    model = use(build("llama"), text, length=9, slots=slots_of)
    model.save_pretrained(tmp_path)
    other = load(tmp_path, slots=slots_of, dtype=torch.float64)
    for name, x in model.state_dict().items():
        assert torch.equal(x, other.state_dict()[name]), name
    if model.base_model.encoding.stochastic:
        return
    with torch.no_grad():
        want = model(IDS, attention_mask=MASK, use_cache=False).logits
        torch.testing.assert_close(other(IDS, attention_mask=MASK).logits, want)
        if not model.base_model.encoding.prefix_stable:
            return
        first = model(IDS[:, :7], attention_mask=MASK[:, :7])
        first.past_key_values.crop(-2)
        options = {"attention_mask": MASK, "past_key_values": first.past_key_values}
        later = model(IDS[:, 5:], **options).logits
    torch.testing.assert_close(later, want[:, 5:], atol=1e-6, rtol=1e-6)


@pytest.mark.slow
def test_one_graph_for_every_length():
    model = use(build("llama"), "alibi")
    torch.compiler.reset()
    compiled = torch.compile(model, backend="eager", fullgraph=True, dynamic=True)
    with torch.no_grad():
        for ids in (IDS, IDS[:, :5]):
            want = model(ids, use_cache=False).logits
            torch.testing.assert_close(compiled(ids, use_cache=False).logits, want)


def test_attention_dropout_is_that_of_gpt2():
    torch.manual_seed(0)
    model = MAKERS["gpt2"](attn_implementation="eager").train()
    torch.manual_seed(5)
    want = model(IDS).logits
    with torch.no_grad():
        table = model.transformer.wpe.weight.clone()
        use(model, "learned").base_model.encoding.table.copy_(table)
    torch.manual_seed(5)
    torch.testing.assert_close(model(IDS).logits, want, atol=1e-5, rtol=0)


@pytest.mark.parametrize("text", [PRISM, TWICE, "alibi"])
def test_gradient_checkpointing(text):
    model = use(build("llama"), text).train()
    twin = copy.deepcopy(model)
    twin.activation_checkpointing_enable()
    for one in (model, twin):
        one(IDS, labels=IDS).loss.backward()
    for (name, a), b in zip(model.named_parameters(), twin.parameters(), strict=True):
        assert a.grad is None or torch.equal(a.grad, b.grad), name
    assert model.base_model.encoding is not twin.base_model.encoding


@pytest.mark.parametrize("text", [PRISM, TWICE, "shaw"])
def test_reentrant_checkpoints(text):
    """They go backward in each layer, and would meet what is prepared for all more than once."""
    model = use(build("llama"), text).train()
    model.gradient_checkpointing_enable({"use_reentrant": True})
    if text != "shaw":
        with pytest.raises(ValueError, match="use_reentrant=False"):
            model(IDS)
        return
    model(IDS, labels=IDS).loss.backward()
    assert all(p.grad is not None for p in model.base_model.encoding.parameters())


class Trained(EncodingTrainer, Trainer):
    pass


def trainer_of(cls, model, folder, **options):
    rows = [{"input_ids": row, "labels": row} for row in IDS.repeat(4, 1)]
    settings = TrainingArguments(
        output_dir=str(folder), per_device_train_batch_size=3, report_to=[], disable_tqdm=True,
        use_cpu=True, **options,
    )  # fmt: skip
    return cls(model, settings, train_dataset=rows, eval_dataset=rows)


def test_the_trainer(tmp_path):
    model = use(build("llama").float(), PRISM)
    before = copy.deepcopy(model.base_model.encoding.state_dict())
    options = {"eval_strategy": "steps", "eval_steps": 10, "save_steps": 10, "logging_steps": 10}
    trainer = trainer_of(Trained, model, tmp_path, max_steps=10, learning_rate=1e-2, **options)
    with torch.no_grad():
        first = model(IDS, labels=IDS).loss
    trainer.train()
    with torch.no_grad():
        assert model.eval()(IDS, labels=IDS).loss < 0.8 * first
        logits = load(tmp_path / "checkpoint-10")(IDS).logits
        torch.testing.assert_close(logits, model(IDS).logits)
    encoding = model.base_model.encoding
    assert (encoding.alpha != before["alpha"]).any()
    (own,) = encoding.param_groups()
    (group,) = [g for g in trainer.optimizer.param_groups if g["params"][0] is own.params[0]]
    assert (group["initial_lr"], group["betas"]) == (own.lr, own.betas)
    assert group["weight_decay"] == own.weight_decay
    everything = [p for g in trainer.optimizer.param_groups for p in g["params"]]
    assert sorted(map(id, everything)) == sorted(map(id, model.parameters()))


@pytest.mark.parametrize("accumulated", [1, 2])
def test_the_trainer_adds_the_penalty(tmp_path, monkeypatch, accumulated):
    """Once for each step of the optimiser, and not in evaluation."""
    model = use(build("llama").float(), PRISM)
    encoding = model.base_model.encoding
    monkeypatch.setattr(encoding, "penalty", lambda: 3.0 * encoding.mu.sum())
    changed = {}
    for cls in (Trainer, Trained):
        twin = copy.deepcopy(model)
        mu = twin.base_model.encoding.mu
        monkeypatch.setattr(twin.base_model.encoding, "penalty", lambda mu=mu: 3.0 * mu.sum())
        options = {"max_steps": 1, "gradient_accumulation_steps": accumulated, "optim": "sgd"}
        trainer = trainer_of(
            cls,
            twin,
            tmp_path,
            learning_rate=1e-2,
            max_grad_norm=0.0,
            save_strategy="no",
            **options,
        )
        trainer.train()
        changed[cls] = mu.detach() - encoding.mu.detach(), trainer.evaluate()["eval_loss"]
    torch.testing.assert_close(changed[Trained][0] - changed[Trainer][0], -0.03 * torch.ones(2, 4))


def test_positions_are_dropped_at_a_share_of_the_training(tmp_path, monkeypatch):
    """As rope before, as nope after; without the progress, training is refused."""
    model = use(build("llama").float(), "rope(drop=0.5)")
    with pytest.raises(ValueError, match="needs the progress of training"):
        model.train()(IDS)
    seen, draw = [], RoPE.draw
    monkeypatch.setattr(
        RoPE, "draw", lambda *args, **plan: seen.append(plan["progress"]) or draw(*args, **plan)
    )
    options = {"max_steps": 4, "eval_strategy": "steps", "eval_steps": 2, "save_strategy": "no"}
    trainer_of(Trained, model, tmp_path, **options).train()
    assert [x for x in seen if x is not None] == [0.0, 0.25, 0.5, 0.75]
    assert None in seen  # in evaluation
    with torch.no_grad():
        for progress, text in ((0.49, "rope"), (0.5, "nope")):
            model.base_model.progress = progress
            want = use(copy.deepcopy(model), text).train()(IDS).logits
            torch.testing.assert_close(model.train()(IDS).logits, want, atol=1e-5, rtol=0)


def test_planned_lengths():
    model = use(build("llama"), "randomized:rope")
    with pytest.raises(PositionError, match="plan the final length"):
        generated(model, num_beams=1)
    model = use(build("llama"), "randomized:rope", length=17)
    assert generated(model).sequences.shape == (3, 17)


def test_half_precision():
    model = use(build("llama").bfloat16(), PRISM)
    assert model.base_model.encoding.alpha.dtype == torch.bfloat16
    assert generated(model).sequences.shape == (3, 17)
    with torch.no_grad():
        assert model(IDS).logits.dtype == torch.bfloat16


@pytest.mark.parametrize(
    "parameters",
    [{"type": "linear", "factor": 2.0}, {"type": "yarn", "factor": 2.0, "mscale": 0.0}],
)
def test_the_rope_scaling_of_old_configs(parameters):
    model = build("llama", rope_scaling=parameters)
    with torch.no_grad():
        want = model(IDS).logits
        torch.testing.assert_close(use(model, "rope")(IDS).logits, want, atol=2e-5, rtol=0)


@pytest.mark.parametrize(
    ("cls", "options"),
    [
        *[("Cohere", {}), ("Granite", {"attention_multiplier": 0.2}), ("GPTNeoX", {})],
        *[("Helium", {"head_dim": 8}), ("Ernie4_5", {"head_dim": 8})],
    ],
)
def test_other_families(cls, options):
    """Interleaved pairs; a scale of its own; a cache of another name; cosines cut and repeated."""
    config = getattr(transformers, f"{cls}Config")(**SIZES, **options)
    torch.manual_seed(0)
    model = getattr(transformers, f"{cls}ForCausalLM")(config).eval().double()
    want = model(IDS).logits
    if cls != "GPTNeoX":  # which turns a part of each head
        got = use(model, "rope")(IDS).logits
        torch.testing.assert_close(got, want, atol=1e-4, rtol=0)
    use(model, PRISM)
    a, b = generated(model, use_cache=True), generated(model, use_cache=False)
    torch.testing.assert_close(a.sequences_scores, b.sequences_scores)


def test_errors():
    for name in ("lbpe_sh", "ideal"):
        with pytest.raises(ValueError, match=f"{name} needs the task or its scale"):
            use(build("llama"), name)
    for wrong in (lambda ids: ids[:, :3], lambda ids: ids.float(), lambda ids: [1, 2]):
        with pytest.raises(ValueError, match="integers"):
            use(build("llama"), "coupled", slots=wrong)(IDS)
    with pytest.raises(ValueError, match="coupled reads slots: pass slots="):
        use(build("llama"), "coupled")
    with pytest.raises(SpecError, match="did you mean rope"):
        use(build("llama"), "ropee")
    model = build("llama")
    with torch.no_grad():
        cache = model(IDS).past_key_values
    model = use(model, "alibi")
    with pytest.raises(ValueError, match="filled without the encoding"):
        model(IDS, past_key_values=cache)
    with torch.no_grad():
        cache = model(IDS).past_key_values
    with pytest.raises(ValueError, match="each of 10 tokens"):
        model(IDS[:, :1], attention_mask=MASK[:, :1], past_key_values=cache)
    with pytest.raises(ValueError, match="either input_ids or inputs_embeds"):
        model.base_model()


RELOAD = """
import sys
import torch
from transformers import AutoModelForCausalLM

def refused(call, word):
    try:
        call()
    except ValueError as error:
        assert word in str(error), error
    else:
        raise AssertionError(word)

folders, ids = sys.argv[1:], torch.arange(2, 11)[None]
for folder in folders:
    refused(lambda: AutoModelForCausalLM.from_pretrained(folder), "pezoo")
from pezoo.adapters.transformers import load, use
for folder in folders:
    plain = AutoModelForCausalLM.from_pretrained(folder).double()
    refused(lambda: plain(ids), "no encoding is attached")
    text = plain.config.pezoo["encoding"]
    if text.startswith("prism"):
        refused(lambda: use(plain, text), "whose weights")
        plain = load(folder, dtype=torch.float64)
    else:
        use(plain, text)
    want = torch.load(f"{folder}/want.pt")
    torch.testing.assert_close(plain(ids).logits, want)
"""


@pytest.mark.slow
def test_another_process_gets_no_other_model(tmp_path):
    """Without pezoo, from_pretrained refuses; with it, the model runs only with its encoding."""
    folders = []
    for text in ("alibi", PRISM):
        folders.append(tmp_path / text.partition("(")[0])
        model = use(build("llama"), text)
        model.save_pretrained(folders[-1])
        torch.save(model(torch.arange(2, 11)[None]).logits.detach(), folders[-1] / "want.pt")
    command = [sys.executable, "-c", RELOAD, *map(str, folders)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "ask",
    [
        lambda model: model(IDS, output_attentions=True),
        lambda model: generated(model, output_attentions=True, num_beams=1),
        lambda model: setattr(model.config, "output_attentions", True),
    ],
)
def test_attention_weights_are_refused(ask):
    with pytest.raises(ValueError, match="output_attentions"):
        ask(use(build("llama"), "alibi"))


@pytest.mark.parametrize(
    ("cls", "text", "own"),
    [
        *[("Llama", text, True) for text in ("rope", "rope(rope_parameters=yarn(factor=2))")],
        *[(cls, text, True) for cls in FAMILIES for text in ("rope", "rope(base=500)")],
        *[("Llama", text, False) for text in ("rope(layout=half)", "alibi", PRISM)],
        ("Llama", RoPE, False),
    ],
)
def test_the_models_own_rotation_turns_where_it_can(monkeypatch, cls, text, own):
    """`transform` does not run; with another base the logits are those of a model made with it."""
    model = family(cls)
    with torch.no_grad():
        want = model(IDS).logits
        if text == "rope(base=500)":
            want = family(cls, rope_theta=500.0)(IDS).logits
    use(model, text)
    (encoding,) = encodings_in(model)
    transform, calls = type(encoding).transform, []

    def counted(*args):
        calls.append(args)
        return transform(*args)

    monkeypatch.setattr(type(encoding), "transform", counted)
    with torch.no_grad():
        got = model(IDS).logits
    assert bool(calls) != own
    if cls != "Llama":
        torch.testing.assert_close(got, want, atol=1e-5, rtol=0)


def test_a_config_of_two_models():
    plain = build("llama")
    config, want = plain.config, plain(IDS).logits
    both = [use(LlamaForCausalLM(config).double(), text) for text in ("alibi", "nope")]
    assert [model.config.pezoo["encoding"] for model in both] == ["alibi", "nope"]
    assert all(layer.self_attn.config is both[0].config for layer in both[0].model.layers)
    torch.testing.assert_close(plain(IDS).logits, want)
    with pytest.raises(ValueError, match="no encoding is attached"):
        LlamaForCausalLM(both[0].config)(IDS)


def test_a_folder_without_an_encoding(tmp_path):
    build("llama").save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="call use"):
        load(tmp_path)


def test_another_attention_set_later_is_refused_and_undone():
    model = use(build("llama"), "alibi")
    with torch.no_grad():
        want = model(IDS).logits
        model.set_attn_implementation("eager")
        with pytest.raises(ValueError, match="'eager' ignores"):
            model(IDS)
        model.set_attn_implementation("pezoo")
        torch.testing.assert_close(model(IDS).logits, want)


def test_attention_is_eager_where_the_models_own_is(tmp_path, monkeypatch):
    model = use(use(build("llama", attn_implementation="eager"), "nope"), "alibi")
    model.save_pretrained(tmp_path)
    fused = use(build("llama"), "alibi")
    monkeypatch.delattr("pezoo.adapters.backends.scaled_dot_product_attention")
    with torch.no_grad():
        want = model(IDS).logits
        torch.testing.assert_close(load(tmp_path, dtype=torch.float64)(IDS).logits, want)
        with pytest.raises(NameError):
            fused(IDS)


def test_a_class_is_named_when_it_is_loaded(tmp_path):
    model = use(build("llama"), RoPE)
    model.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"load\(folder, TheClass\)"):
        load(tmp_path)
    plain = type(model).from_pretrained(tmp_path, dtype=torch.float64)
    with torch.no_grad():
        want = model(IDS).logits
        for again in (load(tmp_path, RoPE, dtype=torch.float64), use(plain, RoPE)):
            torch.testing.assert_close(again(IDS).logits, want)
    again, info = load(tmp_path, RoPE, dtype=torch.float64, output_loading_info=True)
    assert not info["missing_keys"]
    torch.testing.assert_close(pickle.loads(pickle.dumps(again))(IDS).logits, want)
    for other in ("alibi", NoPE):
        with pytest.raises(ValueError, match="RoPE"):
            load(tmp_path, other)
    with pytest.raises(ValueError, match="not an instance"):
        use(build("llama"), RoPE(model.base_model.encoding.shape))
    with pytest.raises(ValueError, match="expected a model of transformers"):
        use(torch.nn.Linear(2, 2), "rope")
    with pytest.raises(ValueError, match="length must be"):
        use(build("llama"), "randomized:rope", length=-5)


def test_the_rotation_of_the_model():
    def spec(text, base):
        return as_trained(parse(text), base)

    rope = {"rope_type": "yarn", "factor": None, "original_max_position_embeddings": 16}
    base = build("llama", rope_parameters={**rope, "truncate": False}).model
    own = {"rope_type": "yarn", "original_max_position_embeddings": 16, "truncate": False}
    options = {"layout": "half", "base": 7, "rope_parameters": own}
    assert spec("randomized:rope(base=7)", base).inner == Spec("rope", options)
    assert spec("alibi", base) == Spec("alibi")
    assert spec("rope", build("gpt2").transformer) == Spec("rope")
    cohere = CohereModel(CohereConfig(**SIZES))
    assert spec("rope", cohere).options["layout"] == "interleaved"
    base.config.rope_parameters = {**TRAINED, "rope_type": "dynamic", "factor": 2.0}
    parameters = spec("rope", base).options["rope_parameters"]
    assert parameters == {"rope_type": "dynamic", "factor": 2.0}


@pytest.mark.parametrize(
    ("cls", "options", "message"),
    [
        ("SmolLM3", {"num_hidden_layers": 4}, "do not rotate, but .*: use rope, which"),
        ("NanoChat", {}, "neither of pairs"),
        ("Llama", {"partial_rotary_factor": 0.5}, "a part of each head, but .*: use rope, which"),
        ("Llama", {"mrope_section": [1, 3]}, "mrope_section"),
        *[(cls, {}, "rotate differently: pass layers=, one of full_") for cls in SEVERAL],
    ],
)
def test_a_rotation_that_rope_has_not(cls, options, message):
    """`rope` leaves it to the model; what turns pairs otherwise is refused."""
    if cls == "Llama":
        options = {"rope_parameters": {"rope_type": "default", **TRAINED, **options}}
    model = family(cls, **options)
    with torch.no_grad():
        want = model(IDS).logits
        torch.testing.assert_close(use(model, "rope")(IDS).logits, want, atol=1e-5, rtol=0)
    for text in ("rerope", "window:xpos", "fope", "selective_rope", "grape(rotary=true)"):
        with pytest.raises(ValueError, match=message):
            use(model, text)
    use(model, "grape")  # which turns nothing
    assert use(model, RoPE)(IDS).logits.isfinite().all()


def test_what_turns_pairs_by_options_of_its_own_is_refused():
    own = type("Own", (Encoding,), {"name": "own", "rope_within": 0})(SHAPE)
    with pytest.raises(ValueError, match="own cannot take over this model's base, layout, rope_p"):
        check_rotation(own, build("llama").model)
    check_rotation(own, build("gpt2").transformer)


def test_rope_without_a_rotate_half(monkeypatch):
    base = build("llama").model
    monkeypatch.delattr("transformers.models.llama.modeling_llama.rotate_half")
    with pytest.raises(ValueError, match="neither of pairs"):
        use(base, "rerope")


@pytest.mark.parametrize(
    ("cls", "message"),
    [
        ("EuroBertModel", "fox needs a causal mask, which EuroBertModel has not: take"),
        ("FalconForCausalLM", "AttentionInterface: call pezoo.attention in FalconAttention, or"),
        ("MambaForCausalLM", "has no attention"),
        ("RwkvForCausalLM", "has no softmax over keys"),
    ],
)
def test_models_that_are_refused(cls, message):
    name = re.match("(.*?)(Model|ForCausal.*)$", cls)[1]
    model = getattr(transformers, cls)(getattr(transformers, f"{name}Config")(**SIZES))
    with pytest.raises(ValueError, match=message):
        use(model, "fox")
    assert not hasattr(model.base_model, "encoding")


class Table(Encoding):
    """Its distances lie in a buffer that is not saved."""

    def __init__(self, shape):
        super().__init__(shape)
        self.register_buffer("table", torch.arange(9.0), persistent=False)
        self.plain = torch.arange(9.0)

    def bias(self, q, k, ctx):
        return -(self.table + self.plain)[ctx.distance()[:, None].abs()]


def test_what_is_not_saved_is_made_anew(tmp_path):
    model = use(build("llama"), Table)
    model.save_pretrained(tmp_path)
    other = load(tmp_path, Table, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(other(IDS).logits, model(IDS).logits)


class Shifted(Encoding):
    """Scores in place of the product, of which a fused kernel would know nothing."""

    def scores(self, q, k, ctx):
        near = ctx.distance()[:, None] < 3
        return torch.where(near, 2.0, 0.5) * (q @ k.mT) * self.shape.d_head**-0.5


def test_scores_replace_the_product(monkeypatch):
    model = use(build("llama"), Shifted)
    assert torch.equal(*(generated(model, use_cache=on).sequences for on in (True, False)))
    model.train()
    want = model(IDS).logits
    for layer in model.model.layers:
        layer.self_attn.attention_dropout = 1e-9  # another branch of the attention
    torch.testing.assert_close(model(IDS).logits, want, atol=1e-5, rtol=0)
    monkeypatch.setattr(Shifted, "scores", Encoding.scores)
    assert not torch.allclose(model(IDS).logits, want, atol=1e-3)
