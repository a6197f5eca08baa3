"""Pictures of cursors against plain loops over the gates and against the score itself."""

from dataclasses import replace

import pytest
import torch

import pezoo
from pezoo.base import Pass, Shape
from pezoo.cursors.positions import Gates
from pezoo.kernels.histogram import Copy

SHAPE = Shape(d_model=16, n_heads=2, d_head=8, n_layers=2, train_len=16)
KINDS = (
    "prism_2025(cursors=2,d_pe=8,hidden=6,gamma=1.5)",
    "prism_2025(cursors=1,d_pe=8,hidden=6,gamma=1.0,controller=latch)",
    "prism_2025(cursors=2,d_pe=8,hidden=6,copy_every=2,before=0+1)",
    "prism_spectral(cursors=1,d_pe=8,hidden=6)",
    "prism_spectral(cursors=2,d_pe=8,hidden=6,stride=2,copy_every=3)",
    "randomized:prism_2025(cursors=1,d_pe=8,hidden=6)",
)


def made(text, seed=0):
    torch.manual_seed(seed)
    encoding = pezoo.make(text, SHAPE).eval()
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return encoding


def run(encoding, t=7, mode=None):
    """The contexts of both layers after a pass over t tokens, and the encoding's pictures."""
    x = torch.randn(1, t, SHAPE.d_model)
    ctx = Pass(torch.arange(t)[None], x=x, mode=mode)
    ctx = replace(ctx, drawn=encoding.draw(ctx, generator=torch.Generator().manual_seed(0)))
    layers = []
    with torch.no_grad():
        ctx = encoding.prepare(ctx)
        for i in range(SHAPE.n_layers):
            layers.append(ctx.at(i, x if i == 0 else torch.randn_like(x)))
            q, k = torch.randn(2, 1, SHAPE.n_heads, t, SHAPE.d_head)
            encoding.transform(q, k, layers[-1])
    found = encoding.pictures(layers)
    return layers, {picture.title: picture for picture in found}


def walked(reset, moves, steps, copy=None):
    """Pr(offset) after each token as dicts, token by token: reset first, then move, or copy."""
    now, rows = {0: 1.0}, []
    for t in range(len(reset)):
        after = {}
        for where, p in now.items():
            for start, share in ((0, reset[t]), (where, 1 - reset[t])):
                for step, chance in zip(steps, moves[t], strict=True):
                    goal = start + step
                    after[goal] = after.get(goal, 0.0) + p * float(share) * float(chance)
        if copy is not None:
            none, source = copy
            after = {d: p * float(none[t]) for d, p in after.items()}
            for j, p in enumerate(source[t]):
                after[j + 1] = after.get(j + 1, 0.0) + float(p)
        now = after
        rows.append(now)
    return rows


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("prism_2025(cursors=1,d_pe=8,hidden=6,gamma=1.0)", (1, -1, 0)),
        ("prism_spectral(cursors=1,d_pe=8,hidden=6,stride=1,copy_every=1)", (1, -1, 0)),
        (
            "prism_spectral(cursors=1,d_pe=8,hidden=6,stride=3,copy_every=1)",
            (1, -1, 2, -2, 3, -3, 0),
        ),
    ],
)
@pytest.mark.parametrize("copying", [False, True])
@pytest.mark.parametrize("t", [1, 2, 9])
def test_positions_are_those_of_a_walk(text, steps, copying, t):
    scan = made(text).layers[0].scan
    reset = torch.rand(1, t, 3)
    moves = torch.rand(1, t, 3, len(steps)).softmax(-1)
    copy = None
    if copying:
        p = torch.rand(1, t, 3, t).tril(-1) / t
        p = torch.where(torch.arange(t) < torch.arange(t)[:, None, None], p, 0.0)
        copy = Copy(1 - p.sum(-1), p)
    h, offsets = scan.positions(Gates(reset, moves, None, copy))
    torch.testing.assert_close(h.sum(-1), torch.ones_like(reset), atol=1e-6, rtol=0)
    for c in range(3):
        own = None if copy is None else (copy.none[0, :, c], copy.source[0, :, c])
        for row, expected in zip(
            h[0, :, c], walked(reset[0, :, c], moves[0, :, c], steps, own), strict=True
        ):
            for d, p in zip(offsets.tolist(), row.tolist(), strict=True):
                assert p == pytest.approx(expected.get(d, 0.0), abs=1e-6)
            assert {d for d, p in expected.items() if p > 0} <= set(offsets.tolist())


@pytest.mark.parametrize("text", KINDS)
@pytest.mark.parametrize("t", [1, 7])
def test_pictures_of_every_kind(text, t):
    _, found = run(made(text), t)
    inner = made(text)
    inner = getattr(inner, "inner", inner)
    groups = [""] if len(inner.starts) == 1 else [f", cursors before layer {s}" for s in (0, 1)]
    for suffix in groups:
        gates = found[f"Gates{suffix}"]
        assert gates.panels[:4] == ("reset", "increment", "decrement", "keep")
        assert bool(((gates.values >= 0) & (gates.values <= 1)).all())
        torch.testing.assert_close(gates.values[1:].sum(0), torch.ones_like(gates.values[0]))
        held, modes = (
            found[f"Positions that cursors hold{suffix}"],
            found[f"Most probable positions{suffix}"],
        )
        mass = held.values.sum(1)
        assert bool((mass < 1 + 1e-4).all())
        assert bool((mass > 0.9).all())  # what is cut off is little
        offsets = torch.tensor([float(d) for d in held.rows.ticks])
        assert offsets.tolist() == sorted(offsets.tolist(), reverse=True)
        at_marks = offsets[held.lines]  # queries and keys in turn
        torch.testing.assert_close(at_marks[0::2], modes.values[0])
        torch.testing.assert_close(at_marks[1::2], modes.values[1])
    assert ("Copy branch" in " ".join(found)) == bool(inner.options.copy_every)
    sharpens = "spectral" not in text and "gamma=1.0" not in text
    assert any("gamma" in title for title in found) == sharpens


