"""The model of docs/use-in-your-model.md against the same model without pezoo."""

import re
from pathlib import Path
from types import SimpleNamespace

import torch

PAGE = Path(__file__).parents[2] / "docs/use-in-your-model.md"
MARK = re.compile(r"  # (\d)$")
PLAIN = {  # the lines of the model without pezoo, by mark
    "2": "def forward(self, x, past):",
    "4": "y = F.scaled_dot_product_attention(q, k, v, is_causal=past is None)",
    "5": "self.wpe = nn.Embedding(config.block_size, config.n_embd)",
    "7": "x = x + self.wpe(pos[:, -n:])",
    "8": "x, kv[i] = block(x, kv.get(i))",
}


def model_of_page():
    (block,) = re.findall(r"```python\n([^`]*class GPT[^`]*)```", PAGE.read_text("utf-8"))
    return block.splitlines()


def without_pezoo(line):
    mark = MARK.search(line)
    indent = " " * (len(line) - len(line.lstrip()))
    return [line] if mark is None else [indent + PLAIN[mark[1]]] if mark[1] in PLAIN else []


def test_a_model_takes_an_encoding_with_eight_changed_lines():
    lines = model_of_page()
    assert len(lines) <= 65
    assert sum(MARK.search(line) is not None for line in lines) <= 8
    plain = "\n".join(new for line in lines for new in without_pezoo(line))
    assert not re.search(r"pezoo|\bpe\b|ctx|[mM]emo|attend", plain)
    space = {}
    exec(plain, space)
    config = SimpleNamespace(vocab_size=64, n_embd=32, n_head=4, n_layer=2, block_size=16)
    model, ids, kv = space["GPT"](config).eval(), torch.randint(64, (2, 10)), {}
    with torch.no_grad():
        parts = [model(part, kv) for part in (ids[:, :6], *ids[:, 6:].split(1, 1))]
        torch.testing.assert_close(torch.cat(parts, 1), model(ids), atol=1e-5, rtol=1e-5)
    assert model.generate(ids[:, :2], 8).shape == (2, 10)
