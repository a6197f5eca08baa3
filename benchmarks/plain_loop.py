"""Tokens per second of training on text, beside a plain loop in the style of nanoGPT.

    python benchmarks/plain_loop.py --pe learned,rope

Both train four layers of width 128 on the same number of bytes a step, on one thread, in turns.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

import click
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from harness.perf.timing import clock, interleave, ratio
from harness.settings.protocol import load_protocol, resolve
from harness.training.trainer import start
from pezoo.spec import parse_list

LAYERS, WIDTH, HEADS, VOCAB, BATCH, LENGTH = 4, 128, 4, 258, 16, 128


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.c_attn, self.c_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.c_fc, self.c_out = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        b, t, _ = x.shape
        q, k, v = (
            part.view(b, t, HEADS, -1).transpose(1, 2)
            for part in self.c_attn(self.ln_1(x)).chunk(3, -1)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(b, t, WIDTH))
        return x + self.c_out(F.gelu(self.c_fc(self.ln_2(x))))


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCAB, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.h = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.ln_f, self.lm_head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCAB, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        return self.lm_head(self.ln_f(self.h(x)))


def plain() -> Callable[[], None]:
    """Return a step of the plain loop: draw, forward, backward, clip, AdamW."""
    model, text = GPT(), torch.randint(256, (1_000_000,))
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.98))

    def step() -> None:
        at = torch.randint(len(text) - LENGTH, (BATCH,))
        rows = torch.stack([text[i : i + LENGTH] for i in at.tolist()])
        loss = F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()

    return step


@click.command()
@click.option("--pe", default="learned,rope", show_default=True)
@click.option("--rounds", type=click.IntRange(min=1), default=30, show_default=True)
def main(pe: str, rounds: int) -> None:
    """Print tokens per second, and the median over rounds of those over the plain loop's."""
    torch.set_num_threads(1)
    protocol = load_protocol("text")
    steps: dict[str, Callable[[], object]] = {"plain loop": plain()}
    for one in parse_list(pe):
        steps[str(one)] = start(resolve(protocol, "text", one, 0, "cpu", "auto")).advance
    turns = {
        name: lambda step=step: {"step": clock(step, "cpu")[0]} for name, step in steps.items()
    }
    taken = interleave(turns, rounds, 3)
    plainly = taken["plain loop"]["step"]
    for name, own in taken.items():
        speed, faster = BATCH * LENGTH / median(own["step"]), ratio(plainly, own["step"])
        click.echo(f"{name:16} {speed:9,.0f} tokens/s {faster:6.2f}")


if __name__ == "__main__":
    main()
