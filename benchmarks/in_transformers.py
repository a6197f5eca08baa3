"""Time of a Llama of transformers with an encoding, relative to the model's own RoPE.

    python benchmarks/in_transformers.py
    python benchmarks/in_transformers.py --pe rope,prism --dtype float32 --width 512

The models take turns in one process, on one thread; a ratio compares CPU times of one round.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import click
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from pezoo.adapters.transformers import use
from pezoo.spec import parse_list

OWN = "own"  # the model as transformers builds it


def build(encoding: str, attention: str, dtype: str, layers: int, width: int) -> Any:
    """Return a Llama with heads of 64 columns."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=256, hidden_size=width, intermediate_size=width * 8 // 3,
        num_hidden_layers=layers, num_attention_heads=width // 64, attn_implementation=attention,
        max_position_embeddings=512, eos_token_id=None, dtype=dtype,
    )  # fmt: skip
    model = LlamaForCausalLM(config).to(getattr(torch, dtype))
    return model if encoding == OWN else use(model, encoding)


def train(model: Any, ids: torch.Tensor) -> float:
    """Return the seconds of a forward and a backward pass over ids (B, T)."""
    model.train()
    began = time.process_time()
    model(ids, labels=ids).loss.backward()
    taken = time.process_time() - began
    model.zero_grad()
    return taken


@torch.no_grad()
def decode(model: Any, ids: torch.Tensor) -> float:
    """Return the seconds of a token after 64 in the cache, of one row of ids (B, T)."""
    cache = model.eval()(ids[:1, :64], use_cache=True).past_key_values
    began = time.process_time()
    for i in range(64, 96):
        model(ids[:1, i : i + 1], past_key_values=cache, use_cache=True)
    return (time.process_time() - began) / 32


def ratios(
    step: Callable[[Any, torch.Tensor], float], models: dict[str, Any], rounds: int
) -> dict[str, list[float]]:
    """Return each model's time in each round, divided by the model's own."""
    ids = torch.randint(256, (8, 128), generator=torch.Generator().manual_seed(0))
    found: dict[str, list[float]] = {name: [] for name in models}
    for number in range(2 + rounds):  # two to warm up
        taken = {name: step(model, ids) for name, model in models.items()}
        for name, seconds in taken.items():
            found[name] += [seconds / taken[OWN]] if number > 1 else []
    return found


@click.command()
@click.option("--pe", default="rope,nope,alibi", show_default=True)
@click.option("--dtype", default="bfloat16", show_default=True)
@click.option("--layers", default=4, show_default=True)
@click.option("--width", default=256, show_default=True)
@click.option("--rounds", type=click.IntRange(min=2), default=30, show_default=True)
def main(pe: str, dtype: str, layers: int, width: int, rounds: int) -> None:
    """Median ratios to the model's own RoPE, with quartiles, as a table."""
    torch.set_num_threads(1)
    names = [OWN, *map(str, parse_list(pe))]
    click.echo("| step | own attention | " + " | ".join(names[1:]) + " |")
    click.echo("|---" * (len(names) + 1) + "|")
    for attention in ("sdpa", "eager"):
        models = {name: build(name, attention, dtype, layers, width) for name in names}
        for step in (train, decode):
            found = ratios(step, models, rounds)
            quartiles = (statistics.quantiles(found[name], n=4) for name in names[1:])
            cells = (f"{q[1]:.2f} ({q[0]:.2f}-{q[2]:.2f})" for q in quartiles)
            click.echo(f"| {step.__name__} | {attention} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
