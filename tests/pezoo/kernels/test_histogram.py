"""The histogram scan: every back end against a dictionary of offsets, all paths, and each other."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pezoo.kernels.backends import installed
from pezoo.kernels.histogram import Copy, histogram_scan, steps_of

D = torch.float64
NUMBA = pytest.param("numba", marks=pytest.mark.skipif(not installed("numba"), reason="no numba"))
each = pytest.mark.parametrize("backend", ["reference", NUMBA])  # triton: test_histogram_triton.py
fast = pytest.mark.parametrize("backend", [NUMBA])
kinds = pytest.mark.parametrize("kind", [1, 2])


def draw(
    b, t, c, *, seed=0, gamma=True, state=0, copy=False, kind=1, dtype=D, sharp=1.0
):  # fmt: skip
    """Random arguments of histogram_scan, which all want gradients; a state of `state` tokens.

    kind is the largest step.
    """
    draws = torch.Generator().manual_seed(seed)

    def random(*size):
        return torch.randn(size, generator=draws, dtype=D)

    logits = sharp * random(b, t, c, 2 + 2 * kind)
    power = 1 + 2 * torch.rand(c, generator=draws, dtype=D) if gamma else None
    bins = 2 * kind * state + 1
    start = random(b, c, bins).softmax(-1) if state else None
    branch = None
    if copy:
        number, now = torch.arange(state + t), state + torch.arange(t)
        shares = random(b, t, c, state + t).masked_fill(
            (number > now[:, None])[:, None], -torch.inf
        )
        shares = torch.cat([shares, random(b, t, c, 1)], -1).softmax(-1)
        branch = Copy(shares[..., -1], shares[..., :-1])

    def leaf(x):
        return None if x is None else x.to(dtype).requires_grad_()

    return {
        "reset": leaf(logits[..., 0].sigmoid()),
        "moves": leaf(logits[..., 1:].softmax(-1)),
        "gamma": leaf(power),
        "state": leaf(start),
        "copy": branch and Copy(*map(leaf, branch)),
    }


def leaves(given):
    found = (*(given[key] for key in ("reset", "moves", "gamma", "state")), *(given["copy"] or ()))
    return [x for x in found if x is not None]


def gradients(h, given, seed=1):
    weight = torch.randn(h.shape, generator=torch.Generator().manual_seed(seed), dtype=D)
    return torch.autograd.grad(h, leaves(given), weight.to(h.dtype))


arguments = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 10**6),
        "gamma": st.booleans(),
        "state": st.sampled_from([0, 1, 2, 7]),
        "copy": st.booleans(),
        "kind": st.integers(1, 3),
        "sharp": st.sampled_from([0.1, 1.0, 10.0]),
    }
)


def plain(given, eps, row, cursor):
    """One cursor's histograms as dictionaries, from Algorithm 1 read line by line."""
    resets, moves = (given[key][row, :, cursor].tolist() for key in ("reset", "moves"))
    stride = len(moves[0]) // 2
    gamma, copy = given["gamma"], given["copy"]
    h, first = {0: 1.0}, 0
    if given["state"] is not None:
        masses = given["state"][row, cursor].tolist()
        first = len(masses) // 2
        h = {i - first: mass for i, mass in enumerate(masses)}
    rows = []
    for step, (reset, chances) in enumerate(zip(resets, moves, strict=True)):
        new = {}
        for offset, mass in h.items():
            for start, share in ((offset, 1 - reset), (0, reset)):
                for move, chance in zip(steps_of(stride), chances, strict=True):
                    new[start + move] = new.get(start + move, 0.0) + mass * share * chance
        if copy is not None:
            none, shares = copy.none[row, step, cursor].item(), copy.source[row, step, cursor]
            new = {offset: none * mass for offset, mass in new.items()}
            for token, share in enumerate(shares.tolist()):
                if share:
                    new[token + 1] += share
        if gamma is not None:
            raised = {d: (mass + eps) ** gamma[cursor].item() for d, mass in new.items()}
            new = {d: mass / sum(raised.values()) for d, mass in raised.items()}
        h = new
        rows.append(h)
    return rows, first


@each
@settings(max_examples=25)
@given(size=st.tuples(st.integers(1, 2), st.integers(1, 9), st.integers(1, 3)), options=arguments)
def test_the_scan_is_algorithm_1(backend, size, options):
    given_ = draw(*size, **options)
    with torch.no_grad():
        h = histogram_scan(**given_, eps=1e-3, backend=backend)
    b, t, c = size
    for row, cursor in itertools.product(range(b), range(c)):
        rows, first = plain(given_, 1e-3, row, cursor)
        left = first + options["kind"] * t
        for step, masses in enumerate(rows):
            want = torch.zeros(h.shape[-1], dtype=D)
            for offset, mass in masses.items():
                want[offset + left] = mass
            torch.testing.assert_close(h[row, step, cursor], want, atol=1e-13, rtol=1e-9)


