"""A model like nanoGPT with any encoding: `python examples/nanogpt.py "prism(cursors=2,d_pe=16)"`.

The numbered lines differ from a model with a table of positions, which 5 and 7 replace.
"""

import sys
from types import SimpleNamespace

import torch
from torch import nn
from torch.nn import functional as F

from pezoo import Context, Memo, attend, make  # 1


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        width, self.n_head = config.n_embd, config.n_head
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.c_out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, past, pe, ctx):  # 2
        qkv = self.c_attn(self.ln_1(x)).chunk(3, -1)
        q, k, v = (z.unflatten(-1, (self.n_head, -1)).transpose(1, 2) for z in qkv)
        q, k = pe.transform(q, k, ctx)  # 3
        if past is not None:  # keys after `transform`
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        y = attend(pe, q, k, v, ctx)  # 4
        x = x + self.c_proj(y.transpose(1, 2).flatten(2))
        return x + self.c_out(F.gelu(self.c_fc(self.ln_2(x)))), (k, v)


class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.pe = config.pe  # 5
        self.h = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.ln_f = nn.LayerNorm(config.n_embd)
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)

    def forward(self, idx, kv=None):  # idx: the new tokens; kv: a dictionary, which is the cache
        kv, n = {} if kv is None else kv, idx.shape[1]
        kv["length"] = kv.get("length", 0) + n
        pos, x = torch.arange(kv["length"], device=idx.device)[None], self.wte(idx)
        ctx = self.pe.prepare(Context(pos, x=x, n_new=n, memo=kv.setdefault("memo", Memo())))  # 6
        x = self.pe.embed(x, ctx)  # 7
        for i, block in enumerate(self.h):
            x, kv[i] = block(x, kv.get(i), self.pe, ctx.at(i, x))  # 8
        return self.lm_head(self.ln_f(x))

    @torch.no_grad()
    def generate(self, idx, tokens, cached=True):
        kv, last = {}, idx
        for _ in range(tokens):
            last = (self(last, kv) if cached else self(idx))[:, -1:].argmax(-1)
            idx = torch.cat([idx, last], 1)
        return idx


if __name__ == "__main__":
    from pezoo.functional import parameter_groups

    torch.manual_seed(0)
    pe = make(*(sys.argv[1:] or ["rope"]), d_model=32, n_heads=4, n_layers=2, train_len=32)
    model = GPT(SimpleNamespace(vocab_size=16, n_embd=32, n_head=4, n_layer=2, pe=pe))
    optimiser = torch.optim.AdamW(parameter_groups(model), lr=1e-2)  # some have rates of their own
    for _ in range(40):
        ids = (torch.randint(16, (16, 1)) + torch.arange(17)) % 16  # count up from anywhere
        loss = F.cross_entropy(model(ids[:, :-1]).mT, ids[:, 1:])
        penalty = pe.penalty()  # None for most encodings
        (loss if penalty is None else loss + penalty).backward()
        optimiser.step()
        optimiser.zero_grad()
    model.eval()  # some encodings draw noise while training
    new, plain = (model.generate(torch.tensor([[7, 8]]), 12, cached=on) for on in (True, False))
    print(f"loss {loss:.2f}; 7 and 8 go on as {new[0, 2:].tolist()}")
    print("the same without the cache:", torch.equal(new, plain))
