"""Gates, noise, snapping, the copy branch and several layers of cursors."""

import itertools
from dataclasses import replace

import pytest
import torch

from pezoo.base import Context, Memo, Pass, Shape
from pezoo.cursors.controllers import CONTROLLERS
from pezoo.cursors.gates import CopyBranch, GatedCopyBranch, GateHead
from pezoo.cursors.options import CursorOptions
from pezoo.encodings.prism import PRISM
from pezoo.encodings.prism_spectral import PRISMSpectral
from pezoo.kernels.histogram import steps_of
from pezoo.registry import expand, make
from pezoo.spec import parse

D = torch.float64
SMALL = Shape(6, 2, 4, 3, 8)
KINDS = [PRISM, PRISMSpectral]
PLAIN = expand(parse("prism_2025")).options | {"key_bias": 2.0, "reset_bias": -2.0}
SHARED = {name: value for name, value in PLAIN.items() if name != "gamma"}
SIZES = {"cursors": 2, "d_pe": 4, "hidden": 5}


def tiny(cls, seed=0, **options):
    torch.manual_seed(seed)
    plain = PLAIN if cls is PRISM else SHARED
    encoding = cls(SMALL, **{**plain, **SIZES, **options}).double()
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return encoding


def gate_head(cursors, undecided=(), **options):
    return GateHead(
        cursors, CursorOptions(**{**SHARED, "hidden": 4, "reset_bias": -3.0, **options}), undecided
    )


def context(x, **fields):
    return Pass(pos=torch.arange(x.shape[1])[None], x=x, **fields)


def logits(encoding, x, layer=0, **plan):
    ctx = context(x)
    ctx = encoding.prepare(replace(ctx, drawn=encoding.draw(ctx, **plan)))
    q, k = torch.randn(2, 1, 2, x.shape[1], 4, dtype=D, generator=torch.manual_seed(3)).unbind(0)
    for below in range(layer + 1):
        out = encoding.transform(q, k, ctx.at(below, x * (below + 1)))
    return out[0] @ out[1].mT


def test_gates_start_where_they_should():
    assert steps_of(1) == [1, -1, 0]
    head = gate_head(6)
    reset, moves = head(torch.zeros(1, 1, 4))
    assert reset.mean().item() == pytest.approx(1 / (1 + 2.718281828**3), abs=0.03)
    assert moves[0, 0, 3:, 0].min() > 0.6  # keys count
    assert moves[0, 0, :3].max() < 0.6
    torch.testing.assert_close(moves.sum(-1), torch.ones(1, 1, 6))


def test_queries_can_start_with_the_steps_in_turn():
    head = gate_head(14, stride=2, query_bias=4.0)
    _, moves = head(torch.zeros(1, 1, 4))
    assert moves[0, 0, :7].argmax(-1).tolist() == [0, 1, 2, 3, 4, 0, 1]
    assert moves[0, 0, :7].max(-1).values.min() > 0.8
    assert moves[0, 0, 7:].argmax(-1).tolist() == [0] * 7


def test_undecided_queries_take_no_step_of_the_turn():
    head = gate_head(14, stride=2, query_bias=4.0, undecided=[0, 3])
    _, moves = head(torch.zeros(1, 1, 4))
    steps = moves[0, 0, :7].argmax(-1).tolist()
    assert [steps[c] for c in (1, 2, 4, 5, 6)] == [0, 1, 2, 3, 4]
    assert moves[0, 0, [0, 3]].max() < 0.6


def test_scale_sharpens_the_gates():
    features = torch.randn(2, 3, 4, generator=torch.manual_seed(0))
    one, two = (
        gate_head(6, stride=2, gate_scale=scale, reset_bias=0.0, key_bias=0.0)
        for scale in (1.0, 2.0)
    )
    two.load_state_dict(one.state_dict())
    (r1, m1), (r2, m2) = one(features), two(features)
    torch.testing.assert_close(torch.logit(r2), 2 * torch.logit(r1))
    torch.testing.assert_close((m1**2 / (m1**2).sum(-1, keepdim=True)), m2)


