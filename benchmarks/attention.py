"""Time and memory of attention by each backend, against length; forward and backward.

    python benchmarks/attention.py --pe alibi,rope --lengths 1024,4096 --device cuda

`worst` is the largest difference from eager's output, over its largest entry.
"""

from __future__ import annotations

from statistics import median

import click
import torch
from torch import Tensor

from harness.perf.memory import peak_bytes
from harness.perf.timing import clock
from pezoo import Context, Encoding, Shape, attend, make
from pezoo.spec import parse_list

SHAPE = Shape(d_model=512, n_heads=8, d_head=64, n_layers=1, train_len=1024)
ROUNDS = 7


class Candidate:
    """An encoding with q, k, v (1, H, T, K) of its own, the same for every backend."""

    def __init__(self, text: str, length: int, device: str, dtype: torch.dtype) -> None:
        torch.manual_seed(0)
        self.encoding: Encoding = make(text, SHAPE).to(device)
        self.x = torch.randn(1, length, SHAPE.d_model, device=device, dtype=dtype)
        sizes = 3, 1, SHAPE.n_heads, length, SHAPE.d_head
        self.qkv = torch.randn(sizes, device=device, dtype=dtype, requires_grad=True)
        self.pos = torch.arange(length, device=device)[None]

    def forward(self, backend: str) -> Tensor:
        q, k, v = self.qkv.unbind()
        ctx = self.encoding.prepare(Context(pos=self.pos, x=self.x)).at(0, self.x)
        q, k = self.encoding.transform(q, k, ctx)
        return attend(self.encoding, q, k, v, ctx, None, backend)

    def step(self, backend: str) -> None:
        self.forward(backend).float().square().mean().backward()


def row(one: Candidate, backend: str, device: str) -> tuple[Tensor, float, float]:
    """Return the output, milliseconds of a step and MiB at its peak, after two to warm up."""
    out = one.forward(backend).detach().float()
    for _ in range(2):
        one.step(backend)
    seconds = [clock(lambda: one.step(backend), device)[0] for _ in range(ROUNDS)]
    return out, median(seconds) * 1e3, peak_bytes(lambda: one.step(backend), device) / 2**20


@click.command()
@click.option("--pe", default="nope,rope,alibi,t5,kerple,fire,prism", show_default=True)
@click.option("--lengths", default="1024,4096", show_default=True)
@click.option("--backends", default="eager,sdpa,flex", show_default=True)
@click.option("--dtype", default="bfloat16", show_default=True)
@click.option("--device", default="cpu", show_default=True)
def main(pe: str, lengths: str, backends: str, dtype: str, device: str) -> None:
    """Print a line for each length, encoding and backend."""
    for length in map(int, lengths.split(",")):
        for text in parse_list(pe):
            wanted: Tensor | None = None
            for backend in backends.split(","):
                try:
                    one = Candidate(str(text), length, device, getattr(torch, dtype))
                    out, ms, mib = row(one, backend, device)
                except (RuntimeError, ValueError) as error:
                    reason = str(error).partition("\n")[0][:90]
                    click.echo(f"{length:6} {text!s:10} {backend:6} cannot run: {reason}")
                    continue
                wanted = out if wanted is None else wanted
                worst = float((out - wanted).abs().max() / wanted.abs().max())
                line = f"{length:6} {text!s:10} {backend:6} {ms:9.2f} ms {mib:9.1f} MiB"
                click.echo(f"{line}  worst {worst:.1e}")


if __name__ == "__main__":
    main()
