"""The spectral scan against histograms, enumerated distributions, and its own plain loop."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pezoo.functional import sinusoid
from pezoo.kernels.backends import choose, installed
from pezoo.kernels.histogram import histogram_scan, steps_of
from pezoo.kernels.spectral import spectral_scan

D = torch.float64
STEPS = (1, -1, 0, 2, -2)
FAST = ["numba", "parallel"]


def over(*names):
    absent = [] if installed("numba") else [pytest.mark.skip("numba is not installed")]
    marks = {"numba": absent}
    params = [pytest.param(name, marks=marks.get(name, [])) for name in names]
    return pytest.mark.parametrize("backend", params)


each = over("reference", *FAST)
fast = over(*FAST)


def waves(offsets, f=3):
    """e^{iwd} as rows: cosines, then sines; the first frequency is not a fraction of pi."""
    angle = torch.tensor(offsets, dtype=D)[:, None] * 2.9 * 0.4 ** torch.arange(f, dtype=D)
    return torch.cat([angle.cos(), angle.sin()], -1)


def angles(j, f=3, steps=STEPS):
    return torch.tensor(steps[:j], dtype=D)[:, None] * 2.9 * 0.4 ** torch.arange(f, dtype=D)


def inputs(b, t, c, j, seed=0, sharp=1.0, f=3):
    """Everything the scan takes, in float64: reset, moves, angles, state and the copy branch."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*size):
        return sharp * torch.randn(*size, generator=generator, dtype=D)

    state = draw(b, c, 5).softmax(-1) @ waves([-2, -1, 0, 1, 2], f)
    copied = draw(b, t, c, 4).softmax(-1)  # the last column is Pr(no copy)
    none, source = copied[..., -1], copied[..., :-1]
    copy = none, source @ waves([1, 2, 3], f)
    return draw(b, t, c).sigmoid(), draw(b, t, c, j).softmax(-1), angles(j, f), state, copy


def scan(given, backend, with_state=True, with_copy=True, **options):
    reset, moves, angle, state, copy = given
    state, copy = state if with_state else None, copy if with_copy else None
    return spectral_scan(reset, moves, angle, state, copy=copy, backend=backend, **options)


def gradients(given, backend, **options):
    """Values, then the gradients of everything the scan takes; 0 for what it was not given."""
    leaves = [x.clone().requires_grad_() for x in (*given[:4], *given[4])]
    out = scan((*leaves[:4], tuple(leaves[4:])), backend, **options)
    weight = torch.linspace(-1, 2, out.numel(), dtype=out.dtype, device=out.device)
    (out * weight.view(out.shape).sin()).sum().backward()
    return out.detach(), *(torch.zeros_like(x) if x.grad is None else x.grad for x in leaves)


@each
@settings(max_examples=20)
@given(
    t=st.integers(1, 20),
    stride=st.sampled_from([1, 2]),
    seed=st.integers(0, 10**6),
    sharp=st.sampled_from([1.0, 30.0]),
)
def test_it_is_the_superposition_of_the_histogram(backend, t, stride, seed, sharp):
    steps, reach = steps_of(stride), stride * t
    reset, moves, *_ = inputs(2, t, 3, len(steps), seed, sharp)
    h = histogram_scan(reset, moves, None, backend="reference")
    expected = h @ sinusoid(torch.arange(-reach, reach + 1), 8).to(D)  # sines, then cosines
    angle = torch.tensor(steps)[:, None] * 10_000.0 ** -(torch.arange(4) / 4)
    phi = spectral_scan(reset, moves, angle.to(D), backend=backend)
    torch.testing.assert_close(phi.roll(4, -1), expected, atol=1e-5, rtol=0)
    exact = h @ waves(range(-reach, reach + 1))
    phi = spectral_scan(reset, moves, angles(len(steps), steps=steps), backend=backend)
    torch.testing.assert_close(phi, exact, atol=1e-12, rtol=0)


