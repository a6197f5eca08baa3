"""The histogram stream against the scan times its table."""

import math
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pezoo.kernels.histogram import Copy, histogram_scan, histogram_stream
from pezoo.kernels.histogram import scan as module

D = torch.float64


def draw(b, t, c, seed=0, *, gamma=True, seen=0, copy=False, kind=1, d=3, fixed=False, every=1):
    """Arguments of histogram_stream in float64, which want gradients.

    kind is the largest step.
    """
    torch.manual_seed(seed)
    moves = torch.randn(b, t, c, 2 * kind + 1, dtype=D).softmax(-1)
    bins = 2 * kind  # that a token adds
    given_ = {
        "reset": torch.rand(b, t, c, dtype=D, requires_grad=True),
        "moves": moves.requires_grad_(),
        "gamma": (1 + torch.rand(c, dtype=D)).requires_grad_() if gamma else None,
        "table": torch.randn(1 + bins * (seen + t), d, dtype=D, requires_grad=not fixed),
        "state": torch.rand(b, c, 1 + bins * seen, dtype=D).softmax(-1).requires_grad_()
        if seen
        else None,
        "copy": None,
        "every": every,
    }
    if copy:
        later = torch.arange(seen + t) > seen + torch.arange(t)[:, None]
        shares = torch.randn(b, t, c, seen + t, dtype=D).masked_fill(later[:, None], -math.inf)
        shares = torch.cat([shares, torch.randn(b, t, c, 1, dtype=D)], -1).softmax(-1)
        own = shares[:, :, ::every]
        given_["copy"] = Copy(
            own[..., -1].clone().requires_grad_(), own[..., :-1].clone().requires_grad_()
        )
    return given_


def results(outputs, given_):
    """Outputs and the gradients of all inputs."""
    found = [given_[key] for key in ("reset", "moves", "gamma", "table", "state")]
    found += given_["copy"] or ()
    inputs = [x for x in found if x is not None and x.requires_grad]
    torch.manual_seed(1)
    weights = [torch.randn(x.shape, dtype=D) for x in outputs]
    return [*outputs, *torch.autograd.grad(outputs, inputs, weights)]


@settings(max_examples=60)
@given(
    size=st.tuples(st.integers(1, 2), st.integers(1, 12), st.integers(1, 3)),
    seed=st.integers(0, 10**6),
    chunk=st.none() | st.integers(1, 14),
    options=st.fixed_dictionaries(
        {
            "gamma": st.booleans(),
            "seen": st.sampled_from([0, 1, 3]),
            "copy": st.booleans(),
            "kind": st.integers(1, 2),
            "d": st.sampled_from([3, 32, 40]),
            "fixed": st.booleans(),
            "every": st.integers(1, 3),
        }
    ),
)
def test_the_stream_is_the_scan_times_the_table(size, seed, chunk, options):
    given_ = draw(*size, seed, **options)
    scan = {key: value for key, value in given_.items() if key != "table"}
    h = histogram_scan(**scan, backend="reference")
    want = results((h @ given_["table"], h[:, -1]), given_)
    got = results(histogram_stream(**given_, chunk=chunk), given_)
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, atol=1e-9, rtol=1e-7)


@settings(max_examples=60)
@given(
    size=st.tuples(st.integers(1, 3), st.integers(1, 60), st.integers(1, 5)),
    seed=st.integers(0, 99),
    sure=st.sampled_from([0.0, 5.0, 30.0]),
    eps=st.sampled_from([1e-8, 1e-12]),
    options=st.fixed_dictionaries(
        {
            "seen": st.sampled_from([0, 1, 30]),
            "copy": st.booleans(),
            "kind": st.integers(1, 3),
            "d": st.sampled_from([1, 33]),
            "every": st.integers(1, 3),
        }
    ),
)
def test_without_gradients_the_bins_that_differ_are_enough(size, seed, sure, eps, options):
    given_ = draw(*size, seed, **options)
    with torch.no_grad():
        given_["gamma"] = 1.1 + given_["gamma"] - 1
        moves = given_["moves"]
        given_["moves"] = (moves.log() + sure * torch.randn_like(moves)).softmax(-1)
        given_["reset"] = given_["reset"] ** (1 + sure)
        got = histogram_stream(**given_, eps=eps)
        want = histogram_stream(**given_, eps=eps, chunk=size[1])
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, atol=20 * eps * options["d"], rtol=0)


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("sure", [0.0, 8.0])
@pytest.mark.parametrize("kind", [1, 2])
def test_parts_that_backward_computes_again_have_the_same_gradients(monkeypatch, kind, sure, fixed):
    given_ = draw(2, 40, 4, copy=True, kind=kind, every=2, fixed=fixed)
    with torch.no_grad():
        moves = given_["moves"]
        moves.copy_((moves.log() + sure * torch.randn_like(moves)).softmax(-1))
        given_["gamma"] += 0.1
    want = results(histogram_stream(**given_, chunk=40), given_)
    monkeypatch.setattr(module, "SMALL", 0)
    got = results(histogram_stream(**given_), given_)
    assert not torch.equal(got[0], want[0])  # or every bin has been computed
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("copy", [False, True])
@pytest.mark.parametrize("change", [{"eps": 1e-3}, {"gamma": torch.tensor([1.0, 1.05], dtype=D)}])
def test_where_sharpening_leaves_no_even_floor_every_bin_is_computed(change, copy):
    for stride in (1, 2, 3):
        given_ = draw(2, 40, 2, seen=3, copy=copy, kind=stride) | change
        with torch.no_grad():
            got, want = histogram_stream(**given_), histogram_stream(**given_, chunk=40)
        for a, b in zip(got, want, strict=True):
            torch.testing.assert_close(a, b, atol=1e-12, rtol=1e-9)


