"""PRISM against loops, enumerations and the formulas of its paper, in float64."""

import math

import pytest
import torch

from pezoo.base import Context, Pass, Shape
from pezoo.encodings.prism import PRISM
from pezoo.registry import expand, make
from pezoo.spec import parse

torch.set_num_threads(1)
D = torch.float64
BASE = 10_000.0
SMALL = Shape(6, 2, 4, 2, 8)
PLAIN = expand(parse("prism_2025")).options | {"key_bias": 2.0, "reset_bias": -2.0}
SIZES = {"cursors": 2, "d_pe": 4, "hidden": 5}


def tiny(seed=0, shape=SMALL, **options):
    torch.manual_seed(seed)
    prism = PRISM(shape, **{**PLAIN, **SIZES, **options}).double()
    with torch.no_grad():
        for parameter in prism.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return prism


def score(prism, x, q, k, layer, pos=None):
    pos = torch.arange(x.shape[1])[None] if pos is None else pos
    ctx = prism.prepare(Context(pos=pos, x=x))
    q, k = prism.transform(q, k, ctx.at(layer, x))
    return q @ k.mT * prism.shape.d_head**-0.5


def oracle(prism, x, q, k, layer):
    """Algorithms 2 to 4 and Equation 9, one number at a time, from the gates of the module."""
    b, t, _ = x.shape
    shape, own, (cursors,) = prism.shape, prism.options, prism.layers
    d_pe = own.d_pe
    ctx = Pass(pos=torch.arange(t)[None], x=x)
    reset, moves = cursors.gates(cursors.features(x, ctx), ctx)
    gates = [gate.tolist() for gate in (reset, moves[..., 0], moves[..., 1])]
    gamma = None if cursors.scan.gamma is None else cursors.scan.gamma.tolist()

    def wave(d):
        freq = [BASE ** (-2 * m / d_pe) for m in range(d_pe // 2)]
        return [math.sin(d * w) for w in freq] + [math.cos(d * w) for w in freq]

    def histograms(row, cursor):
        h, rows = {0: 1.0}, []
        for step in range(t):
            r, up, down = (gate[row][step][cursor] for gate in gates)
            new = {}
            for offset, mass in h.items():
                for start, share in ((offset, 1 - r), (0, r)):
                    for move, chance in ((1, up), (-1, down), (0, 1 - up - down)):
                        new[start + move] = new.get(start + move, 0) + mass * share * chance
            if gamma is not None:
                raised = {d: (p + cursors.scan.eps) ** gamma[cursor] for d, p in new.items()}
                new = {d: p / sum(raised.values()) for d, p in raised.items()}
            h = new
            rows.append(h)
        return rows

    def streams(row, side, head):  # [t][c][d_pe]
        positions, ahead = [], [0.0] * own.cursors
        if prism.lead is not None and side == 0:
            ahead = prism.lead[layer, head].tolist()
        for c in range(own.cursors):
            cursor = ((side * shape.n_layers + layer) * shape.n_heads + head) * own.cursors + c
            positions.append(histograms(row, cursor))
        out = []
        for step in range(t):
            e = []
            for c, rows in enumerate(positions):
                waves = [[p * v for v in wave(d + ahead[c])] for d, p in rows[step].items()]
                e.append([sum(column) for column in zip(*waves, strict=True)])
            factor = math.sqrt(d_pe) / math.sqrt(sum(v * v for one in e for v in one))
            out.append([[v * factor for v in one] for one in e])
        return out

    logits = torch.zeros(b, shape.n_heads, t, t, dtype=D)
    for row in range(b):
        for head in range(shape.n_heads):
            e_q, e_k = streams(row, 0, head), streams(row, 1, head)
            mu = 1 / (1 + math.exp(-float(prism.mu[layer, head])))
            for i in range(t):
                for j in range(t):
                    content = float(q[row, head, i] @ k[row, head, j]) / math.sqrt(shape.d_head)
                    position = 0.0
                    for c in range(own.cursors):
                        terms = [a * z for a, z in zip(e_q[i][c], e_k[j][c], strict=True)]
                        inner = sum(terms)
                        if prism.top_weight is not None:
                            more = float(prism.top_weight[layer, head, c]) - 1
                            inner += more * (terms[0] + terms[d_pe // 2])
                        position += abs(float(prism.alpha[layer, head, c])) * inner
                    position /= math.sqrt(own.cursors * d_pe)
                    logits[row, head, i, j] = mu * content + (1 - mu) * position
    return logits


@pytest.mark.parametrize("gamma", [1.0, 2.0])
def test_the_score_is_equation_9(gamma):
    prism = tiny(gamma=gamma)
    x = torch.randn(2, 5, 6, dtype=D)
    q, k = torch.randn(2, 2, 2, 5, 4, dtype=D).unbind(0)
    with torch.no_grad():
        for layer in range(2):
            got, want = score(prism, x, q, k, layer), oracle(prism, x, q, k, layer)
            torch.testing.assert_close(got, want, atol=1e-6, rtol=1e-5)  # sinusoids are float32


@pytest.mark.parametrize(("learned", "without"), [("top_weight", 1.0), ("lead", 0.0)])
def test_a_pair_may_have_a_weight_for_the_highest_frequency_and_a_lead(learned, without):
    prism = tiny(top_weight=4.0, lead=learned == "lead")
    own = getattr(prism, learned)
    assert own.shape == prism.alpha.shape
    (group,) = prism.param_groups()
    assert group.params == [p for p in (prism.alpha, prism.top_weight, prism.lead) if p is not None]
    assert (group.lr, group.betas) == (0.03, (0.8, 0.92))
    x = torch.randn(2, 5, 6, dtype=D)
    q, k = torch.randn(2, 2, 2, 5, 4, dtype=D).unbind(0)
    with torch.no_grad():
        plain = tiny(top_weight=4.0) if learned == "lead" else tiny()
        assert plain.load_state_dict(prism.state_dict(), strict=False).unexpected_keys == [learned]
        own.fill_(without)
        torch.testing.assert_close(score(prism, x, q, k, 1), score(plain, x, q, k, 1))
        own.copy_(torch.randn_like(own))
        for layer in range(2):
            got, want = score(prism, x, q, k, layer), oracle(prism, x, q, k, layer)
            torch.testing.assert_close(got, want, atol=1e-6, rtol=1e-5)
    (group,) = tiny().param_groups()
    assert len(group.params) == 1


def test_the_penalty():
    fresh = make("prism_2025(d_pe=4,hidden=6)", SMALL)
    assert fresh.penalty().item() == pytest.approx(0, abs=1e-10)
    assert make("prism_2025(d_pe=4,hidden=6,orthogonal=0)", SMALL).penalty() is None
    prism = tiny(orthogonal=0.25)
    recurrent = prism.layers[0].controller.gru.weight_hh_l0
    weight, want = recurrent.detach(), 0.0
    for block in range(3):
        w = weight[5 * block : 5 * block + 5]
        for i in range(5):
            for j in range(5):
                want += (float(w[i] @ w[j]) - (i == j)) ** 2
    assert prism.penalty().item() == pytest.approx(0.25 * want)
    prism.penalty().backward()
    assert recurrent.grad.abs().max() > 0
    assert PRISM(SMALL, orthogonal=0.25).penalty() is None


def test_sharpness_starts_at_gamma():
    (layer,) = PRISM(SMALL, gamma=3.5, copy_every=0).layers
    torch.testing.assert_close(layer.scan.gamma, torch.full((24,), 3.5))
    (layer,) = PRISM(SMALL, gamma=1.0, copy_every=0).layers
    assert layer.scan.gamma is None
    torch.testing.assert_close(tiny().layers[0].scan.gamma >= 1, torch.ones(16, dtype=torch.bool))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cursors": 0}, "cursors"),
        ({"d_pe": 7}, "even"),
        ({"gamma": 0.5}, "gamma must be at least 1"),
        ({"similarity": "cosin"}, "did you mean cosine"),
        ({"controller": "lstm"}, "unknown controller 'lstm'"),
        ({"controller": "latch", "window": 0}, "window must be at least 1"),
        ({"cursors": 10**9}, "cursors must be at most 1000"),
        ({"before": "1"}, "before must begin with layer 0"),
        ({"before": "0+x"}, "before must begin with layer 0"),
        ({"before": "0+2"}, "needs 3 layers, the model has 2"),
        ({"copy_every": -1}, "copy_every must be at least 0"),
        ({"eps": 0.0}, "eps must be above 0"),
        ({"base": -3.0}, "base must be above 0 and finite"),
        ({"base": float("inf")}, "base must be above 0 and finite"),
        ({"controller": "latch", "hidden": 0}, "hidden must be at least 1"),
        ({"gate_scale": 0.0}, "gate_scale must be above 0"),
        ({"gate_noise": -0.5}, "gate_noise must be at least 0"),
        ({"state_noise": -0.5}, "state_noise must be at least 0"),
        ({"orthogonal": -1.0}, "orthogonal must be at least 0"),
    ],
)
def test_options_out_of_range(options, words):
    with pytest.raises(ValueError, match=words):
        PRISM(SMALL, **options)


def test_of_three_cursors_one_looks_up_and_two_walk():
    torch.manual_seed(0)
    prism = PRISM(Shape(64, 4, 16, 2, 20)).eval()
    assert (prism.options.d_pe, prism.options.hidden) == (32, 100)  # from d_head and d_model
    (layer,) = prism.layers
    assert layer.copying == list(range(0, 24, 3))
    x = torch.zeros(1, 1, 64)
    with torch.no_grad():
        layer.gate.linear.weight.zero_()
        ctx = Pass(pos=torch.zeros(1, 1, dtype=torch.long), x=x)
        _, moves = layer.gates(layer.features(x, ctx), ctx)
    walking = [c for c in range(24) if c % 3]
    steps = moves[0, 0].argmax(-1)
    assert steps[walking].tolist() == [i % 5 for i in range(16)]  # +1, -1, +2, -2, 0
    assert moves[0, 0, walking].max(-1).values.min() > 0.9
    assert moves[0, 0, layer.copying].max() < 0.3
    assert steps[24:].tolist() == [0] * 24  # all keys count


def test_the_papers_cursors_start_undecided():
    torch.manual_seed(0)
    (layer,) = make("prism_2025(d_pe=8)", SMALL).layers
    assert not layer.copying
    assert layer.gate.linear.bias.abs().max() <= 0.1  # 1/sqrt(100), where prism's adds 2
    torch.testing.assert_close(layer.scan.gamma, torch.full((32,), 2.0))