def enumerated(reset, moves, steps, none, source):
    """One cursor as a distribution {offset: probability}, moved token by token."""
    now, rows = {0: 1.0}, []
    for r, p, n, k in zip(reset, moves, none, source, strict=True):
        mixed = {d: (1 - r) * q for d, q in now.items()}
        mixed[0] = mixed.get(0, 0.0) + r
        now = {}
        for d, q in mixed.items():
            for step, move in zip(steps, p, strict=True):
                now[d + step] = now.get(d + step, 0.0) + n * q * move
        for d, q in enumerate(k, 1):
            now[d] = now.get(d, 0.0) + q
        rows.append(now)
    return rows


@each
@settings(max_examples=20)
@given(t=st.integers(1, 12), j=st.integers(2, 5), seed=st.integers(0, 10**6), copying=st.booleans())
def test_it_is_the_characteristic_function_of_an_enumerated_walk(backend, t, j, seed, copying):
    generator = torch.Generator().manual_seed(seed)
    reset = torch.rand(t, generator=generator, dtype=D)
    moves = torch.randn(t, j, generator=generator, dtype=D).softmax(-1)
    copied = torch.randn(t, 4, generator=generator, dtype=D).softmax(-1)
    if not copying:
        copied = torch.tensor([0.0, 0.0, 0.0, 1.0], dtype=D).expand(t, 4)
    none, source = copied[:, 3], copied[:, :3]
    walk = enumerated(*(x.tolist() for x in (reset, moves)), STEPS[:j], none.tolist(), source)
    w = (2.9 * 0.4 ** torch.arange(3, dtype=D)).tolist()
    expected = [
        [sum(q * f(v * d) for d, q in row.items()) for f in (math.cos, math.sin) for v in w]
        for row in walk
    ]
    copy = (none[None, :, None], (source @ waves([1, 2, 3]))[None, :, None]) if copying else None
    phi = spectral_scan(
        reset[None, :, None], moves[None, :, None], angles(j), copy=copy, backend=backend
    )
    torch.testing.assert_close(phi[0, :, 0], torch.tensor(expected, dtype=D), atol=1e-12, rtol=0)


@fast
@settings(max_examples=25)
@given(
    b=st.integers(1, 3),
    t=st.integers(1, 18),
    c=st.integers(1, 3),
    j=st.integers(2, 5),
    f=st.sampled_from([1, 3, 8, 17, 32, 40]),
    seed=st.integers(0, 10**6),
    with_state=st.booleans(),
    with_copy=st.booleans(),
)
def test_values_and_gradients_equal_the_reference(
    backend, b, t, c, j, f, seed, with_state, with_copy
):
    given = inputs(b, t, c, j, seed, f=f)
    options = {"with_state": with_state, "with_copy": with_copy}
    for got, want in zip(
        gradients(given, backend, **options), gradients(given, "reference", **options), strict=True
    ):
        torch.testing.assert_close(got, want, atol=1e-11, rtol=1e-11)


@each
@pytest.mark.parametrize("t", [1, 22, 203])
def test_float32_is_close_to_float64(backend, t):
    given = inputs(2, t, 3, 3, f=16)
    low = [x.float() for x in given[:4]], tuple(x.float() for x in given[4])
    for got, want in zip(
        gradients((*low[0], low[1]), backend), gradients(given, "reference"), strict=True
    ):
        assert got.dtype == torch.float32
        assert (got - want).abs().max() <= 1e-5 * max(1.0, float(want.abs().max()))


