import math

import pytest
import torch
from torch.nn.functional import layer_norm, logsigmoid, rms_norm

from pezoo import Context, Shape, make
from pezoo.encodings.alibi import slopes

D = torch.float64
SHAPE = Shape(d_model=8, n_heads=2, d_head=4, n_layers=2, train_len=8)


def bias(encoding, x, pos=None):
    pos = torch.arange(x.shape[1])[None] if pos is None else pos
    q = torch.zeros(1, 2, x.shape[1], 4, dtype=D)
    return encoding.bias(q, q, encoding.prepare(Context(pos, x=x)).at(1, x))


def test_it_is_the_formula_within_documents_and_without_padding():
    pos = torch.tensor([[-1, 0, 3, -1, 4, 0, 1, 2]])
    encoding, x = make("grape(width=6)", SHAPE).double(), torch.randn(1, 8, 8, dtype=D)
    got, m = bias(encoding, x, pos), slopes(2).tolist()
    document, p = [0, 0, 0, 0, 0, 1, 1, 1], [int(one) for one in pos[0]]
    normed = layer_norm(x, (8,))[0]
    for h in range(2):
        own = [rms_norm(encoding.w[1, h] @ one, (6,)).tolist() for one in normed]
        turned = []
        for at, one in zip(p, own, strict=True):
            c, s = math.cos(at), math.sin(at)
            turned.append(
                [one[n] * c + one[n + 3] * s for n in range(3)]
                + [one[n + 3] * c - one[n] * s for n in range(3)]
            )
        for i in range(8):
            for j in range(i + 1):
                if p[i] < 0 or p[j] < 0 or document[i] != document[j]:
                    continue
                want = 0.0
                for at in range(j + 1, i + 1):
                    if p[at] >= 0:
                        dot = sum(a * b for a, b in zip(own[i], turned[at], strict=True)) / 6
                        want += m[h] * -math.log1p(math.exp(-dot))
                assert got[0, h, i, j].item() == pytest.approx(want, abs=1e-6)


def test_it_is_the_authors_code(oracles):
    data = oracles["grape"]
    x, w, want = (torch.tensor(data[name], dtype=D) for name in ("x", "w", "bias"))
    encoding = make("grape(width=4)", SHAPE).double()
    mean, std = x.mean(-1, keepdim=True), x.std(-1, keepdim=True, correction=0)
    rest = torch.linalg.lstsq(layer_norm(x, (8,))[0], x[0] @ w.flatten(0, 1).mT).solution
    with torch.no_grad():
        encoding.w[1] = rest.mT.view(2, 4, 8)
    assert mean.abs().max() > 0.1 < (std - 1).abs().max()
    torch.testing.assert_close(bias(encoding, x).tril(), want, atol=1e-6, rtol=0)


def test_without_weights_it_is_alibi():
    encoding, x = make("grape", SHAPE).double(), torch.randn(1, 8, 8, dtype=D)
    torch.nn.init.zeros_(encoding.w)
    want = math.log(2) * bias(make("alibi", SHAPE), x)
    torch.testing.assert_close(bias(encoding, x).tril(), want.tril().to(D), atol=1e-8, rtol=0)


def test_with_gates_of_the_token_alone_it_is_fox():
    encoding, fox = (make(text, SHAPE).double() for text in ("grape(bias=gate)", "fox(start=1)"))
    with torch.no_grad():
        encoding.w.copy_(fox.w[:, :, None])
        encoding.b.copy_(fox.b[:, :, None])
    x, pos = torch.randn(1, 8, 8, dtype=D), torch.tensor([[-1, 0, 1, 2, -1, 3, 4, 5]])
    got, want = bias(encoding, x, pos), bias(fox, x, pos)
    real = pos[0] >= 0
    got, want = (one[..., real, :][..., real].tril() for one in (got, want))
    torch.testing.assert_close(got, want, atol=1e-12, rtol=0)
    gate = logsigmoid(layer_norm(x, (8,))[0, 3] @ fox.w[1, 0] + 1)
    assert got[0, 0, 2, 1].item() == pytest.approx(gate.item())


def test_rotary_starts_as_rope():
    q, k = torch.randn(2, 1, 2, 3, 4, dtype=D)
    ctx = Context(torch.tensor([[0, 7, 300]]))
    got, want = (
        (one := make(text, SHAPE)).transform(q, k, one.prepare(ctx).at(1, None))
        for text in ("grape(bias=none,rotary=true,base=500)", "rope(base=500,layout=half)")
    )
    torch.testing.assert_close(got, want, atol=1e-4, rtol=0)
