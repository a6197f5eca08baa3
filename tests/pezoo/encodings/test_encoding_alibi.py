import pytest
import torch

from pezoo.base import Pass, Shape
from pezoo.encodings.alibi import ALiBi, slopes


def bias(heads, t, asymmetric=False, distances=None, pos=None, dtype=torch.float32):
    encoding = ALiBi(Shape(8, heads, 4, 1, 10), asymmetric=asymmetric)
    pos = torch.arange(t)[None] if pos is None else pos
    q = torch.zeros(1, heads, t, 4, dtype=dtype)
    return encoding.bias(q, q, Pass(pos=pos, distances=distances))


@pytest.mark.parametrize("heads", [1, 2, 3, 4, 6, 8, 12, 16])
def test_reference_slopes(reference, heads):
    torch.testing.assert_close(
        slopes(heads), reference["alibi"]["slopes"][str(heads)], rtol=1e-6, atol=0
    )


def test_slopes_of_8_heads_as_in_the_paper():
    assert slopes(8).tolist() == [2**-h for h in range(1, 9)]


@pytest.mark.parametrize("asymmetric", [False, True])
def test_it_is_the_formula(asymmetric):
    pos = torch.tensor([[0, 1, 5, 6], [-1, 0, 1, 900]])
    got = bias(3, 4, asymmetric, pos=pos)
    for b in range(2):
        for h, m in enumerate([1 / 16, 1 / 256, 1 / 4]):
            for i in range(4):
                for j in range(4):
                    p, r = int(pos[b, i]), int(pos[b, j])
                    want = -m * (abs(p - r) - (0.5 if asymmetric and r < p else 0))
                    assert got[b, h, i, j].item() == want


def test_reference_plain_and_sampled(reference):
    want, inputs = reference["alibi"], reference["inputs"]
    zero = torch.zeros(1, dtype=torch.long)
    right, left = (
        bias(2, 7, True, torch.cat([zero, inputs[name]]))[0]
        for name in ("distances", "left_distances")
    )
    torch.testing.assert_close(bias(2, 7, True)[0], want["plain"])
    torch.testing.assert_close(bias(8, 5, True)[0], want["plain_8_heads_T5"])
    torch.testing.assert_close(right, want["sampled"])
    both = torch.where(torch.ones(7, 7).tril(-1).bool(), left, right)
    torch.testing.assert_close(both, want["sampled_both_sides"])


def test_half_precision_rounds_nothing_before_attention():
    pos = torch.arange(30_000, 30_020)[None]
    assert torch.equal(bias(3, 20, pos=pos, dtype=torch.bfloat16), bias(3, 20, pos=pos))


@pytest.mark.parametrize("heads", range(1, 41))
def test_every_head_has_a_slope_of_its_own(heads):
    assert len(slopes(heads)) == len(set(slopes(heads).tolist())) == heads
