"""The back ends of a kernel side by side, against its reference and the machine's floor.

    python benchmarks/kernels.py histogram --shape batch=64,cursors=32,tokens=82

docs/perf.md says what each column means.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import click
import torch
from ceilings import ceilings
from torch import Tensor

from harness.data.seeds import generator
from harness.perf.report import Report, machine
from harness.perf.timing import Turn, clock, columns, interleave
from harness.runs.cost import keep_heap
from pezoo.kernels.backends import backends
from pezoo.kernels.histogram import histogram_scan, steps_of
from pezoo.kernels.spectral import spectral_scan
from pezoo.spec import unknown

BASELINE = "reference"
PHASES = ("forward", "both")
WARMUP = 3

Sizes = dict[str, int]
Inputs = dict[str, Tensor]
Work = tuple[int, int]  # floating-point operations and bytes


@dataclass(frozen=True)
class Kernel:
    """Make inputs for a kernel, call it, and count its work; constants get no gradient.

    `cost` is the work of one forward and backward pass in float32 that holds nothing twice. Bytes
    are the least that must cross memory.
    """

    sizes: Sizes
    inputs: Callable[[Sizes, torch.Generator], Inputs]
    call: Callable[[Inputs, str], Tensor]
    cost: Callable[[Sizes], Work]
    backends: tuple[str, ...]
    constants: frozenset[str] = frozenset()


def _moves(sizes: Sizes, draws: torch.Generator) -> tuple[Tensor, Tensor]:
    """Pr(reset) (B, T, C), rare, and the chances of the steps (B, T, C, J)."""
    shape = sizes["batch"], sizes["tokens"], sizes["cursors"]
    reset = torch.sigmoid(torch.randn(shape, generator=draws) - 2)
    return reset, torch.randn(*shape, 2 * sizes["stride"] + 1, generator=draws).softmax(-1)


def _histogram_inputs(sizes: Sizes, draws: torch.Generator) -> Inputs:
    reset, moves = _moves(sizes, draws)
    gamma = 1 + torch.rand(sizes["cursors"], generator=draws)
    return {"reset": reset, "moves": moves, "gamma": gamma}


def _histogram_cost(sizes: Sizes) -> Work:
    """A histogram has 2 R t + 1 live bins after t tokens, R T (T + 1) + T over all steps.

    Per live bin 8 J + 18 for J = 2 R + 1 moves, with a logarithm or an exponential as one
    operation: forward 2J - 1 for the move and 8 to sharpen (eps, log, maximum, difference, gamma,
    exp, sum, quotient); backward 2J + 1 for the move, eps and log again, 2 for the mean, 2 for
    (g - mean) h, 2 for gamma's gradient, 2 for gamma / (h + eps), 1 for the mass, 1 to add the
    carried gradient, 2J for the gradients of the moves and 2J for the old bin's. The output
    (2 R T + 1 bins, zeros too) is written once and read once and its gradient read once; reset and
    moves are read twice and their gradients written once.
    """
    rows, t, stride = sizes["batch"] * sizes["cursors"], sizes["tokens"], sizes["stride"]
    live, j, bins = stride * t * (t + 1) + t, 2 * stride + 1, 2 * stride * t + 1
    return rows * live * (8 * j + 18), rows * t * 4 * (3 * bins + 3 * (1 + j))


def _spectral_inputs(sizes: Sizes, draws: torch.Generator) -> Inputs:
    reset, moves = _moves(sizes, draws)
    steps = torch.tensor(steps_of(sizes["stride"]), dtype=torch.float32)
    angles = steps[:, None] * torch.rand(sizes["frequencies"], generator=draws)
    return {"reset": reset, "moves": moves, "angles": angles}


def _spectral_cost(sizes: Sizes) -> Work:
    """Per token, cursor and frequency 12 J + 33 for J moves; a complex product is 6.

    Forward 4J for M, 3 for u = (1-r) phi + r, 6 for M u; backward 2 to add the carried gradient,
    4J + 3 to have M and u again, 6 for each of their gradients, 4J for the moves', 5 for the
    reset's, 2 to carry on. The output is written once and read once and its gradient read once;
    reset and moves are read twice, their gradients written once.
    """
    rows, f = sizes["batch"] * sizes["tokens"] * sizes["cursors"], sizes["frequencies"]
    j = 2 * sizes["stride"] + 1
    return rows * f * (12 * j + 33), rows * 4 * (3 * 2 * f + 3 * (1 + j))


_SIZES = {"batch": 64, "tokens": 22, "cursors": 32, "stride": 2}

KERNELS = {
    "histogram": Kernel(
        _SIZES,
        _histogram_inputs,
        lambda x, backend: histogram_scan(**x, backend=backend),
        _histogram_cost,
        tuple(backends("histogram")),
    ),
    "spectral": Kernel(
        _SIZES | {"frequencies": 32},
        _spectral_inputs,
        lambda x, backend: spectral_scan(**x, backend=backend),
        _spectral_cost,
        tuple(backends("spectral")),
        frozenset({"angles"}),
    ),
}


def parse_sizes(text: str, default: Sizes) -> Sizes:
    """The default sizes with those in a text like "batch=64,tokens=82". Errors: BadParameter."""
    sizes = dict(default)
    for item in filter(None, (part.strip() for part in text.split(","))):
        key, _, value = (part.strip() for part in item.partition("="))
        if key not in default:
            raise click.BadParameter(unknown("size", key, default))
        if not value.isdecimal() or int(value) < 1:
            raise click.BadParameter(f"{item!r}: expected a number from 1 on, such as {key}=8")
        sizes[key] = int(value)
    return sizes


class Candidate:
    """One back end on inputs of its own, equal for all back ends."""

    def __init__(self, kernel: Kernel, inputs: Inputs, backend: str) -> None:
        self.kernel, self.backend = kernel, backend
        self.inputs = {
            name: x.clone().requires_grad_(name not in kernel.constants)
            for name, x in inputs.items()
        }
        self.device = str(next(iter(inputs.values())).device)

    def run(self) -> Tensor:
        return self.kernel.call(self.inputs, self.backend)

    def turn(self, gradient: Tensor) -> dict[str, float]:
        """Seconds of a forward pass that records its graph, and of one with its backward pass."""
        forward, _ = clock(self.run, self.device)
        both, _ = clock(lambda: self.run().backward(gradient), self.device)
        for leaf in self.inputs.values():
            leaf.grad = None
        return dict(zip(PHASES, (forward, both), strict=True))


def measure(name: str, sizes: Sizes, rounds: int, device: str) -> Report:
    """One row per back end of a kernel."""
    kernel = KERNELS[name]
    keep_heap()  # freed memory, as in training
    draws = generator("perf", name)
    inputs = {key: x.to(device) for key, x in kernel.inputs(sizes, draws).items()}
    expected = Candidate(kernel, inputs, BASELINE).run().detach()
    gradient = torch.randn(expected.shape, generator=draws).to(device)
    rows: dict[str, dict[str, Any]] = {}
    turns: dict[str, Turn] = {}
    for backend in sorted(kernel.backends, key=lambda one: (one != BASELINE, one)):
        candidate = Candidate(kernel, inputs, backend)
        rows[backend] = _probe(candidate, gradient, expected)
        if rows[backend]["status"] == "ok":
            turns[backend] = partial(candidate.turn, gradient)
    limits, work = ceilings(device), kernel.cost(sizes)
    floor = limits.floor(*work)
    measured = interleave(turns, rounds, WARMUP)
    baseline = measured.get(BASELINE, {})  # none where the reference's memory does not suffice
    for backend, seconds in measured.items():
        for phase, taken in seconds.items():
            rows[backend] |= columns(phase, taken, baseline.get(phase))
        rows[backend]["x floor"] = statistics.median(seconds["both"]) / floor
    settings = {"kernel": name, **sizes, "rounds": rounds, "baseline": BASELINE}
    settings |= {"flops": work[0], "bytes": work[1], "floor_ms": floor * 1e3}
    settings |= {"gflops_limit": limits.flops / 1e9, "gbytes_limit": limits.bandwidth / 1e9}
    return Report("backend", PHASES, settings | machine(device), list(rows.values()))


def _probe(candidate: Candidate, gradient: Tensor, expected: Tensor) -> dict[str, Any]:
    """Run it, and compare its output with the reference's."""
    row: dict[str, Any] = {"backend": candidate.backend, "status": "ok", "note": None}
    try:
        output = candidate.run().detach()
        candidate.turn(gradient)
    except (ValueError, ImportError, RuntimeError) as error:
        return row | {"status": "cannot run", "note": f"{type(error).__name__}: {error}"}
    return row | {"difference": float((output - expected).abs().max())}


@click.command()
@click.argument("kernel", type=click.Choice(sorted(KERNELS)))
@click.option("--shape", default="", help="Sizes such as batch=64,cursors=32,tokens=82.")
@click.option("--repeats", type=click.IntRange(min=1), default=15, show_default=True)
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--device", default="cpu", show_default=True)
@click.option("--format", "form", default="table", show_default=True,
              type=click.Choice(["table", "json", "csv", "markdown"]))  # fmt: skip
def main(kernel: str, shape: str, repeats: int, threads: int, device: str, form: str) -> None:
    """Time the back ends of a kernel in turns."""
    sizes = parse_sizes(shape, KERNELS[kernel].sizes)
    torch.set_num_threads(threads)
    click.echo(measure(kernel, sizes, repeats, device).render(form))


if __name__ == "__main__":
    main()