def test_a_copy_is_of_an_earlier_token():
    """Without a copy the picture is empty; a row and the probability of no copy sum to 1."""
    encoding = made("prism_2025(cursors=2,d_pe=8,hidden=6,copy_every=3)")
    (ctx, _), found = run(encoding)
    (layer,) = encoding.layers
    with torch.no_grad():
        mask = torch.ones(1, 7, dtype=torch.bool)
        copy, _ = layer.copy_branch(ctx.x, layer.features(ctx.x, ctx), mask, None, False)
    picture = found["Copy branch"]
    assert picture.panels == tuple(
        f"layer {i}, head {h}, cursor {c}" for i, h, c in ((0, 0, 0), (0, 1, 1), (1, 1, 0))
    )
    earlier = torch.ones(7, 7).tril(-1).bool()
    assert bool((picture.values.isnan() == ~earlier).all())
    sums = picture.values.nan_to_num().sum(-1)
    torch.testing.assert_close(sums, 1 - copy.none[0].T, atol=1e-6, rtol=0)


@pytest.mark.parametrize("text", KINDS)
def test_attention_by_position_alone_is_what_silent_content_gives(text):
    encoding = made(text)
    layers, found = run(encoding)
    expected = []
    zeros = torch.zeros(1, SHAPE.n_heads, 7, SHAPE.d_head)
    for ctx in layers:
        with torch.no_grad():
            q, k = encoding.transform(zeros, zeros, ctx)
        score = (q @ k.mT)[0] / SHAPE.d_head**0.5
        rows = torch.full_like(score, torch.nan)
        for h in range(SHAPE.n_heads):
            for i in range(7):
                rows[h, i, : i + 1] = score[h, i, : i + 1].softmax(0)
        expected.append(rows)
    values = found["Attention by position alone"].values
    torch.testing.assert_close(values, torch.cat(expected), equal_nan=True, atol=1e-5, rtol=1e-4)


def test_the_importance_of_panels_is_the_spread_of_each_cursors_score():
    encoding = made("prism_2025(cursors=2,d_pe=8,hidden=6)")
    layers, found = run(encoding)
    expected = []
    for ctx in layers:
        e_q, e_k = encoding.memory(0, ctx).streams[ctx.layer]
        for head in range(SHAPE.n_heads):
            for c in range(2):
                own = slice(8 * c, 8 * c + 8)
                deviations = []
                for i in range(7):
                    scores = [
                        float(e_q[0, i, head, own] @ e_k[0, j, head, own]) / 8**0.5
                        for j in range(i + 1)
                    ]
                    deviations.append(torch.tensor(scores).std(correction=0))
                expected.append(torch.stack(deviations).mean())
    importance = found["Positions that cursors hold"].importance
    torch.testing.assert_close(importance[0::2], torch.stack(expected), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(importance[0::2], importance[1::2])


def test_snapped_gates_are_shown_snapped():
    _, found = run(made("prism_2025(cursors=2,d_pe=8,hidden=6)"), mode="snapped")
    assert set(found["Gates"].values.unique().tolist()) <= {0.0, 1.0}
    assert set(found["Positions that cursors hold"].values.round(decimals=4).unique().tolist()) == {
        0.0,
        1.0,
    }


def test_constants():
    encoding = made("prism_2025(cursors=2,d_pe=8,hidden=6)")
    _, found = run(encoding)
    mu = found["Content against position: mu"]
    assert mu.values[1, 0, 0] == encoding.mu[1, 0].sigmoid()
    weights = found["Weights of the cursors: (1 - mu) |alpha|"]
    assert weights.columns.ticks == ("0.0", "0.1", "1.0", "1.1")
    expected = (1 - encoding.mu[0, 1].sigmoid()) * encoding.alpha[0, 1, 1].abs()
    torch.testing.assert_close(weights.values[0, 0, 3], expected.detach())
    gamma = found["Sharpness of the cursors: gamma"]
    torch.testing.assert_close(gamma.values.flatten(), encoding.layers[0].scan.gamma.detach())
    assert "Leads of the cursors" not in found


def test_leads_are_shown_where_they_are_learned():
    encoding = made("prism_2025(cursors=2,d_pe=8,hidden=6,lead=true)")
    torch.nn.init.normal_(encoding.lead)
    _, found = run(encoding)
    leads = found["Leads of the cursors"]
    assert leads.columns.ticks == ("0.0", "0.1", "1.0", "1.1")
    assert not any(picture.values.requires_grad for picture in found.values())
    torch.testing.assert_close(leads.values[1, 0], encoding.lead[1].flatten().detach())


def test_gamma_of_copying_cursors_stands_under_their_own_names():
    encoding = made("prism_2025(cursors=2,d_pe=8,hidden=6,copy_every=3)")
    layer = encoding.layers[0]
    with torch.no_grad():
        layer.copy_scan.raw_gamma.fill_(3.0)
        layer.scan.raw_gamma.fill_(-1.0)
    _, found = run(encoding)
    values = found["Sharpness of the cursors: gamma"].values
    high = (values > 2).nonzero()
    assert [(int(role), int(cursor)) for role, _, cursor in high] == [(0, c) for c in (0, 3, 6)]
