"""LoRA on a model with another encoding: `python examples/with_peft.py fox`.

`use` comes first; the adapter then holds the encoding's weights too.
"""

import sys
import tempfile

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

from pezoo.adapters.transformers import use
from pezoo.functional import encodings_in, parameter_groups

(text,) = sys.argv[1:] or ["fox"]


def pretrained():
    """Stand in for from_pretrained: the same weights every time."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "bos_token_id": None, "eos_token_id": None}
    return LlamaForCausalLM(LlamaConfig(vocab_size=16, **sizes, **heads))


# modules_to_save: the encoding is trained and saved. Without it, it stays as it is.
settings = LoraConfig(r=8, target_modules=["q_proj", "v_proj"], modules_to_save=["encoding"])
model = get_peft_model(use(pretrained(), text), settings)

optimiser = torch.optim.AdamW(parameter_groups(model), lr=1e-2)
ids = (torch.arange(16)[:, None] + torch.arange(17)) % 16  # texts that count up
for _ in range(30):
    loss = model(input_ids=ids, labels=ids).loss
    for encoding in encodings_in(model):
        penalty = encoding.penalty()  # None for most
        loss = loss if penalty is None else loss + penalty
    loss.backward()
    optimiser.step()
    optimiser.zero_grad()
print(f"{text}: loss {loss:.2f}")

model.eval()
with tempfile.TemporaryDirectory() as folder, torch.no_grad():
    model.save_pretrained(folder)  # LoRA and the encoding, not the model
    again = PeftModel.from_pretrained(use(pretrained(), text), folder).eval()
    weights = again.state_dict()
    same = all(torch.equal(weights[name], x) for name, x in model.state_dict().items())
    apart = (again(input_ids=ids).logits - model(input_ids=ids).logits).abs().max()
print(f"the same after loading: {same}, logits to {apart:.0e}")
