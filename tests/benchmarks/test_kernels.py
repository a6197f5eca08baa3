"""The script that compares the back ends of kernels."""

import json

import ceilings
import kernels
import pytest
import torch
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

SIZES = {"batch": 2, "tokens": 5, "cursors": 3, "stride": 2, "frequencies": 4}


@pytest.mark.slow
@pytest.mark.parametrize("name", kernels.KERNELS)
def test_every_backend_of_every_kernel_runs_and_agrees(name):
    sizes = {key: SIZES[key] for key in kernels.KERNELS[name].sizes}
    report = kernels.measure(name, sizes, rounds=1, device="cpu")
    assert report.rows[0]["backend"] == "reference"
    assert report.rows[0]["both_ratio"] == 1
    for row in report.rows:
        if row["backend"] == "triton":
            assert row["status"] == "cannot run"
            continue
        assert row["status"] == "ok", row["note"]
        assert row["difference"] < 1e-5
        assert row["x floor"] == pytest.approx(row["both_ms"] / report.settings["floor_ms"])


@pytest.mark.parametrize("name", kernels.KERNELS)
def test_every_input_of_a_kernel_is_used_and_gets_a_gradient(name):
    kernel = kernels.KERNELS[name]
    sizes = {key: SIZES[key] for key in kernel.sizes}
    inputs = kernel.inputs(sizes, torch.Generator().manual_seed(0))
    candidate = kernels.Candidate(kernel, inputs, "reference")
    output = candidate.run()
    output.square().sum().backward()
    got = {key for key, x in candidate.inputs.items() if x.grad is not None}
    assert got == set(inputs) - kernel.constants
    for key in inputs:
        changed = {**inputs, key: inputs[key] * 0.5}
        assert not torch.equal(kernels.Candidate(kernel, changed, "reference").run(), output)


def test_a_backend_that_is_wrong_or_cannot_run_is_shown(monkeypatch):
    def call(x, backend):
        if backend == "broken":
            raise RuntimeError("needs another processor")
        return x["a"] * (2.5 if backend == "wrong" else 2)

    fake = kernels.Kernel(
        {"n": 3},
        lambda sizes, draws: {"a": torch.ones(sizes["n"])},
        call,
        lambda sizes: (sizes["n"], 12 * sizes["n"]),
        ("wrong", "reference", "broken"),
    )
    monkeypatch.setattr(kernels, "KERNELS", {"fake": fake})
    report = kernels.measure("fake", {"n": 3}, rounds=1, device="cpu")
    rows = {row["backend"]: row for row in report.rows}
    assert next(iter(rows)) == "reference"
    assert rows["wrong"]["difference"] == 0.5
    assert rows["broken"]["status"] == "cannot run"
    assert "needs another processor" in rows["broken"]["note"]
    assert report.settings["bytes"] == 36
    assert "cannot run" in report.render("table")


def test_costs_count_bins_pairs_and_bytes():
    """Of the docstrings, at sizes that can be counted by hand."""
    cost = {name: kernel.cost for name, kernel in kernels.KERNELS.items()}
    one = {"batch": 1, "cursors": 1, "stride": 1, "tokens": 2}
    assert cost["histogram"](one) == ((3 + 5) * 42, 4 * (3 * 2 * 5 + 12 * 2))
    assert cost["histogram"](one | {"stride": 2}) == ((5 + 9) * 58, 4 * (3 * 2 * 9 + 18 * 2))
    assert cost["spectral"](one | {"frequencies": 4}) == (2 * 4 * 69, 2 * 4 * (3 * 8 + 3 * 4))


def test_ceilings_count_what_was_done(monkeypatch):
    monkeypatch.setattr(ceilings, "clock", lambda run, device: (0.5, run()))
    monkeypatch.setattr(ceilings, "COPY_BYTES", 4000)
    monkeypatch.setattr(ceilings, "MATMUL", 10)
    assert ceilings.ceilings("cpu") == (2 * 10**3 / 0.5, 2 * 4000 / 0.5)


@given(st.floats(1, 1e12), st.floats(1, 1e12))
def test_the_floor_is_bound_by_arithmetic_or_by_memory(flops, size):
    floor = ceilings.Ceilings(1e9, 1e10).floor(flops, size)
    assert floor >= flops / 1e9
    assert floor >= size / 1e10
    assert floor in (flops / 1e9, size / 1e10)


def test_the_command_prints_json():
    args = ["spectral", "--shape", "batch=2, tokens=4,cursors=2", "--repeats", "1"]
    done = CliRunner().invoke(kernels.main, [*args, "--format", "json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)["settings"]
    assert (found["batch"], found["tokens"], found["cursors"]) == (2, 4, 2)
    floor = max(found["flops"] / found["gflops_limit"], found["bytes"] / found["gbytes_limit"])
    assert found["floor_ms"] == pytest.approx(floor / 1e6)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["spectra"], "spectra"),
        (["spectral", "--shape", "token=3"], "did you mean tokens"),
        (["spectral", "--shape", "tokens"], "expected a number"),
        (["spectral", "--shape", "tokens=0"], "expected a number"),
    ],
)
def test_bad_input_exits_with_2(args, words):
    done = CliRunner().invoke(kernels.main, args)
    assert done.exit_code == 2
    assert words in done.output
