"""Training by Lightning, in bfloat16 and with FSDP2: `python examples/with_lightning.py alibi`.

It runs as one process on a CPU; on GPUs, leave out accelerator and devices.
"""

import sys

import lightning as L
import torch
from lightning.pytorch.strategies import ModelParallelStrategy
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader
from transformers import LlamaConfig, LlamaForCausalLM

from pezoo.adapters.transformers import use
from pezoo.functional import encodings_in, parameter_groups

(text,) = sys.argv[1:] or ["fox"]


class Counting(L.LightningModule):
    """A small Llama with an encoding."""

    def __init__(self):
        super().__init__()
        self.model = None

    def configure_model(self):
        if self.model is None:  # Lightning calls it several times
            sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
            heads = {"num_attention_heads": 4, "bos_token_id": None, "eos_token_id": None}
            model = LlamaForCausalLM(LlamaConfig(vocab_size=16, **sizes, **heads))
            self.model = use(model, text).train()
            for layer in self.model.model.layers:
                fully_shard(layer)
            fully_shard(self.model)  # and not the encoding, which all layers share

    def training_step(self, batch, index):
        self.model.base_model.progress = self.global_step / self.trainer.max_steps
        loss = self.model(input_ids=batch, labels=batch).loss
        for encoding in encodings_in(self.model):
            penalty = encoding.penalty()  # None for most
            loss = loss if penalty is None else loss + penalty
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(parameter_groups(self.model), lr=1e-2)


if __name__ == "__main__":
    L.seed_everything(0, verbose=False)
    ids = (torch.arange(16)[:, None] + torch.arange(17)) % 16  # texts that count up
    trainer = L.Trainer(
        accelerator="cpu",
        devices=1,
        strategy=ModelParallelStrategy(),
        precision="bf16-true",
        max_steps=40,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    module = Counting()
    trainer.fit(module, DataLoader(ids.repeat(8, 1), batch_size=16, shuffle=True))
    kind = next(module.parameters()).dtype
    print(f"{text}: loss {trainer.callback_metrics['loss']:.2f} in {kind}")