@each
@pytest.mark.parametrize(("every", "n"), [(2, 2), (2, 3), (3, 1), (1, 4)])
def test_one_in_so_many_cursors_copies(backend, every, n):
    """The others are as in a scan in which they never copy."""
    given = inputs(2, 4, 5, 3)
    copying = slice(0, n * every, every)
    none, copied = torch.ones_like(given[4][0]), torch.zeros_like(given[4][1])
    none[:, :, copying], copied[:, :, copying] = (x[:, :, copying] for x in given[4])
    want = gradients((*given[:4], (none, copied)), backend)
    own = tuple(x[:, :, copying] for x in given[4])
    got = gradients((*given[:4], own), backend, every=every)
    for one, other in zip(got[:5], want[:5], strict=True):
        torch.testing.assert_close(one, other)
    for one, other in zip(got[5:], want[5:], strict=True):
        torch.testing.assert_close(one, other[:, :, copying])


@each
@pytest.mark.parametrize("with_copy", [False, True])
@pytest.mark.parametrize("t", [1, 4])
def test_gradcheck(backend, with_copy, t):
    reset, moves, _, state, (none, copied) = inputs(2, t, 2, 3, seed=3, f=2)
    real = angles(3, 2, (0.7, -1.3, 0.2))  # steps need not be integers
    leaves = [x.requires_grad_() for x in (reset, moves, real, state, none, copied)]

    def run(reset, moves, angle, state, none, copied):
        copy = (none, copied) if with_copy else None
        return spectral_scan(reset, moves, angle, state, copy=copy, backend=backend)

    assert torch.autograd.gradcheck(run, leaves if with_copy else [*leaves[:4], none, copied])


def second_derivative(backend):
    reset, moves, angle, *_ = inputs(1, 3, 2, 3, f=2)
    reset.requires_grad_()
    out = spectral_scan(reset, moves, angle, backend=backend)
    (first,) = torch.autograd.grad(out.square().sum(), reset, create_graph=True)
    first.square().sum().backward()
    return reset.grad


def test_the_reference_has_second_derivatives():
    assert second_derivative("reference").abs().sum() > 0


@fast
def test_the_others_refuse_second_derivatives(backend):
    with pytest.raises(RuntimeError, match="once_differentiable"):
        second_derivative(backend)


@each
@given(cut=st.integers(1, 9), with_copy=st.booleans())
@settings(max_examples=15)
def test_chunks_with_state_equal_the_whole(backend, cut, with_copy):
    reset, moves, angle, state, (none, copied) = inputs(2, 10, 3, 4)

    def run(part, state):
        copy = (none[:, part], copied[:, part]) if with_copy else None
        return spectral_scan(
            reset[:, part], moves[:, part], angle, state, copy=copy, backend=backend
        )

    whole, first = run(slice(None), state), run(slice(cut), state)
    rest = run(slice(cut, None), first[:, -1])
    torch.testing.assert_close(torch.cat([first, rest], 1), whole, atol=1e-12, rtol=0)


@each
def test_2048_tokens_in_float32(backend):
    reset, moves, angle, *_ = inputs(1, 2048, 4, 3, f=16)
    reset = (0.01 * reset).float().requires_grad_()  # hundreds of moves between two resets
    phi = spectral_scan(reset, moves.float(), angle.float(), backend=backend)
    assert phi.isfinite().all()
    assert torch.complex(*phi.detach().chunk(2, -1)).abs().max() <= 1 + 1e-4
    phi.square().sum().backward()
    assert reset.grad.isfinite().all()
    assert reset.grad.abs().sum() > 0


@each
def test_certain_gates_make_a_counter(backend):
    chosen_steps = torch.tensor([[0, 0, 3, 1, 4, 0, 2, 0]])  # +1 +1 +2 -1 -2 +1 0 +1
    reset = torch.tensor([[0, 0, 0, 0, 0, 1, 0, 0]], dtype=D)
    count = [1, 2, 4, 3, 1, 1, 1, 2]
    moves = torch.nn.functional.one_hot(chosen_steps, 5).to(D)
    phi = spectral_scan(reset[..., None], moves[:, :, None], angles(5), backend=backend)
    torch.testing.assert_close(phi[0, :, 0], waves(count), atol=1e-12, rtol=0)


