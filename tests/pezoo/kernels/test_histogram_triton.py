"""The Triton back end: interpreted on a CPU, and on a GPU where there is one."""

import itertools
import os
import subprocess
import sys

import pytest
import torch

from pezoo.kernels.backends import choose
from pezoo.kernels.histogram import Copy, histogram_scan
from pezoo.kernels.histogram.scan import shares

pytest.importorskip("triton")

D = torch.float64
pytestmark = pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION")
KINDS = 1, 2  # the largest step
VARIANTS = list(itertools.product((False, True), (False, True), (False, True), KINDS))
PAIRS = [  # of gamma, state, copy and kind: every two values meet
    *((True, False, False, 1), (False, True, True, 1)),
    *((False, True, False, 2), (True, False, True, 2), (True, True, True, 2), (False,) * 3 + (1,)),
]


def draw(b, t, c, gamma, state, copy, kind, device="cpu"):
    """Arguments of histogram_scan in float64, which want gradients."""
    draws = torch.Generator().manual_seed(t)

    def leaf(x):
        return x.to(device).requires_grad_()

    moves = torch.randn(b, t, c, 2 * kind + 1, generator=draws, dtype=D).softmax(-1)
    seen = 2 if state else 0
    first = 1 + 2 * kind * seen
    start = torch.rand(b, c, first, generator=draws, dtype=D).softmax(-1) if state else None
    branch = None
    if copy:
        later = torch.arange(seen + t) > seen + torch.arange(t)[:, None]
        shares = torch.randn(b, t, c, seen + t + 1, generator=draws, dtype=D)
        shares[..., 1:].masked_fill_(later[:, None], -torch.inf)
        shares = shares.softmax(-1)
        branch = Copy(leaf(shares[..., 0]), leaf(shares[..., 1:]))
    return {
        "reset": leaf(torch.rand(b, t, c, generator=draws, dtype=D)),
        "moves": leaf(moves),
        "gamma": leaf(1 + torch.rand(c, generator=draws, dtype=D)) if gamma else None,
        "state": None if start is None else leaf(start),
        "copy": branch,
    }


def gradients(h, given):
    found = *(given[key] for key in ("reset", "moves", "gamma", "state")), *(given["copy"] or ())
    weight = torch.randn(h.shape, generator=torch.Generator().manual_seed(1), dtype=D)
    return torch.autograd.grad(h, [x for x in found if x is not None], weight.to(h.device))


def agree(got, want, atol):
    for a, b in zip(got, want, strict=True):
        assert (a.cpu() - b.cpu()).abs().max() <= atol * max(1.0, b.abs().max().item())


SIZES = (1, 1, 1), (2, 3, 2)


def compare_interpreted():
    """Runs in a process of its own, as Triton reads TRITON_INTERPRET while it is imported."""
    from pezoo.kernels.histogram import triton as kernels

    for size, variant in itertools.product(SIZES, PAIRS):
        given = draw(*size, *variant)
        want = histogram_scan(**given, backend="reference")
        names = "reset", "moves", "gamma", "state", "copy"
        got = kernels.Scan.apply(*shares(*(given[name] for name in names)), 1e-8, 1)
        agree((got, *gradients(got, given)), (want, *gradients(want, given)), 1e-11)
        print("agrees")


@pytest.mark.slow
def test_interpreted_it_equals_the_reference():
    run = subprocess.run(
        [sys.executable, __file__],
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == ["agrees"] * 12


@pytest.mark.slow
@pytest.mark.parametrize("name", ["_forward", "_backward"])
@pytest.mark.parametrize(("kind", "sharp"), list(itertools.product(KINDS, (False, True))))
def test_it_compiles_for_a_gpu(name, kind, sharp):
    """To PTX, which needs no GPU; every kind in both sizes of a number."""
    number = "fp64" if (kind + sharp) % 2 else "fp32"
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from pezoo.kernels.histogram import triton as kernels

    kernel = getattr(kernels, name)
    moves = 2 * kind + 1
    constants = {"moves": moves, "sharp": sharp, "block": 128}
    integers = ("steps", "cursors", "sources", "first", "last")
    kinds = dict.fromkeys(kernel.arg_names, f"*{number}") | dict.fromkeys(integers, "i32")
    source = ASTSource(
        fn=kernel,
        signature=kinds | dict.fromkeys(constants, "constexpr"),
        constexprs={(kernel.arg_names.index(key),): value for key, value in constants.items()},
    )
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32))
    assert "bar.sync" in compiled.asm["ptx"]  # steps read what other threads wrote


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("size", [(1, 1, 1), (3, 40, 5), (2, 300, 2)])
def test_on_a_gpu_it_equals_the_reference_on_the_cpu(size, variant):
    given, there = draw(*size, *variant), draw(*size, *variant, device="cuda")
    assert choose("histogram", there["reset"]) == "triton"
    want = histogram_scan(**given, backend="auto")
    got = histogram_scan(**there)
    agree((got, *gradients(got, there)), (want, *gradients(want, given)), 1e-10)


if __name__ == "__main__":
    compare_interpreted()
