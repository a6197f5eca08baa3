"""A training loop with accelerate, in bfloat16: `python examples/with_accelerate.py alibi`.

By `accelerate launch examples/with_accelerate.py` it runs on several devices.
"""

import sys
import tempfile

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import LlamaConfig, LlamaForCausalLM

from pezoo.adapters.transformers import load, use
from pezoo.functional import encodings_in, parameter_groups

torch.manual_seed(0)
(text,) = sys.argv[1:] or ["fox"]
sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
heads = {"num_attention_heads": 4, "bos_token_id": None, "eos_token_id": None}
model = LlamaForCausalLM(LlamaConfig(vocab_size=16, **sizes, **heads)).bfloat16()
model = use(model, text)  # the encoding gets the model's dtype

accelerator = Accelerator()
optimiser = torch.optim.AdamW(parameter_groups(model), lr=1e-2)  # before `prepare`
ids = (torch.arange(16)[:, None] + torch.arange(17)) % 16  # texts that count up
data = DataLoader(ids.repeat(8, 1), batch_size=16, shuffle=True)
model, optimiser, data = accelerator.prepare(model, optimiser, data)

for epoch in range(5):
    accelerator.unwrap_model(model).base_model.progress = epoch / 5  # for those that read it
    for batch in data:
        loss = model(input_ids=batch, labels=batch).loss
        for encoding in encodings_in(model):
            penalty = encoding.penalty()  # None for most
            loss = loss if penalty is None else loss + penalty
        accelerator.backward(loss)
        optimiser.step()
        optimiser.zero_grad()
accelerator.print(f"{text}: loss {float(loss):.2f} in {next(model.parameters()).dtype}")

if accelerator.is_main_process:
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        own = accelerator.unwrap_model(model).eval()
        own.save_pretrained(folder)
        weights = load(folder, dtype=torch.bfloat16).to(accelerator.device).state_dict()
        same = all(torch.equal(weights[name], x) for name, x in own.state_dict().items())
        print("the same after loading:", same)
accelerator.end_training()
