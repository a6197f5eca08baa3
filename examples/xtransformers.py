"""Any encoding in x-transformers, by hooks: `python examples/xtransformers.py alibi`.

x-transformers caches keys without positions, so `Attend` keeps its own, with positions. Beam search
does not reorder those: it needs `cache_kv=False`.
"""

import sys
from dataclasses import replace

import torch
from torch import nn
from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper
from x_transformers.attend import Intermediates
from x_transformers.x_transformers import Attention

from pezoo import Context, Memo, attend, make


class Attend(nn.Module):
    def __init__(self, shared, layer, w_key):
        super().__init__()
        self.shared, self.layer, self.w_key = shared, layer, w_key

    def forward(self, q, k, v, **_):  # q (B, H, T, K) of new tokens; k, v (B, G, S, K) of all
        shared, layer, new = self.shared, self.layer, q.shape[2]
        ctx = shared["ctx"].at(layer, shared["x", layer], self.w_key())
        q, k = shared["encoding"].transform(q, k[:, :, -new:], ctx)
        if new < v.shape[2]:
            k = torch.cat([shared["keys", layer], k], 2)
        shared["keys", layer] = k
        return attend(shared["encoding"], q, k, v, ctx), Intermediates()


def put(encoding, model):
    model.encoding, shared = encoding, {"encoding": encoding}

    def begin(model, args, options):  # ids of all tokens so far, also with a cache
        ids, cache, start = args[0], options.get("cache"), options.get("seq_start_pos")
        pos = torch.arange(ids.shape[1], device=ids.device)[None]
        if start is not None:  # padding on the left has position -1
            pos = (pos - start[:, None]).clamp(min=-1)
        old = 0 if cache is None else cache.cache_length
        memo = shared["ctx"].memo if old else Memo()
        shared["ctx"] = Context(pos, ids=ids, n_new=ids.shape[1] - old, memo=memo)

    def embed(module, args, x):
        new = shared["ctx"].new
        shared["ctx"] = encoding.prepare(replace(shared["ctx"], x=x[:, -new:]))
        return torch.cat([x[:, :-new], encoding.embed(x[:, -new:], shared["ctx"])], 1)

    model.register_forward_pre_hook(begin, with_kwargs=True)
    model.token_emb.register_forward_hook(embed)
    blocks = [one for one in model.attn_layers.layers if isinstance(one[1], Attention)]
    for layer, (norms, block, _) in enumerate(blocks):
        norms[0].register_forward_pre_hook(
            lambda _, args, layer=layer: shared.update({("x", layer): args[0]})
        )
        block.attend = Attend(shared, layer, lambda block=block: block.to_k.weight)
    return model


if __name__ == "__main__":
    torch.manual_seed(0)
    (text,) = sys.argv[1:] or ["fox"]
    layers = Decoder(dim=32, depth=2, heads=4, attn_dim_head=8)
    sizes = {"num_tokens": 16, "max_seq_len": 64, "use_abs_pos_emb": False}
    model = TransformerWrapper(attn_layers=layers, **sizes)
    pe = make(text, d_model=32, n_heads=4, n_layers=2, train_len=32)
    wrapped = AutoregressiveWrapper(put(pe, model))
    optimiser = torch.optim.AdamW(wrapped.parameters(), lr=1e-2)
    for _ in range(40):
        wrapped((torch.randint(16, (16, 1)) + torch.arange(17)) % 16).backward()
        optimiser.step()
        optimiser.zero_grad()
    ids, lens = torch.tensor([[7, 0, 0], [13, 14, 15]]), torch.tensor([1, 3])
    options = {"prompt_lens": lens, "temperature": 0.0}
    new, plain = (wrapped.generate(ids, 8, cache_kv=on, **options) for on in (True, False))
    print(f"{text}: after 7: {new[0].tolist()}; after 13, 14, 15: {new[1].tolist()}")
    print("the same without the cache:", torch.equal(new, plain))