@fast
@settings(max_examples=60)
@given(size=st.tuples(st.integers(1, 3), st.integers(1, 40), st.integers(1, 9)), options=arguments)
def test_back_ends_agree_in_values_and_gradients(backend, size, options):
    given_ = draw(*size, **options)
    want = histogram_scan(**given_, backend="reference")
    got = histogram_scan(**given_, backend=backend)
    assert got.shape == want.shape
    torch.testing.assert_close(got, want, atol=1e-12, rtol=1e-9)
    for a, b in zip(gradients(got, given_), gradients(want, given_), strict=True):
        torch.testing.assert_close(a, b, atol=1e-8 * max(1.0, b.abs().max().item()), rtol=1e-6)


@each
@kinds
@pytest.mark.parametrize("with_gamma", [False, True])
def test_gradcheck(backend, kind, with_gamma):
    given_ = draw(1, 3, 2, seed=5, gamma=with_gamma, state=1, copy=True, kind=kind)

    def scan(reset, moves, gamma, state, none, source):
        return histogram_scan(
            reset, moves, gamma, state, 1e-3, copy=Copy(none, source), backend=backend
        )

    inputs = *(given_[key] for key in ("reset", "moves", "gamma", "state")), *given_["copy"]
    assert torch.autograd.gradcheck(scan, inputs)


@fast
@kinds
@pytest.mark.parametrize("with_gamma", [False, True])
def test_a_long_sequence_stays_normalised(backend, kind, with_gamma):
    given_ = draw(1, 2048, 2, dtype=torch.float32, gamma=with_gamma, kind=kind)
    with torch.no_grad():
        h = histogram_scan(**given_, backend=backend)
    assert (h.double().sum(-1) - 1).abs().max() < 1e-5


@fast
@pytest.mark.parametrize("gamma", [1.0, 1.02])
def test_many_small_masses_beside_a_large_one_are_not_lost(backend, gamma):
    """Near gamma = 1, eps leaves mass in all bins that are alive."""
    given_ = draw(1, 2048, 1, dtype=torch.float32)
    given_["gamma"] = torch.full((1,), gamma)
    with torch.no_grad():
        h = histogram_scan(**given_, backend=backend)
    assert (h.double().sum(-1) - 1).abs().max() < 1e-5


@fast
@pytest.mark.parametrize("gamma", [None, 1.0, 1.5, 4.0, 30.0])
def test_float32_is_close_to_float64(backend, gamma):
    wide = draw(4, 60, 5, copy=True, state=3)
    wide["gamma"] = None if gamma is None else torch.full((5,), gamma, dtype=D, requires_grad=True)
    single = {
        "reset": wide["reset"].detach().float().requires_grad_(),
        "moves": wide["moves"].detach().float().requires_grad_(),
        "gamma": None if gamma is None else wide["gamma"].detach().float().requires_grad_(),
        "state": wide["state"].detach().float().requires_grad_(),
        "copy": Copy(*(x.detach().float().requires_grad_() for x in wide["copy"])),
    }
    want = histogram_scan(**wide, backend="reference")
    got = histogram_scan(**single, backend=backend)
    assert got.dtype == torch.float32
    scale = 1e-5 * (gamma or 1)  # sharpening multiplies relative errors by gamma
    torch.testing.assert_close(got.double(), want, atol=scale, rtol=scale)
    for a, b in zip(gradients(got, single), gradients(want, wide), strict=True):
        assert (a - b).abs().max() <= scale * b.abs().max().clamp(min=1e-6)


@each
def test_saturated_gates_in_float32_are_finite(backend):
    given_ = draw(16, 20, 16, dtype=torch.float32, sharp=10.0)
    assert (given_["moves"] == 1).any()
    h = histogram_scan(**given_, backend=backend)
    assert (h >= 0).all()
    assert all(grad.isfinite().all() for grad in gradients(h, given_))


@each
def test_a_chance_that_rounding_takes_below_zero_counts_as_zero(backend):
    up = torch.tensor([0.7], dtype=torch.float32)
    down = torch.nextafter(1 - up, torch.ones(1))
    moves = torch.cat([up, down, 1 - up - down]).expand(1, 3, 1, 3)
    assert moves.min() < 0
    h = histogram_scan(torch.zeros(1, 3, 1), moves, torch.full((1,), 1.5), backend=backend)
    want = histogram_scan(
        torch.zeros(1, 3, 1), moves.clamp(min=0), torch.full((1,), 1.5), backend="reference"
    )
    torch.testing.assert_close(h, want)


