"""The model of examples/nanogpt.py against the same model without pezoo."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import pezoo

EXAMPLE = Path(__file__).parents[2] / "examples/nanogpt.py"
MARK = re.compile(r"  # (\d)$")
PLAIN = {  # the lines of the model without pezoo, by mark
    "2": "def forward(self, x, past):",
    "4": "y = F.scaled_dot_product_attention(q, k, v, is_causal=past is None)",
    "5": "self.wpe = nn.Embedding(config.block_size, config.n_embd)",
    "7": "x = x + self.wpe(pos[:, -n:])",
    "8": "x, kv[i] = block(x, kv.get(i))",
}


def model_of_example():
    """Its lines: from the imports to the end of the class GPT."""
    text = EXAMPLE.read_text("utf-8").partition("\nimport sys\n")[2]
    return text.partition("\n\nif __name__")[0].splitlines()


def without_pezoo(line):
    mark = MARK.search(line)
    indent = " " * (len(line) - len(line.lstrip()))
    return [line] if mark is None else [indent + PLAIN[mark[1]]] if mark[1] in PLAIN else []


def model_of(lines, **fields):
    space = {}
    exec("\n".join(lines), space)
    config = SimpleNamespace(vocab_size=64, n_embd=32, n_head=4, n_layer=2, **fields)
    return space["GPT"](config).eval()


def check_decoding(model, chunks):
    ids, kv = torch.randint(64, (2, 10)), {}
    with torch.no_grad():
        parts = [model(part, kv) for part in ids.split(chunks, 1)]
        torch.testing.assert_close(torch.cat(parts, 1), model(ids), atol=1e-4, rtol=1e-4)
    new = model.generate(ids[:, :2], 8)
    assert torch.equal(new[:, -1], model(new[:, :-1])[:, -1].argmax(-1))


def test_a_model_takes_an_encoding_with_eight_changed_lines():
    lines = model_of_example()
    assert len(lines) <= 62
    assert sum(MARK.search(line) is not None for line in lines) <= 8
    plain = [new for line in lines for new in without_pezoo(line)]
    assert not re.search(r"pezoo|\bpe\b|ctx|[mM]emo|attend", "\n".join(plain))
    check_decoding(model_of(plain, block_size=16), [6, 1, 1, 1, 1])


@pytest.mark.parametrize("text", ["rope", "alibi", "t5", "prism(cursors=2,d_pe=16)", "geometric"])
def test_its_decoding_equals_the_full_pass(text):
    pe = pezoo.make(text, d_model=32, n_heads=4, n_layers=2, train_len=16)
    check_decoding(model_of(model_of_example(), pe=pe), [6, 1, 3])