@pytest.mark.parametrize("cls", KINDS)
@pytest.mark.parametrize(("mu", "same"), [(-60.0, True), (-4.0, False)])
def test_a_low_mu_leaves_the_score_to_positions(cls, mu, same):
    encoding = cls(SMALL, cursors=2, d_pe=4, hidden=5, mu=mu).double()
    ctx = encoding.prepare(context(torch.randn(1, 5, 6, dtype=D)))
    scores = []
    for seed in (0, 1):
        q, k = torch.randn(2, 1, 2, 5, 4, dtype=D, generator=torch.manual_seed(seed))
        one, two = encoding.transform(q, k, ctx.at(0, ctx.x))
        scores.append(one @ two.mT)
    assert torch.allclose(*scores) is same


@pytest.mark.parametrize("cls", KINDS)
def test_snapped_cursors_are_integer_counters(cls):
    encoding = tiny(cls, similarity="cosine").eval()
    x = torch.randn(2, 7, 6, dtype=D)
    (layer,) = encoding.layers
    ctx = context(x, mode="snapped")
    reset, moves = layer.gates(layer.features(x, ctx), ctx)
    assert set(reset.unique().tolist()) <= {0.0, 1.0}
    assert set(moves.unique().tolist()) <= {0.0, 1.0}
    streams, _ = layer(x, ctx, None)
    w = encoding.options.frequencies(torch.device("cpu"))
    soft = context(x)
    assert not torch.allclose(streams, layer(x, soft, None)[0])
    step = torch.tensor([1, -1, 0])
    place = torch.zeros(2, reset.shape[2], dtype=torch.long)
    for t in range(7):
        place = torch.where(reset[:, t] == 1, 0, place) + step[moves[:, t].argmax(-1)]
        angle = place[..., None] * w
        want = torch.cat([angle.cos(), angle.sin()], -1).to(D)
        torch.testing.assert_close(streams[:, t], want, atol=1e-5, rtol=0)


@pytest.mark.parametrize("cls", KINDS)
@pytest.mark.parametrize("which", ["gate_noise", "state_noise"])
@pytest.mark.parametrize("copying", [{}, {"copy_every": 2, "copy_gate": True}], ids=["", "gated"])
def test_noise_is_for_training_alone_and_ramps_up(cls, which, copying):
    quiet = {"gate_noise": 0.0, "state_noise": 0.0, **copying}
    encoding = tiny(cls, **{**quiet, which: 1.0})
    x = torch.randn(1, 6, 6, dtype=D)

    def run(progress, seed=0):
        return logits(encoding, x, progress=progress, generator=torch.manual_seed(seed))

    encoding.train()
    still = run(0.0)
    gaps = [(run(p) - still).abs().mean().item() for p in (0.0, 0.1, 0.5, 1.0)]
    assert gaps[0] == 0 < gaps[1] < gaps[2] == gaps[3]
    torch.testing.assert_close(run(None), run(1.0))
    torch.testing.assert_close(run(1.0), run(1.0))
    assert not torch.allclose(run(1.0), run(1.0, seed=1))
    encoding.eval()
    torch.testing.assert_close(run(1.0), still)
    silent = tiny(cls, **quiet)
    torch.testing.assert_close(logits(silent.train(), x), logits(silent.eval(), x))


def copy_branch(width, cursors, kind=CopyBranch):
    torch.manual_seed(0)
    options = CursorOptions(hidden=5, gate_scale=1.5, reset_bias=-2.5)
    return kind(width, cursors, options).double().requires_grad_(False)


