"""Caches of transformers other than the default one, and encodings that change earlier keys."""

import pytest
import torch

pytest.importorskip("transformers", minversion="5.20")
from test_adapter_transformers import IDS, MASK, PRISM, build, family, generated
from transformers import DynamicCache, QuantizedCache, StaticCache
from transformers.cache_utils import DynamicLayer

import pezoo
from pezoo.adapters.transformers import use
from pezoo.testing import SHAPE

DYNAMIC = "rope(rope_parameters=dynamic(factor=2))"
LONG = "rope(rope_parameters=longrope(factor=2,short_factor=[1,1,1,1],long_factor=[1,1.5,2,3]))"
CHANGING = [
    *(name for name in pezoo.names() if not pezoo.make(name, SHAPE).prefix_stable),
    *(DYNAMIC, LONG, "self_extend(group=0)", "learned(side=4,axes=2)", f"layers:fox,{DYNAMIC}"),
    *(f"window:{DYNAMIC}", "repo(rope_parameters=dynamic(factor=2))", f"randomized:{DYNAMIC}"),
    "selective_rope(rope_parameters=dynamic(factor=2))",
]


def same(model, a, b):
    """Greedy tokens with padding on the left, and their scores, are the same with both options."""
    a, b = (generated(model, **{"num_beams": 1, **options}) for options in (a, b))
    assert torch.equal(a.sequences, b.sequences)
    for x, y in zip(a.scores, b.scores, strict=True):
        torch.testing.assert_close(x, y, atol=1e-4, rtol=0)


@pytest.mark.parametrize("text", ["alibi", "fox", "rope", PRISM])
def test_a_static_cache_is_a_dynamic_one(text):
    model = use(build("llama"), text)
    same(model, {"cache_implementation": "static"}, {"cache_implementation": "dynamic"})
    cache = StaticCache(model.config, max_cache_len=12)
    with torch.no_grad():
        want = model(IDS, attention_mask=MASK).logits[1:]
        parts = [(0, 4), (4, 7), (7, 8), (8, 9)]
        got = [
            model(IDS[:, a:b], attention_mask=MASK[:, :b], past_key_values=cache).logits[1:]
            for a, b in parts
        ]
    torch.testing.assert_close(torch.cat(got, 1), want)
    assert cache.layers[0].keys.shape[2] == 12


@pytest.mark.parametrize("cls", ["Gemma3", "Cohere2"])
def test_a_static_cache_of_layers_with_windows(cls):
    model = use(family(cls, sliding_window=5), "alibi")
    same(model, {"cache_implementation": "static"}, {"use_cache": False})


def test_a_quantised_cache_holds_what_the_models_own_would():
    """In 8 bits: with the model's own rotation the logits are those without an encoding."""
    found = []
    for model in (build("llama").float(), use(build("llama").float(), "rope")):
        cache = QuantizedCache("fp8", model.config)
        with torch.no_grad():
            steps = [model(IDS[:, :6], past_key_values=cache).logits]
            steps += [model(IDS[:, i : i + 1], past_key_values=cache).logits for i in (6, 7, 8)]
            cache.reorder_cache(torch.tensor([1, 1, 0]))
            steps += [model(IDS[:, :1], past_key_values=cache).logits]
        found.append(torch.cat(steps, 1))
    torch.testing.assert_close(found[1], found[0], atol=1e-5, rtol=0)
    with torch.no_grad():
        assert (found[0][:, :9] - model(IDS).logits).abs().max() > 1e-3  # it is quantised


def test_an_offloaded_cache_leaves_the_device_when_all_keys_are_in_it(monkeypatch):
    class Stream:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def wait_stream(self, other):
            pass

    model, cache, sizes = use(build("llama"), "alibi"), DynamicCache(), []
    cache.offloading, cache.only_non_sliding, cache.prefetch_stream = True, True, Stream()
    monkeypatch.setattr(torch.cuda, "default_stream", lambda device: Stream())
    offload = DynamicLayer.offload
    monkeypatch.setattr(
        DynamicLayer, "offload", lambda x: sizes.append(x.keys.shape[2]) or offload(x)
    )
    with torch.no_grad():
        got = [model(IDS[:, :7], past_key_values=cache).logits]
        got += [model(IDS[:, i : i + 1], past_key_values=cache).logits for i in (7, 8)]
        torch.testing.assert_close(torch.cat(got, 1), model(IDS).logits)
    assert sizes == [7, 7, 8, 8, 9, 9]


@pytest.mark.parametrize("text", CHANGING)
def test_what_changes_earlier_keys_decodes_with_a_cache_as_without(text):
    """Beyond the trained length of 8, from where the length is read."""
    model = use(build("llama", max_position_embeddings=8), text, length=None if ":" in text else 17)
    encoding = model.base_model.encoding
    if encoding.stochastic:
        model = use(model, text.replace("randomized", "pose"))
    same(model, {"use_cache": True}, {"use_cache": False})
    use(model, text.replace("randomized", "pose"))  # no length is planned
    same(model, {"use_cache": True}, {"use_cache": False})
    a, b = (generated(model, use_cache=on) for on in (True, False))  # with beams
    torch.testing.assert_close(a.sequences_scores, b.sequences_scores)
    with torch.no_grad():
        first = model(IDS[:, :7], attention_mask=MASK[:, :7], use_cache=True)
        assert first.logits.shape[1] == 7
        first.past_key_values.crop(-2)
        told = {"attention_mask": MASK, "past_key_values": first.past_key_values}
        later = model(IDS[:, 5:], **told, output_hidden_states=True)
        want = model(IDS, attention_mask=MASK, output_hidden_states=True)
    torch.testing.assert_close(later.logits, want.logits[:, 5:])
    for x, y in zip(later.hidden_states, want.hidden_states, strict=True):
        torch.testing.assert_close(x, y[:, 5:])