@pytest.mark.parametrize("name", ["reset", "moves", "gamma", "state"])
def test_without_gradients_a_nan_is_not_hidden(name):
    given_ = draw(1, 9, 2, seen=2)
    with torch.no_grad():
        (given_[name][0] if name == "gamma" else given_[name][0, -1, 0]).fill_(math.nan)
        e, last = histogram_stream(**given_)
    assert e[0, -1].isnan().any()
    assert last.isnan().any()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [0, 40, 61])
def test_without_gradients_a_bad_share_is_not_hidden(bad, place):
    """The cursor stays at offset 0, far from what it is said to copy."""
    moves, state = torch.zeros(1, 2, 1, 3), torch.zeros(1, 1, 121)
    moves[..., 2] = state[..., 60] = 1
    copy = Copy(torch.ones(1, 2, 1), torch.zeros(1, 2, 1, 62))
    copy.source[0, 1, 0, place] = bad
    given_ = torch.zeros(1, 2, 1), moves, torch.tensor([1.5]), torch.randn(125, 3), state
    with torch.no_grad():
        e, last = histogram_stream(*given_, copy=copy)
    assert e[0, 0].isfinite().all()
    assert not e[0, 1].isfinite().any()
    assert not last.isfinite().any()


def test_inputs_without_gradients_get_none():
    given_ = draw(2, 7, 2, seen=1, copy=True)
    want = results(histogram_stream(**given_, chunk=3), given_)
    given_["table"].requires_grad_(False)
    given_["state"].requires_grad_(False)
    e, last = histogram_stream(**given_, chunk=3)
    inputs = *(given_[key] for key in ("reset", "moves", "gamma")), *given_["copy"]
    torch.manual_seed(1)
    got = torch.autograd.grad(
        (e, last), inputs, (torch.randn(e.shape, dtype=D), torch.randn(last.shape, dtype=D))
    )
    for a, b in zip(got, [*want[2:5], *want[7:]], strict=True):
        torch.testing.assert_close(a, b)


# With gamma, the first pass computes only bins with mass.
@pytest.mark.parametrize(("gamma", "first"), [(False, [4, 4, 2]), (True, [])])
def test_only_the_histograms_of_a_chunk_are_computed_at_a_time(monkeypatch, gamma, first):
    sizes = []

    def scan(*args, **options):
        h = histogram_scan(*args, **options)
        sizes.append(h.shape[1])
        return h

    monkeypatch.setattr(module, "histogram_scan", scan)
    given_ = draw(1, 10, 1, gamma=gamma)
    histogram_stream(**given_)
    assert sizes == [10]
    monkeypatch.setattr(module, "SMALL", 0)
    e, _ = histogram_stream(**given_)
    assert sizes[1:] == first
    e.sum().backward()
    assert sizes[1:] == [*first, 2, 4, 4]


def test_autocast_does_not_round_the_streams():
    given_ = draw(1, 6, 2)
    given_ = {key: given_[key].detach().float() for key in ("reset", "moves", "gamma", "table")}
    want = histogram_stream(**given_, chunk=2)
    with torch.autocast("cpu", torch.bfloat16):
        got = histogram_stream(**given_, chunk=2)
    for a, b in zip(got, want, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"table": torch.zeros(10, 3, dtype=D)}, r"table must be \(11, d\)"),
        ({"table": torch.zeros(11, dtype=D)}, r"table must be \(11, d\)"),
        ({"moves": torch.zeros(1, 5, 1, 1, dtype=D), "chunk": 2}, "3, 5, ... steps"),
        ({"moves": torch.zeros((), dtype=D)}, "moves must be"),
        ({"chunk": 0}, "chunk must be at least 1"),
    ],
)
def test_errors(change, words):
    with pytest.raises(ValueError, match=words):
        histogram_stream(**(draw(1, 5, 1) | change))


LARGE = """
import resource, torch
torch.set_num_threads(1)
from pezoo.kernels.histogram import histogram_stream
b, t, c, d = 8, 512, 140, 64
reset = torch.rand(b, t, c, requires_grad=True)
moves = torch.randn(b, t, c, 3).softmax(-1).requires_grad_()
gamma = torch.full((c,), 1.5, requires_grad=True)
e, _ = histogram_stream(reset, moves, gamma, torch.randn(2 * t + 1, d))
e.square().sum().backward()
assert reset.grad.isfinite().all() and gamma.grad.isfinite().all()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in KiB on Linux alone")
def test_a_large_problem_stays_under_two_gib():
    """All its histograms are 2.2 GiB."""
    run = subprocess.run([sys.executable, "-c", LARGE], capture_output=True, text=True, check=True)
    assert float(run.stdout) < 2