def copy_by_hand(branch, x, features, noise):
    """Softmax over earlier tokens and the null slot, or times a gate, one number at a time."""
    b, t, _ = x.shape
    q = branch.query(torch.cat([x, features], -1)).view(b, t, branch.cursors, -1)
    k = branch.key(x).view(b, t, branch.cursors, -1)
    null = branch.null(features)
    gated = isinstance(branch, GatedCopyBranch)
    source = torch.zeros(b, t, branch.cursors, t, dtype=D)
    for row, now, c in itertools.product(range(b), range(1, t), range(branch.cursors)):
        weights = [float(torch.exp(q[row, now, c] @ k[row, j, c] / 4)) for j in range(now)]
        total = sum(weights) + (0 if gated else float(torch.exp(null[row, now, c])))
        gate = float((noise[row, now, c] - 1.5 * null[row, now, c]).sigmoid()) if gated else 1.0
        source[row, now, c, :now] = gate * torch.tensor(weights, dtype=D) / total
    return source


@pytest.mark.parametrize("kind", [CopyBranch, GatedCopyBranch])
def test_a_copy_branch_is_causal_attention_and_may_have_a_gate(kind):
    branch = copy_branch(6, 3, kind)
    x, features = torch.randn(2, 5, 6, dtype=D) / 5, torch.randn(2, 5, 5, dtype=D)
    noise = torch.randn(2, 5, 3, dtype=D)
    got, _ = branch(x, features, None, None, False, noise)
    source = copy_by_hand(branch, x, features, noise)
    torch.testing.assert_close(got.source, source)
    torch.testing.assert_close(got.none, 1 - source.sum(-1))
    hard, _ = branch(x, features, None, None, True, noise)
    assert set(hard.source.unique().tolist()) | set(hard.none.unique().tolist()) == {0.0, 1.0}
    torch.testing.assert_close(hard.source.sum(-1), 1 - hard.none)
    if kind is GatedCopyBranch:
        torch.testing.assert_close(hard.none, got.none.round())
        chosen = source.argmax(-1)[..., None]
        torch.testing.assert_close(hard.source.gather(-1, chosen)[..., 0], 1 - hard.none)


def test_copies_start_rare_and_gated_ones_with_equal_tokens():
    assert copy_branch(6, 3).null.bias.tolist() == [4.0] * 3
    branch = copy_branch(32, 4, GatedCopyBranch)
    tokens = torch.randn(8, 32, dtype=D) / 4
    x = tokens[torch.tensor([[0, 1, 2, 3, 4, 5, 6, 7, 3, 0]])]
    copy, _ = branch(x, torch.zeros(1, 10, 5, dtype=D), None, None, False)
    gate = 1 / (1 + 2.718281828 ** (1.5 * 2.5))
    torch.testing.assert_close(1 - copy.none[:, 1:], torch.full((1, 9, 4), gate, dtype=D))
    assert copy.none[0, 0].tolist() == [1.0] * 4  # nothing is earlier
    assert copy.source[0, 8].argmax(-1).tolist() == [3] * 4
    assert copy.source[0, 9].argmax(-1).tolist() == [0] * 4


def test_gated_copies_leave_out_columns_without_a_token():
    branch = copy_branch(6, 2, GatedCopyBranch)
    x, features = torch.randn(1, 5, 6, dtype=D), torch.randn(1, 5, 5, dtype=D)
    mask = torch.tensor([[False, True, True, False, True]])
    copy, _ = branch(x, features, mask, None, False)
    alone, _ = branch(x[mask][None], features[mask][None], None, None, False)
    torch.testing.assert_close(copy.none[mask][None], alone.none)
    torch.testing.assert_close(copy.source[mask][None, ..., :3], alone.source)


def test_the_copy_branch_numbers_tokens_not_columns():
    branch = copy_branch(6, 2)
    x, features = torch.randn(1, 5, 6, dtype=D), torch.randn(1, 5, 5, dtype=D)
    mask = torch.tensor([[True, False, True, False, True]])
    with torch.no_grad():
        got, _ = branch(x, features, mask, None, False)
        want, _ = branch(x[:, ::2], features[:, ::2], None, None, False)
    torch.testing.assert_close(got.none[:, ::2], want.none)
    torch.testing.assert_close(got.source[:, ::2, :, :3], want.source)
    assert not got.source[:, :, :, 3:].any()


