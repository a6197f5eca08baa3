from unittest.mock import patch

import pytest
import torch
from torch.nn.functional import layer_norm

from pezoo import Context, Memo, Shape, attention, make

D = torch.float64
SHAPE = Shape(d_model=16, n_heads=2, d_head=4, n_layers=4, train_len=8)
POS = torch.tensor([[-1, -1, 0, 1, 4, 5, 0, 1, 2]])  # left padding, then two documents


def made(text="repo(base=100)"):
    encoding = make(text, SHAPE).double()
    for one in encoding.parameters():
        torch.nn.init.normal_(one)
    return encoding.requires_grad_(False)


def theirs(encoding, q, x, layer):
    """The steps of dynamic_position_encoding_swigluex_multihead and apply_rotary_pos_emb."""
    hidden, at = layer_norm(x, (16,)), layer - 1
    gate = hidden @ encoding.gate[at].mT
    content = hidden @ encoding.content[at].mT
    z = ((gate / (1 + (-gate).exp()) * content) @ encoding.w[at].mT).transpose(-1, -2)
    frequencies = 1 / 100 ** (torch.arange(0, 4, 2, dtype=D) / 4)
    angle = z[..., None] * torch.cat([frequencies, frequencies])
    halves = q.unflatten(-1, (2, 2))
    turned = torch.cat([-halves[..., 1, :], halves[..., 0, :]], -1)
    return q * angle.cos() + turned * angle.sin()


@pytest.mark.parametrize("steps", [[9], [1] * 9])
def test_it_is_the_authors_code(steps):
    encoding, x, memo, end = made(), torch.randn(1, 9, 16, dtype=D), Memo(), 0
    q, k = torch.randn(1, 2, 9, 4, dtype=D), torch.randn(1, 1, 9, 4, dtype=D)
    for step in steps:
        start, end = end, end + step
        ctx = encoding.prepare(Context(POS[:, :end], x=x[:, start:end], n_new=step, memo=memo))
        parts = q[:, :, start:end], k[:, :, start:end]
        got = encoding.transform(*parts, ctx.at(3, x[:, start:end]))
        for own, part in zip(got, parts, strict=True):
            want = theirs(encoding, part.expand(-1, 2, -1, -1), x[:, start:end], 3)
            torch.testing.assert_close(own, want, atol=1e-5, rtol=0)


def test_at_the_tokens_positions_it_is_rope_and_at_none_nope():
    x, (q, k, v) = torch.randn(1, 9, 16, dtype=D), torch.randn(3, 1, 2, 9, 4, dtype=D)
    rope, still = "rope(base=100,layout=half)", made("repo(plain=0)")
    still.w.zero_()
    for encoding, other in ((made("repo(base=100,plain=4)"), rope), (still, "nope")):
        got, want = (attention(q, k, v, e, POS, x) for e in (encoding, make(other, SHAPE)))
        torch.testing.assert_close(got, want, atol=1e-6, rtol=0)
    with patch.object(type(still), "positions", lambda self, ctx: ctx.query_pos[:, None].double()):
        got = attention(q, k, v, made("repo(base=100,plain=0)"), POS, x)
    torch.testing.assert_close(
        got, attention(q, k, v, make(rope, SHAPE), POS, x), atol=1e-6, rtol=0
    )


def test_the_first_5_of_16_layers_are_rope():
    assert [make("repo", SHAPE.replaced(n_layers=n)).plain for n in (2, 4, 16)] == [0, 1, 5]
    with pytest.raises(ValueError, match="plain in 0"):
        make("repo(plain=5)", SHAPE)
    wide = make("repo", SHAPE.replaced(d_model=512))
    assert wide.gate.shape == (3, 64, 512)
    for one in (wide.gate, wide.content, wide.w):  # init_std of their config
        assert one.std().item() == pytest.approx(0.02, rel=0.15)
