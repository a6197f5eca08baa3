"""A model as a user would write it: one encoding for all its layers."""

from dataclasses import replace
from functools import partial

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import pezoo
from pezoo.adapters import attend
from pezoo.base import Pass, Shape
from pezoo.testing.probe import task_prf

SHAPE = Shape(d_model=8, n_heads=2, d_head=4, n_layers=2, train_len=6)
SMALL = "cursors=1,d_pe=4,hidden=5"


class Block(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer, self.qkv, self.out = layer, nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x, encoding, ctx):
        ctx = ctx.at(self.layer, x, self.qkv.weight[8:16])
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4).unbind()
        y = attend(encoding, *encoding.transform(q, k, ctx), v, ctx)
        return x + self.out(y.transpose(1, 2).flatten(2))


class Model(nn.Module):
    """x (B, T, D) -> (B, T, D). `checkpointed` blocks are computed again in the backward pass.

    `drawn` is set to what the encoding draws for the next pass; None lets `prepare` draw.
    """

    def __init__(self, text, checkpointed=False, layers=SHAPE.n_layers):
        super().__init__()
        torch.manual_seed(0)
        self.encoding = pezoo.make(text, replace(SHAPE, n_layers=layers))
        self.drawn, self.checkpointed = None, checkpointed
        self.blocks = nn.ModuleList(Block(i) for i in range(layers))

    def forward(self, x, pos):
        told = {"ids": pos.expand(len(x), -1), "slots": pos % 4, "task_prf": task_prf}
        ctx = Pass(pos, x=x, drawn=self.drawn, scale=torch.full((1,), 6), **told)
        ctx = self.encoding.prepare(ctx)
        x = self.encoding.embed(x, ctx)
        for block in self.blocks:
            run = partial(checkpoint, block, use_reentrant=False) if self.checkpointed else block
            x = run(x, self.encoding, ctx)
        return x


def inputs(rows=2, n=6, seed=0):
    """Embeddings (rows, n, D) and positions (1, n)."""
    x = torch.randn(rows, n, 8, generator=torch.Generator().manual_seed(seed))
    return x, torch.arange(n)[None]


def train(model, encoding, *batch):
    """Return the loss of a batch, with the encoding's penalty; gradients are in the model."""
    loss = model(*batch).square().mean()
    if (penalty := encoding.penalty()) is not None:
        loss = loss + penalty
    loss.backward()
    return loss.detach()


def gradients(model):
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
