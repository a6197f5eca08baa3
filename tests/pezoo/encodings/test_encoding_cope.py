import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from x_transformers.x_transformers import CoPE as Theirs

from pezoo.base import Context, Shape
from pezoo.encodings.cope import CoPE

SHAPE = Shape(d_model=8, n_heads=2, d_head=4, n_layers=2, train_len=10)
D = torch.float64


def made(max_pos=5):
    encoding = CoPE(SHAPE, max_pos=max_pos).double()
    with torch.no_grad():
        encoding.e.normal_()
    return encoding


def at(t, **fields):
    return Context(pos=torch.arange(t)[None], layer=1, **fields)


@pytest.mark.parametrize("max_pos", [3, 64])
def test_it_is_the_bias_of_x_transformers(max_pos):
    encoding, theirs = made(max_pos), Theirs(4, 2, max_pos).double()
    q, k = torch.randn(2, 3, 2, 9, 4, dtype=D)
    hidden = torch.ones(9, 9, dtype=torch.bool).triu(1)
    with torch.no_grad():
        theirs.pos_emb.copy_(encoding.e[1])
    want = theirs(q, (q @ k.mT / 2).masked_fill(hidden, -torch.inf))
    torch.testing.assert_close(encoding.bias(q, k, at(9)), want, atol=1e-12, rtol=0)


@given(pos=st.lists(st.sampled_from([-1, 0, 1, 2, 3, 4]), min_size=1, max_size=7))
@settings(max_examples=20)
def test_it_is_the_formula_within_documents_and_without_padding(pos):
    encoding, t = made(), len(pos)
    q, k = torch.randn(2, 1, 2, t, 4, dtype=D)
    ctx = Context(pos=torch.tensor([pos]), layer=1)
    got, document = encoding.bias(q, k, ctx), ctx.document[0].tolist()
    e = encoding.e[1].detach()
    for h in range(2):
        for i in range(t):
            p = 0.0
            for j in range(i, -1, -1):
                seen = document[i] == document[j] and pos[j] >= 0
                if not (seen or i == j):
                    continue
                p += 1 / (1 + math.exp(-float(q[0, h, i] @ k[0, h, j]) / 2))
                at_p = min(p, 4.0)
                low, part = int(at_p), at_p - int(at_p)
                want = float(q[0, h, i] @ ((1 - part) * e[low] + part * e[min(low + 1, 4)]))
                assert got[0, h, i, j].item() == pytest.approx(want, abs=1e-11)


def test_with_all_gates_1_it_is_a_learned_vector_per_distance():
    encoding, q = made(), torch.rand(1, 2, 8, 4, dtype=D) + 0.5
    got = encoding.bias(q, 1000 * torch.ones_like(q), at(8))
    row = (torch.arange(8)[:, None] - torch.arange(8) + 1).clamp(0, 4)
    want = torch.einsum("bhtk,tsk->bhts", q, encoding.e[1][row])
    torch.testing.assert_close(got.tril(), want.tril(), atol=1e-12, rtol=0)


def test_it_starts_as_nothing_with_gates_that_count_half():
    encoding, q = CoPE(SHAPE), torch.randn(1, 2, 300, 4)
    assert not encoding.bias(q, q, at(300)).any()
    p = encoding.counts(q, torch.zeros_like(q), at(300))
    assert p[0, 0, -1, -4:].tolist() == [2.0, 1.5, 1.0, 0.5]
    assert p[0, 0, -1, 0] == 63