def test_a_snapped_copy_of_a_token_that_occurs_twice_is_of_the_first():
    """The keys of equal tokens are equal but for rounding, which must not choose."""
    branch = copy_branch(6, 3)
    x, features = torch.randn(1, 5, 6, dtype=D), torch.randn(1, 5, 5, dtype=D)
    with torch.no_grad():
        branch.null.bias.fill_(-100.0)
        for rounding in (1e-9, -1e-9):
            x[:, 2] = x[:, 1] * (1 + rounding)
            (_, source), _ = branch(x, features, None, None, True)
            assert (source.sum(-1)[:, 1:] == 1).all()
            assert not source[..., 2].any()
            assert source[..., 1].any()


@pytest.mark.parametrize("cls", KINDS)
def test_a_copying_cursor_stands_where_the_copied_token_stands(cls):
    """With certain copies and no sharpening, the stream is the wave of the copied token's count."""
    encoding = tiny(cls, copy_every=1, **({"gamma": 1.0} if cls is PRISM else {})).eval()
    (layer,) = encoding.layers
    x = torch.randn(1, 6, 6, dtype=D)
    with torch.no_grad():
        layer.copy_branch.null.bias.fill_(-1e4)
        layer.copy_branch.null.weight.zero_()
        streams, past = layer(x, context(x), None)
        copy, _ = layer.copy_branch(x, layer.features(x, context(x)), None, None, False)
    w = encoding.options.frequencies(torch.device("cpu")).to(D)
    total = layer.gate.cursors // 2
    for t in range(1, 6):
        for c in range(total):
            angle = torch.arange(1, t + 1)[:, None] * w
            wave = torch.cat([angle.cos(), angle.sin()], -1)
            want = copy.source[0, t, c, :t] @ wave
            torch.testing.assert_close(streams[0, t, c], want, atol=1e-5, rtol=0)
    count = torch.arange(1, 7)[:, None] * w  # every key cursor is fixed to counting
    want = torch.cat([count.cos(), count.sin()], -1)[:, None].expand(-1, total, -1)
    torch.testing.assert_close(streams[0, :, total:], want, atol=1e-5, rtol=0)
    assert past.seen.keys.shape[::2] == (1, 6)


@pytest.mark.parametrize("cls", KINDS)
def test_one_in_five_query_cursors_copies(cls):
    layer = tiny(cls, copy_every=5).layers[0]
    assert layer.copying == [0, 5, 10]  # 3 layers, 2 heads, 2 cursors
    x = torch.randn(1, 4, 6, dtype=D)
    ctx = context(x)
    reset, moves = layer.gates(layer.features(x, ctx), ctx)
    for c in range(24):
        fixed = c - 12 in (0, 5, 10)
        assert bool((reset[..., c] == 0).all()) == fixed
        assert bool((moves[..., c, 0] == 1).all()) == fixed


@pytest.mark.parametrize("cls", KINDS)
def test_gated_copies_have_noise_of_their_own(cls):
    options = {"copy_every": 2, "copy_gate": True, "gate_noise": 0.5}
    layer = tiny(cls, **options).train().layers[0]
    drawn = layer.noise((3, 4), 1.0, torch.manual_seed(0))
    assert drawn["cursors.0.copy_noise"].shape == (3, 4, len(layer.copying))
    x = torch.randn(3, 4, 6, dtype=D)
    quiet = {k: v for k, v in drawn.items() if k != "cursors.0.copy_noise"}
    one, two = (layer(x, context(x, drawn=some), None)[0] for some in (drawn, quiet))
    copying = torch.zeros(layer.gate.cursors, dtype=torch.bool)
    copying[layer.copying] = True
    differ = (one != two).any(-1).any(1).any(0)
    assert differ.tolist() == copying.tolist()


