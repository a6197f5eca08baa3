import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pezoo.base import Context, Shape
from pezoo.encodings.ideal import RELATIONS, Ideal

SHAPE = Shape(d_model=8, n_heads=2, d_head=4, n_layers=2, train_len=10)
ANSWERS = {
    "copy": lambda x: x,
    "reverse": lambda x: x[::-1],
    "odds_first": lambda x: x[1::2] + x[0::2],
}


def test_every_relation_has_its_answer():
    assert RELATIONS.keys() == ANSWERS.keys()


@settings(max_examples=30, deadline=None)
@given(relation=st.sampled_from(sorted(ANSWERS)), n=st.integers(1, 12), padding=st.integers(0, 3))
def test_the_marked_key_is_the_token_to_write(relation, n, padding):
    """Each query marks one key, the one whose token comes next; queries of the prompt and after
    the answer mark none."""
    pos = torch.arange(2 * n + 1 + padding)[None] - padding
    ctx = Context(pos=pos.clamp(min=-1), scale=torch.tensor([n]))
    phi = Ideal(SHAPE, relation=relation).phi(ctx)[0, padding:, padding:]
    marked = [row.nonzero()[:, 0].tolist() for row in phi]
    assert marked == [[]] * n + [[j] for j in ANSWERS[relation](list(range(n)))] + [[]]


@pytest.mark.parametrize("scale", [torch.tensor([3]), torch.tensor([3, 2])])
def test_it_is_the_formula(scale):
    encoding = Ideal(SHAPE, relation="reverse")
    q, k = torch.randn(2, 2, 2, 7, 4).unbind(0)
    ctx = Context(pos=torch.arange(7)[None], layer=1, scale=scale, n_new=4)
    got = encoding.bias(q[:, :, 3:], k, ctx)
    p = encoding.p.detach()
    for b in range(2):
        n = int(scale.expand(2)[b])
        for i in range(3, 7):
            for j in range(7):
                value = int(n <= i < 2 * n and i + j == 2 * n - 1)
                want = (q[b, :, i] * p[1, value]).sum(-1) / 2
                torch.testing.assert_close(got[b, :, i - 3, j].detach(), want)


def test_without_a_scale_it_says_what_is_missing():
    with pytest.raises(ValueError, match=r"set ctx\.scale"):
        Ideal(SHAPE).prepare(Context(pos=torch.arange(3)[None]))


def test_an_unknown_relation_names_the_nearest():
    with pytest.raises(ValueError, match="unknown relation 'revers'; did you mean reverse"):
        Ideal(SHAPE, relation="revers")