@each
def test_strided_inputs_and_gradients(backend):
    given = inputs(3, 5, 2, 3)
    turned = [x.transpose(0, -1).contiguous().transpose(0, -1) for x in given[:4]]
    assert not any(x.is_contiguous() for x in turned)
    copy = tuple(x.transpose(0, -1).contiguous().transpose(0, -1) for x in given[4])
    expected = scan(given, backend)
    torch.testing.assert_close(scan((*turned, copy), backend), expected, atol=1e-14, rtol=0)
    got = []
    for moves in (given[1].clone(), turned[1].clone(memory_format=torch.preserve_format)):
        moves.requires_grad_()
        scan((given[0], moves, *given[2:]), backend).sum().backward()  # an expanded gradient
        got.append(moves.grad)
    torch.testing.assert_close(*got, atol=1e-13, rtol=0)


@each
def test_not_a_number_is_not_hidden(backend):
    reset, moves, angle, *_ = inputs(2, 4, 2, 3)
    reset[1, 2, 1] = math.nan
    bad = spectral_scan(reset, moves, angle, backend=backend).isnan().all(-1)
    assert bad[1, 2:, 1].all()
    assert bad.sum() == 2


@each
def test_autocast_does_not_lower_the_precision(backend):
    given = inputs(2, 6, 2, 3)
    low = [x.float() for x in given[:3]]
    expected = spectral_scan(*low, backend=backend)
    with torch.autocast("cpu", torch.bfloat16):
        phi = spectral_scan(*low, backend=backend)
    torch.testing.assert_close(phi, expected, atol=0, rtol=0)


def test_shapes_without_values():
    reset, moves, angle, *_ = (x.to("meta") for x in inputs(2, 5, 3, 4)[:4])
    assert spectral_scan(reset, moves, angle).shape == (2, 5, 3, 6)


def test_auto_runs_the_chosen_one():
    given = inputs(2, 6, 2, 3)
    expected = scan(given, choose("spectral", given[0]))
    torch.testing.assert_close(scan(given, "auto"), expected, atol=0, rtol=0)


def wrong(**changes):
    reset, moves, angle, state, (none, copied) = inputs(2, 3, 2, 3)
    return {
        "reset": reset, "moves": moves, "angles": angle, "state": state, "copy": (none, copied),
        **changes,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"moves": torch.zeros(2, 3, 2, 4, dtype=D)}, r"moves must be \(2, 3, 2, 3\)"),
        ({"state": torch.zeros(2, 2, 5, dtype=D)}, r"state must be \(2, 2, 6\)"),
        ({"copy": (torch.zeros(2, 3, 2), torch.zeros(1))}, "none must be torch.float64 as reset"),
        ({"copy": (torch.zeros(2, 3, dtype=D), None)}, r"none must be \(2, 3, 2\)"),
        ({"angles": torch.zeros(3, dtype=D)}, r"angles \(J, F\)"),
        ({"reset": torch.zeros(2, 3, 2).bfloat16()}, "float32 or float64"),
        ({"reset": torch.zeros(2, 0, 2, dtype=D)}, "at least one token"),
        ({"backend": "paralel"}, "unknown back end 'paralel'; did you mean parallel"),
    ],
)
def test_errors_say_what_was_expected(changes, message):
    with pytest.raises(ValueError, match=message):
        spectral_scan(**wrong(**changes))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("backend", ["reference", "parallel"])
def test_cuda_agrees_with_float64_on_the_cpu(backend):
    given = inputs(2, 70, 3, 3, f=16)
    moved = [x.float().cuda() for x in given[:4]], tuple(x.float().cuda() for x in given[4])
    assert choose("spectral", moved[0][0]) == "parallel"
    for got, want in zip(
        gradients((*moved[0], moved[1]), backend), gradients(given, "reference"), strict=True
    ):
        assert (got.cpu() - want).abs().max() <= 1e-4 * max(1.0, float(want.abs().max()))
