import math
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import layer_norm, normalize

from pezoo import Context, Shape, make
from pezoo.encodings import path
from pezoo.encodings.path import reflected

D = torch.float64
SHAPE = Shape(d_model=8, n_heads=2, d_head=4, n_layers=2, train_len=8)


def test_it_is_the_attention_of_fla(oracles):
    data = oracles["path"]
    q, k, v, w, beta, want = (
        torch.tensor(data[name], dtype=D) for name in ("q", "k", "v", "w", "beta", "out")
    )
    hidden = torch.ones(7, 7, dtype=torch.bool).triu(1)
    scores = reflected(q, k, w, beta) / 2
    got = scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v
    torch.testing.assert_close(got, want, atol=1e-12, rtol=0)
    last = reflected(q[:, :, 5:], k, w, beta) / 2
    torch.testing.assert_close(last, scores[:, :, 5:], atol=1e-12, rtol=0)


def test_it_is_a_product_of_matrices_within_documents_and_without_padding():
    pos = torch.tensor([[-1, 0, 3, -1, 4, 0, 1, 2]])
    encoding = make("path(rank=3,kernel=2)", SHAPE).double()
    torch.nn.init.normal_(encoding.c)
    encoding.requires_grad_(False)
    x, (q, k) = torch.randn(1, 8, 8, dtype=D), torch.randn(2, 1, 2, 8, 4, dtype=D)
    got = encoding.scores(q, k, encoding.prepare(Context(pos, x=x)).at(1, x))
    normed = layer_norm(x, (8,))[0]
    rows = [encoding.u[1] @ (encoding.v[1] @ one) for one in normed]
    document = [0, 0, 0, 0, 0, 1, 1, 1]
    real = [n for n in range(8) if pos[0, n] >= 0]
    matrices = {}
    for n, at in enumerate(real):
        row = encoding.conv[1, :, 0] * rows[at]
        if n and document[real[n - 1]] == document[at]:
            row = row + encoding.conv[1, :, 1] * rows[real[n - 1]]
        for h in range(2):
            w = row.view(2, 4)[h]
            w = w / (1 + (-w).exp())  # SiLU, as in ShortConvolution of the authors' layer
            beta = 2 / (1 + math.exp(-float(encoding.a[1, h] @ normed[at] + encoding.c[1, h])))
            matrices[h, at] = torch.eye(4, dtype=D) - beta * torch.outer(w, w) / (w @ w + 1e-6)
    for h in range(2):
        for i in real:
            for j in (j for j in real if j <= i and document[i] == document[j]):
                key = k[0, h, j]
                for at in (at for at in real if j < at <= i):
                    key = matrices[h, at] @ key
                want = float(q[0, h, i] @ key) / 2
                assert got[0, h, i, j].item() == pytest.approx(want, abs=1e-11)


@settings(max_examples=40)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 9), st.integers(0, 1000))
def test_blocks_of_any_size_give_the_product_of_matrices(s, t, block, seed):
    t = min(s, t)
    generator = torch.Generator().manual_seed(seed)
    k, w = torch.randn(2, 2, 1, s, 3, generator=generator, dtype=D)
    q = torch.randn(2, 1, t, 3, generator=generator, dtype=D)
    beta = 2 * torch.rand(2, 1, s, generator=generator, dtype=D)
    w = normalize(w, dim=-1)
    with patch.object(path, "BLOCK", block):
        got = path.reflected(q, k, w, beta)
    assert got.shape == (2, 1, t, s)
    for row in range(t):
        passed = q[:, 0, row]  # (2, 3), as it goes back to earlier keys
        for key in reversed(range(s - t + row + 1)):
            want = (passed * k[:, 0, key]).sum(-1)
            torch.testing.assert_close(got[:, 0, row, key], want, atol=1e-11, rtol=0)
            own = w[:, 0, key]
            passed = passed - beta[:, 0, key, None] * (passed * own).sum(-1, keepdim=True) * own


@pytest.mark.parametrize("tokens", [(7, 7), (7, 2)])
def test_gradients_pass_through_blocks(tokens):
    s, t = tokens
    q, k, w = (torch.randn(1, 1, n, 2, dtype=D, requires_grad=True) for n in (t, s, s))
    beta = torch.rand(1, 1, s, dtype=D, requires_grad=True)
    seen = torch.ones(t, s, dtype=torch.bool).tril(s - t)
    with patch.object(path, "BLOCK", 3):
        assert torch.autograd.gradcheck(lambda *x: path.reflected(*x)[..., seen], (q, k, w, beta))


def test_without_reflections_it_is_the_product():
    encoding = make("path", SHAPE).double()
    torch.nn.init.zeros_(encoding.a)
    torch.nn.init.constant_(encoding.c, -1000)
    x, (q, k) = torch.randn(1, 8, 8, dtype=D), torch.randn(2, 1, 2, 8, 4, dtype=D)
    got = encoding.scores(q, k, encoding.prepare(Context(torch.arange(8)[None], x=x)).at(1, x))
    torch.testing.assert_close(got, q @ k.mT / 2, atol=1e-12, rtol=0)


def test_orthogonal_reflections_count_modulo_two():
    k, w = torch.zeros(1, 1, 6, 2, dtype=D), torch.zeros(1, 1, 6, 2, dtype=D)
    k[..., 0] = w[..., 0] = 1
    got = reflected(k, k, w, torch.full((1, 1, 6), 2.0, dtype=D))[0, 0]
    want = (-1.0) ** (torch.arange(6)[:, None] - torch.arange(6))
    torch.testing.assert_close(got.tril(), want.to(D).tril())
