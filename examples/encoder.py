"""A BERT with another encoding: `python examples/encoder.py rope`.

It then reads longer texts than its table of positions holds.
"""

import sys

import torch
from transformers import BertConfig, BertForMaskedLM

from pezoo.adapters.transformers import use
from pezoo.functional import encodings_in, parameter_groups

MASK, LENGTHS = 16, (16, 64)  # the model is trained on the first
torch.manual_seed(0)
(text,) = sys.argv[1:] or ["rope"]

# One with trained weights, of `from_pretrained`, needs tuning too: here it is all of the training.
model = BertForMaskedLM(
    BertConfig(
        vocab_size=17,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=LENGTHS[0],  # rows of the table, which `use` takes out
        initializer_range=0.2,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
)
use(model, text)


def batch(rows, length):
    """Texts that count up; one token in ten is hidden, and a neighbour on either side tells it."""
    ids = (torch.randint(16, (rows, 1)) + torch.arange(length)) % 16
    hidden = torch.rand(ids.shape) < 0.1
    inputs = {"input_ids": ids.masked_fill(hidden, MASK)}
    inputs["token_type_ids"] = torch.zeros_like(ids)  # BERT's own default is as long as its table
    return inputs, ids.masked_fill(~hidden, -100)  # -100: no loss


optimiser = torch.optim.AdamW(parameter_groups(model), lr=3e-3)
for _ in range(200):
    inputs, labels = batch(16, LENGTHS[0])
    loss = model(**inputs, labels=labels).loss
    for encoding in encodings_in(model):
        penalty = encoding.penalty()  # None for most
        loss = loss if penalty is None else loss + penalty
    loss.backward()
    optimiser.step()
    optimiser.zero_grad()

model.eval()
for length in LENGTHS:
    inputs, labels = batch(16, length)
    with torch.no_grad():
        guess = model(**inputs).logits.argmax(-1)
    right = (guess == labels)[labels >= 0].float().mean()
    print(f"{text}: {right:.0%} of the hidden tokens right in texts of {length}")