@pytest.mark.parametrize("cls", KINDS)
@pytest.mark.parametrize("controller", CONTROLLERS)
def test_a_training_step_leaves_the_controllers_state_alone(cls, controller, monkeypatch):
    encoding = tiny(cls, controller=controller)
    kind, asked = CONTROLLERS[controller], []
    last = kind.last
    monkeypatch.setattr(kind, "last", lambda *args: asked.append(1) or last(*args))
    x = torch.randn(1, 5, 6, dtype=D)
    logits(encoding.train(), x).sum().backward()
    encoding.penalty()
    assert not asked

    def decoded():
        memo = Memo()
        for t in range(5):
            ctx = Context(torch.arange(t + 1)[None], x=x[:, t : t + 1], n_new=1, memo=memo)
            encoding.prepare(ctx)
        return memo[f"{encoding.name}.0"].streams[0][0]

    quiet = {"gate_noise": 0.0, "state_noise": 0.0}
    encoding = tiny(cls, controller=controller, **quiet)
    with torch.no_grad():
        torch.testing.assert_close(decoded(), encoding.eval() and decoded())


@pytest.mark.parametrize("cls", KINDS)
def test_later_layers_of_cursors_read_the_residual_stream(cls):
    encoding = tiny(cls, before="0+2").eval()
    assert encoding.starts == [0, 2]
    assert [layer.gate.cursors for layer in encoding.layers] == [2 * 2 * 2 * 2, 2 * 1 * 2 * 2]
    x = torch.randn(1, 5, 6, dtype=D)
    with torch.no_grad():
        base = [logits(encoding, x, layer) for layer in range(3)]
        encoding.layers[1].gate.linear.weight.mul_(2)
        moved = [logits(encoding, x, layer) for layer in range(3)]
    assert [torch.equal(a, b) for a, b in zip(base, moved, strict=True)] == [True, True, False]
    e, _ = encoding.layers[1](encoding.norms[0](3 * x), context(x), None)
    e = e.view(1, 5, 2, 2, 2, 4)  # queries and keys, heads, cursors
    want = e * (4**0.5 / e.flatten(-2).norm(dim=-1))[..., None, None]
    ctx = encoding.prepare(context(x))
    encoding.transform(*torch.randn(2, 1, 2, 5, 4, dtype=D), ctx.at(2, 3 * x))
    ((_, keys),) = encoding.memory(1, ctx).streams
    torch.testing.assert_close(keys, want[:, :, 1].flatten(-2))


@pytest.mark.parametrize("cls", KINDS)
def test_a_second_derivative_that_is_not_there_is_said(cls):
    x = torch.randn(1, 4, 6, dtype=D, requires_grad=True)
    (first,) = torch.autograd.grad(logits(tiny(cls), x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.square().sum().backward()


def test_frequency_grids():
    cosine = CursorOptions(d_pe=8, similarity="cosine", base=10_000.0).frequencies()
    torch.testing.assert_close(cosine, torch.tensor([1.0, 0.1, 0.01, 0.001]))
    geometric = CursorOptions(d_pe=4, base=100.0, top=0.9).frequencies()
    torch.testing.assert_close(geometric, torch.tensor([0.9, 0.09]) * torch.pi)


def test_the_highest_frequency_tells_odd_from_even_offsets():
    w = CursorOptions(d_pe=32).frequencies()
    signs = torch.cos(w[0] * torch.arange(2001.0))
    torch.testing.assert_close(signs, torch.tensor([1.0, -1.0]).repeat(1001)[:2001])


@pytest.mark.parametrize("name", ["prism", "prism_spectral"])
@pytest.mark.parametrize("top", [0.0, 1.5])
def test_no_frequency_is_above_the_highest_that_integers_carry(name, top):
    with pytest.raises(ValueError, match="top must be above 0 and at most 1"):
        make(f"{name}(similarity=geometric,top={top})", Shape(32, 2, 16, 2, 16))
