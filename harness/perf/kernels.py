"""The back ends of a kernel side by side, against its reference and against the machine's floor.

A kernel's module has the function, `backends() -> list[str]` with "reference" in it, and
`cost(...) -> (flops, bytes)` of one forward and backward pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from harness.data.seeds import generator
from harness.perf.ceilings import ceilings
from harness.perf.report import Report, machine
from harness.perf.timing import Times, Turn, clock, columns, interleave
from harness.runs import heap
from harness.settings.protocol import ConfigError
from pezoo.spec import unknown

BASELINE = "reference"
PHASES = ("forward", "both")
_WARMUP = 3

Sizes = dict[str, int]
Inputs = dict[str, Tensor]


@dataclass(frozen=True)
class Kernel:
    """How to make inputs for a kernel, call it, and count its work; constants get no gradient."""

    module: str
    sizes: Sizes
    inputs: Callable[[Sizes, torch.Generator], Inputs]
    call: Callable[[ModuleType, Inputs, str], Tensor]
    cost: Callable[[ModuleType, Sizes], tuple[int, int]]
    constants: frozenset[str] = frozenset()


def _moves(sizes: Sizes, draws: torch.Generator) -> tuple[Tensor, Tensor]:
    """Pr(reset) (B, T, C), rare, and Pr(incr, decr, keep) (B, T, C, 3)."""
    shape = sizes["batch"], sizes["tokens"], sizes["cursors"]
    reset = torch.sigmoid(torch.randn(shape, generator=draws) - 2)
    return reset, torch.randn(*shape, 3, generator=draws).softmax(-1)


def _histogram_inputs(sizes: Sizes, draws: torch.Generator) -> Inputs:
    reset, moves = _moves(sizes, draws)
    gamma = 1 + torch.rand(sizes["cursors"], generator=draws)
    incr, decr = moves[..., 0].contiguous(), moves[..., 1].contiguous()
    return {"reset": reset, "incr": incr, "decr": decr, "gamma": gamma}


def _histogram_call(module: ModuleType, x: Inputs, backend: str) -> Tensor:
    gates = module.Gates(x["reset"], x["incr"], x["decr"])
    return module.histogram_scan(gates, x["gamma"], backend=backend)


def _spectral_inputs(sizes: Sizes, draws: torch.Generator) -> Inputs:
    reset, moves = _moves(sizes, draws)
    steps = torch.tensor([1.0, -1.0, 0.0])
    angles = steps[:, None] * torch.rand(sizes["frequencies"], generator=draws)
    return {"reset": reset, "moves": moves, "angles": angles}


def _spectral_call(module: ModuleType, x: Inputs, backend: str) -> Tensor:
    return module.spectral_scan(x["reset"], x["moves"], x["angles"], backend=backend)


def _attention_inputs(sizes: Sizes, draws: torch.Generator) -> Inputs:
    """As a model hands them over: tokens before heads in memory."""
    shape = sizes["batch"], sizes["tokens"], sizes["heads"], sizes["features"]
    return {name: torch.randn(shape, generator=draws).transpose(1, 2) for name in "qkv"}


def _attention_call(module: ModuleType, x: Inputs, backend: str) -> Tensor:
    return module.attention(x["q"], x["k"], x["v"], backend=backend)


_SIZES = {"batch": 64, "tokens": 22, "cursors": 32}

KERNELS = {
    "attention": Kernel(
        "pezoo.kernels.attention",
        {"batch": 64, "tokens": 22, "heads": 4, "features": 16},
        _attention_inputs,
        _attention_call,
        lambda module, s: module.cost(s["batch"], s["heads"], s["tokens"], s["features"]),
    ),
    "histogram_scan": Kernel(
        "pezoo.kernels.histogram",
        _SIZES,
        _histogram_inputs,
        _histogram_call,
        lambda module, s: module.cost(s["batch"], s["tokens"], s["cursors"]),
    ),
    "spectral_scan": Kernel(
        "pezoo.kernels.spectral",
        _SIZES | {"frequencies": 32},
        _spectral_inputs,
        _spectral_call,
        lambda module, s: module.cost(s["batch"], s["tokens"], s["cursors"], s["frequencies"]),
        frozenset({"angles"}),
    ),
}


def find(name: str) -> Kernel:
    """The kernel of that name. Errors: ConfigError with the nearest name."""
    if name not in KERNELS:
        raise ConfigError(unknown("kernel", name, KERNELS))
    return KERNELS[name]


def parse_sizes(text: str, default: Sizes) -> Sizes:
    """The default sizes with those in a text like "batch=64,tokens=82". Errors: ConfigError."""
    sizes = dict(default)
    for item in filter(None, (part.strip() for part in text.split(","))):
        key, _, value = (part.strip() for part in item.partition("="))
        if key not in default:
            raise ConfigError(unknown("size in --shape", key, default))
        if not value.isdecimal() or int(value) < 1:
            raise ConfigError(f"--shape {item!r}: expected a number from 1 on, e.g. {key}=8")
        sizes[key] = int(value)
    return sizes


class Candidate:
    """One back end on inputs of its own, equal for all back ends."""

    def __init__(self, kernel: Kernel, inputs: Inputs, backend: str) -> None:
        self.kernel, self.backend = kernel, backend
        self.module = import_module(kernel.module)
        self.inputs = {
            name: x.clone().requires_grad_(name not in kernel.constants)
            for name, x in inputs.items()
        }
        self.device = str(next(iter(inputs.values())).device)

    def run(self) -> Tensor:
        return self.kernel.call(self.module, self.inputs, self.backend)

    def turn(self, gradient: Tensor) -> dict[str, float]:
        """Seconds of a forward pass that records its graph, and of one with its backward pass."""
        forward, _ = clock(self.run, self.device)
        both, _ = clock(lambda: self.run().backward(gradient), self.device)
        for leaf in self.inputs.values():
            leaf.grad = None
        return dict(zip(PHASES, (forward, both), strict=True))


def measure(name: str, sizes: Sizes, rounds: int, device: str) -> Report:
    """One row per back end that the kernel offers here. Errors: ConfigError for the name."""
    kernel = find(name)
    heap.keep()  # as a worker does
    module = import_module(kernel.module)
    draws = generator("perf", name)
    inputs = {k: x.to(device) for k, x in kernel.inputs(sizes, draws).items()}
    expected = Candidate(kernel, inputs, BASELINE).run().detach()
    gradient = torch.randn(expected.shape, generator=draws).to(device)
    rows: dict[str, dict[str, Any]] = {}
    turns: dict[str, Turn] = {}
    for backend in sorted(module.backends(), key=lambda one: (one != BASELINE, one)):
        candidate = Candidate(kernel, inputs, backend)
        rows[backend] = _probe(candidate, gradient, expected)
        if rows[backend]["status"] == "ok":
            turns[backend] = partial(candidate.turn, gradient)
    limits, work = ceilings(device), kernel.cost(module, sizes)
    floor = limits.floor(*work)
    measured = interleave(turns, rounds, _WARMUP)
    for backend, seconds in measured.items():
        for phase, taken in seconds.items():
            rows[backend] |= columns(phase, taken, measured[BASELINE][phase])
        rows[backend]["both_floor"] = Times.of(seconds["both"]).median / floor
    settings = {"kernel": name, **sizes, "rounds": rounds, "baseline": BASELINE}
    settings |= {"flops": work[0], "bytes": work[1], "floor_ms": floor * 1e3}
    settings |= {"gflops_limit": limits.flops / 1e9, "gbytes_limit": limits.bandwidth / 1e9}
    return Report("backend", PHASES, settings | machine(device), list(rows.values()))


def _probe(candidate: Candidate, gradient: Tensor, expected: Tensor) -> dict[str, Any]:
    """Does it run here, and how far is its output from the reference's?"""
    row: dict[str, Any] = {"backend": candidate.backend, "status": "ok", "note": None}
    try:
        output = candidate.run().detach()
        candidate.turn(gradient)
    except (ValueError, ImportError, RuntimeError) as error:
        return row | {"status": "cannot run", "note": f"{type(error).__name__}: {error}"}
    return row | {"difference": float((output - expected).abs().max())}
