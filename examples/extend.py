"""Read longer texts than a model was trained for: `python examples/extend.py rerope self_extend`.

`pezoo extend FOLDER` compares such ways on a trained model of yours (docs/extend-a-model.md).
"""

import sys

import torch
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM

from pezoo.adapters.transformers import use

LENGTHS = 32, 64, 256  # the model is trained on the first
WAYS = [
    "rope",  # its own rotation
    "rope(rope_parameters=yarn(factor=auto))",  # turns slower, by as much as the text needs
    "rerope",  # distances beyond a half of the training length count as that
    "window(sinks=4):rope",  # far tokens are not read, but the first four
]


def texts(rows, length):
    """Token i is one more than token i - 3."""
    start = torch.randint(16, (rows, 3))
    return (start.repeat(1, length)[:, :length] + torch.arange(length) // 3) % 16


torch.manual_seed(0)
model = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=16,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=LENGTHS[0],
    )
)
optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
for _ in range(120):
    ids = texts(16, LENGTHS[0])
    model(ids, labels=ids).loss.backward()
    optimiser.step()
    optimiser.zero_grad()
model.eval()

ids = texts(8, LENGTHS[-1])
print(f"{'nats at the end of':40}", *(f"{length:6}" for length in LENGTHS), "tokens")
for way in sys.argv[1:] or WAYS:
    use(model, way)  # again and again: the weights stay
    found = []
    for length in LENGTHS:
        with torch.no_grad():
            logits = model(ids[:, :length]).logits[:, -17:-1]
        found.append(cross_entropy(logits.flatten(0, 1), ids[:, length - 16 : length].flatten()))
    print(f"{way:40}", *(f"{loss:6.2f}" for loss in found))
