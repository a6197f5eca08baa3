"""Models of transformers with an encoding in peft and in torch's FSDP2."""

import copy

import pytest
import torch
import torch.distributed as dist
from torch import multiprocessing
from torch.distributed.fsdp import fully_shard

pytest.importorskip("transformers", minversion="5.20")
from transformers import LlamaConfig, LlamaForCausalLM

from pezoo.adapters.transformers import use
from pezoo.functional import encodings_in, parameter_groups

SIZES = {
    "vocab_size": 31, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "bos_token_id": None, "eos_token_id": None,
}  # fmt: skip
PRISM = "prism_2025(cursors=1,d_pe=8,hidden=6)"
IDS = torch.randint(2, 31, (3, 9), generator=torch.Generator().manual_seed(3))


def build(text):
    torch.manual_seed(0)
    return use(LlamaForCausalLM(LlamaConfig(**SIZES)), text)


def trained(model, steps=10):
    optimiser = torch.optim.AdamW(parameter_groups(model.train()), lr=1e-2)
    for _ in range(steps):
        model(input_ids=IDS, labels=IDS).loss.backward()
        optimiser.step()
        optimiser.zero_grad()
    return model.eval()


@pytest.mark.parametrize("saved", [["encoding"], None])
@pytest.mark.parametrize("text", ["alibi", "fox", PRISM])
def test_lora_is_trained_saved_and_loaded(text, saved, tmp_path):
    """The encoding too, where modules_to_save names it; else it stays as it is."""
    peft = pytest.importorskip("peft")
    lora = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], modules_to_save=saved)
    model = trained(peft.get_peft_model(build(text), lora))
    want = model(input_ids=IDS).logits
    model.save_pretrained(tmp_path)
    again = peft.PeftModel.from_pretrained(build(text), tmp_path).eval()
    for name, x in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], x), name
    torch.testing.assert_close(again(input_ids=IDS).logits, want, atol=1e-6, rtol=0)
    own = [*encodings_in(model)[-1].parameters()]
    before = [*encodings_in(build(text))[0].parameters()]
    changed = any(not torch.equal(*pair) for pair in zip(own, before, strict=True))
    assert changed == bool(saved and own)
    with model.disable_adapter():
        first = build(text).eval()(IDS).logits
        torch.testing.assert_close(model(input_ids=IDS).logits, first, atol=1e-6, rtol=0)
    merged = model.merge_and_unload()
    torch.testing.assert_close(merged(input_ids=IDS).logits, want, atol=1e-5, rtol=0)


def test_an_encoding_that_reads_the_keys_weight_gets_that_of_lora():
    peft = pytest.importorskip("peft")
    lora = peft.LoraConfig(r=4, target_modules=["k_proj"])
    model = trained(peft.get_peft_model(build("lbpe"), lora))
    with torch.no_grad():
        want = model(input_ids=IDS).logits
        with model.disable_adapter():
            first = build("lbpe").eval()(IDS).logits
            torch.testing.assert_close(model(input_ids=IDS).logits, first, atol=1e-6, rtol=0)
        got = model.merge_and_unload()(input_ids=IDS).logits
    torch.testing.assert_close(got, want, atol=1e-5, rtol=0)


def test_a_wrapped_model_is_refused():
    peft = pytest.importorskip("peft")
    model = peft.get_peft_model(build("rope"), peft.LoraConfig(target_modules=["q_proj"]))
    with pytest.raises(ValueError, match="got a PeftModel: call use before"):
        use(model, "alibi")


def process(rank, folder):
    torch.set_num_threads(1)
    store = dist.FileStore(f"{folder}/store", 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    for text in ("alibi", "fox", PRISM):
        model, twin = build(text), copy.deepcopy(build(text))
        for layer in model.model.layers:
            fully_shard(layer)
        fully_shard(model)
        for one in (model, twin):
            one.train()(input_ids=IDS, labels=IDS).loss.backward()
        for a, b in zip(model.parameters(), twin.parameters(), strict=True):
            if b.grad is not None:
                torch.testing.assert_close(a.grad.full_tensor(), b.grad, msg=text)
    dist.destroy_process_group()


@pytest.mark.slow
def test_fsdp2_trains_as_one_process(tmp_path):
    multiprocessing.start_processes(process, (str(tmp_path),), nprocs=2, start_method="spawn")