@each
def test_a_nan_in_one_cursor_leaves_the_others_gradients_alone(backend):
    given_ = draw(2, 5, 9, kind=2, copy=True)
    reset = given_["reset"].detach().clone()
    reset[1, 4, 8] = math.nan
    given_["reset"] = reset.requires_grad_()
    found = gradients(histogram_scan(**given_, backend=backend), given_)
    assert all(grad[0].isfinite().all() for grad in (found[0], found[1]))
    assert all(grad[1, :, :8].isfinite().all() for grad in (found[0], found[1]))
    assert not found[0][1, 4, 8].isfinite()


@each
@pytest.mark.parametrize("gamma", [False, True])
def test_what_is_asked_of_bins_without_mass_does_not_matter(backend, gamma):
    given_ = draw(2, 5, 3, kind=2, gamma=gamma)
    h = histogram_scan(**given_, backend=backend)
    grads = torch.autograd.grad(torch.special.entr(h).sum(), leaves(given_))
    assert all(grad.isfinite().all() for grad in grads)


@each
def test_sharpening_by_a_large_power_is_finite(backend):
    given_ = draw(1, 30, 1, dtype=torch.float32, sharp=0.0)
    given_["gamma"] = torch.full((1,), 500.0, requires_grad=True)
    h = histogram_scan(**given_, backend=backend)
    torch.testing.assert_close(h.sum(-1), torch.ones(1, 30, 1))
    assert all(grad.isfinite().all() for grad in gradients(h, given_))


@each
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_nan_is_not_hidden(backend, bad):
    given_ = draw(2, 5, 9, dtype=torch.float32)
    given_["reset"] = given_["reset"].detach().clone()
    given_["reset"][1, 2, 4] = bad
    h = histogram_scan(**given_, backend=backend)
    wrong = h.isnan().any(-1)
    want = torch.zeros(2, 5, 9, dtype=torch.bool)
    want[1, 2:, 4] = True
    assert torch.equal(wrong, want)


@fast
def test_views_and_expanded_gradients(backend):
    logits = torch.randn(3, 7, 4, 4, dtype=D, requires_grad=True)

    def total(backend):
        reset, moves = logits[..., 0].sigmoid(), logits[..., 1:].softmax(-1)
        h = histogram_scan(reset, moves, torch.tensor(2.0, dtype=D).expand(4), backend=backend)
        return torch.autograd.grad(h[..., 7].sum(), logits)[0]

    torch.testing.assert_close(total(backend), total("reference"))


@fast
def test_gradients_of_a_few_inputs(backend):
    given_ = draw(2, 6, 3, copy=True, state=2)
    whole = dict(zip(range(6), gradients(histogram_scan(**given_), given_), strict=True))
    for index, x in enumerate(leaves(given_)):
        for y in leaves(given_):
            y.requires_grad_(y is x)
        h = histogram_scan(**given_, backend=backend)
        weight = torch.randn(h.shape, generator=torch.Generator().manual_seed(1), dtype=D)
        (grad,) = torch.autograd.grad(h, x, weight)
        torch.testing.assert_close(grad, whole[index])


def test_the_reference_has_second_derivatives():
    given_ = draw(1, 3, 2, kind=2, copy=True)

    def scan(reset, moves, gamma, none, source):
        return histogram_scan(
            reset, moves, gamma, None, 1e-3, copy=Copy(none, source), backend="reference"
        )

    assert torch.autograd.gradgradcheck(scan, leaves(given_))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"reset": torch.zeros(2, 0, 3)}, "at least one token"),
        ({"moves": torch.zeros(2, 4, 2, 3)}, r"moves must be \(2, 4, 3, 3\)"),
        ({"moves": torch.zeros(2, 4, 3)}, r"moves must be \(2, 4, 3, 3\)"),
        ({"moves": torch.zeros(2, 4, 3, 4)}, "3, 5, ... steps"),
        ({"moves": torch.zeros(2, 4, 3, 1)}, "3, 5, ... steps"),
        ({"gamma": torch.ones(3), "eps": 0.0}, "eps must be above 0"),
        ({"gamma": torch.ones(2)}, r"gamma must be \(3,\)"),
        ({"gamma": torch.ones(3, dtype=D)}, "gamma must be torch.float32"),
        ({"state": torch.ones(2, 2, 1)}, r"state must be \(2, 3, 1\)"),
        ({"state": torch.ones(2, 3, 4)}, "has 1, 3, ... bins"),
        ({"copy": Copy(torch.ones(2, 4, 1), torch.zeros(2, 4, 3, 4))}, "copy.none must be"),
        ({"copy": Copy(torch.ones(2, 4, 3), torch.zeros(2, 4, 1, 4))}, "copy.source must be"),
    ],
)
def test_shapes_and_types_that_do_not_fit(change, words):
    moves = torch.zeros(2, 4, 3, 3)
    given_ = {"reset": torch.zeros(2, 4, 3), "moves": moves, "gamma": None} | change
    with pytest.raises(ValueError, match=words):
        histogram_scan(**given_)
