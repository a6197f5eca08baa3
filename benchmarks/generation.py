"""Tokens per second of greedy decoding under a sliding window, with a cache and without.

    python benchmarks/generation.py --pe hard_alibi --window 500 --stride 20 --tokens 700

Both write the same text, which is checked. Without a cache every token is one pass over the tokens
in the window. With one, a pass over the window comes where it moves, and a pass over a single token
otherwise; above the first layer, keys have seen those that the window drops.
"""

from __future__ import annotations

import time

import click
import torch
from torch import Tensor

from experiment.config import Model
from harness.data.sequences import Sequences
from harness.model.transformer import Transformer, shape_of
from harness.training.predict import Window, decode
from pezoo.registry import make


@torch.no_grad()
def uncached(model: Transformer, batch: Sequences, window: Window) -> Tensor:
    """(B, T) what `decode` writes, by a whole pass for every token."""
    ids, written = batch.inputs.clone(), batch.labels.clone()
    for token in range(batch.prompt, ids.shape[1] + 1):
        start = window.start(token)
        text = ids[:, start:token]
        own = model(text, batch.pos[:, : text.shape[1]], last=1)[:, -1].argmax(-1)
        written[:, token - 1] = own
        if token < ids.shape[1]:
            ids[:, token] = own
    return written


@torch.no_grad()
def cached(model: Transformer, batch: Sequences, window: Window) -> Tensor:
    return decode(model, batch, 1, torch.Generator(), window=window)


@click.command()
@click.option("--pe", default="hard_alibi", show_default=True)
@click.option("--layers", default=4, show_default=True)
@click.option("--heads", default=8, show_default=True)
@click.option("--width", default=128, show_default=True)
@click.option("--window", default=500, show_default=True)
@click.option("--stride", default=20, show_default=True)
@click.option("--batch", default=8, show_default=True)
@click.option("--tokens", default=700, show_default=True)
@click.option("--turns", default=1, show_default=True)
def main(
    pe: str, layers: int, heads: int, width: int, window: int, stride: int,
    batch: int, tokens: int, turns: int,
) -> None:  # fmt: skip
    """Both in turns in this process, by the processor's time."""
    torch.set_num_threads(1)
    sizes = Model(layers=layers, heads=heads, width=width, vocab=64, residual="parallel")
    model = Transformer(sizes, make(pe, shape_of(sizes, window)), seed=0).double().eval()
    ids = torch.randint(64, (batch, tokens + 1), generator=torch.Generator().manual_seed(0))
    prompt, answer = 8, torch.ones(batch, tokens, dtype=torch.bool)
    answer[:, : prompt - 1] = False
    text = Sequences(ids[:, :-1], ids[:, 1:], torch.arange(tokens)[None], answer, prompt, answer)
    rule = Window(window, stride)
    seconds = {"cached": 0.0, "uncached": 0.0}
    for _ in range(turns):
        found = []
        for name, write in (("cached", cached), ("uncached", uncached)):
            began = time.process_time()
            found.append(write(model, text, rule))
            seconds[name] += time.process_time() - began
        assert torch.equal(*found), "the texts differ"
    count = turns * batch * (tokens - prompt + 1)
    for name, took in seconds.items():
        click.echo(f"{name:9} {count / took:8.0f} tokens per second of the processor")
    click.echo(f"ratio     {seconds['uncached'] / seconds['cached']:8.1f}")


if __name__ == "__main__":
    main()
