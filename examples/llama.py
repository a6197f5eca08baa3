"""A Llama of transformers with another encoding: `python examples/llama.py alibi`.

It is trained by Trainer, generates with a cache and padding, and is saved and loaded.
"""

import sys
import tempfile

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

from pezoo.adapters.transformers import EncodingTrainer, load, use

torch.manual_seed(0)
(text,) = sys.argv[1:] or ["fox"]

# A small model with random weights; `from_pretrained` gives a trained one, which needs some tuning.
model = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=16,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        bos_token_id=None,
        eos_token_id=None,
    )
)
use(model, text)  # from now on model.base_model.encoding


class MyTrainer(EncodingTrainer, Trainer):
    """Trainer alone knows neither the encoding's learning rates nor its penalty."""


def counting(start):
    ids = (start + torch.arange(17)) % 16
    return {"input_ids": ids, "labels": ids}


with tempfile.TemporaryDirectory() as folder:
    settings = TrainingArguments(
        output_dir=folder,
        max_steps=30,
        per_device_train_batch_size=16,
        learning_rate=1e-2,
        logging_strategy="no",
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = MyTrainer(model, settings, train_dataset=[counting(i) for i in range(16)])
    print(f"{text}: mean loss {trainer.train().training_loss:.2f}")

    # Texts of different lengths: padding on the left, and the mask that says so.
    model.eval()
    ids, mask = torch.tensor([[0, 0, 7], [13, 14, 15]]), torch.tensor([[0, 0, 1], [1, 1, 1]])
    options = {"attention_mask": mask, "max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
    new, plain = (model.generate(ids, use_cache=on, **options) for on in (True, False))
    print("after 7:", new[0, 3:].tolist())
    print("after 13, 14, 15:", new[1, 3:].tolist())
    print("the same without the cache:", torch.equal(new, plain))

    model.save_pretrained(folder)
    again = load(folder)  # not from_pretrained, which knows no encodings
    with torch.no_grad():
        same = torch.equal(again(ids).logits, model(ids).logits)
    print("the same after loading:", same)
