import pytest
import torch

from pezoo import Context, Shape, attention, make

D = torch.float64
SHAPE = Shape(d_model=8, n_heads=2, d_head=4, n_layers=2, train_len=8)


def turned(encoding, q, k, x, pos=None):
    pos = torch.arange(x.shape[1])[None] if pos is None else pos
    return encoding.transform(q, k, encoding.prepare(Context(pos, x=x)).at(1, x))


def test_it_is_the_authors_code(oracles):
    data = {name: torch.tensor(x, dtype=D) for name, x in oracles["selective_rope"].items()}
    encoding = make("selective_rope(base=100,rank=3,bias=true)", SHAPE).double()
    with torch.no_grad():
        encoding.v[1], encoding.u[1] = data["v"], data["u"]
        encoding.conv[1], encoding.c[1] = data["conv"].flip(-1), data["c"].flatten()
    got = turned(encoding, data["q"], data["k"], data["x"])
    for own, name in zip(got, ("turned_q", "turned_k"), strict=True):
        torch.testing.assert_close(own, data[name], atol=2e-5, rtol=0)


def test_with_equal_angles_it_is_rope():
    encoding = make("selective_rope(bias=true)", SHAPE).double()
    torch.nn.init.zeros_(encoding.u)
    q, k = torch.randn(2, 1, 2, 6, 4, dtype=D)
    got = turned(encoding, q, k, torch.randn(1, 6, 8, dtype=D))
    rope = make("rope(base=500000,layout=half)", SHAPE)
    pos = torch.arange(1, 7)[None]
    want = rope.transform(q, k, rope.prepare(Context(pos)).at(1, None))
    torch.testing.assert_close(got, want, atol=1e-5, rtol=0)


def test_padding_and_other_documents_turn_nothing():
    encoding, x = make("selective_rope(bias=true)", SHAPE).double(), torch.randn(1, 8, 8, dtype=D)
    q, k, v = torch.randn(3, 1, 2, 8, 4, dtype=D)
    pos = torch.tensor([[0, 1, 2, -1, 0, 1, -1, 2]])
    got = attention(q, k, v, encoding, pos, x)
    for keep in ([0, 1, 2], [4, 5, 7]):
        parts = (y[:, :, keep] for y in (q, k, v))
        want = attention(*parts, encoding, torch.arange(3)[None], x[:, keep])
        torch.testing.assert_close(got[:, :, keep], want)


def test_the_start_is_that_of_the_authors_models():
    wide = Shape(d_model=512, n_heads=4, d_head=64, n_layers=2, train_len=8)
    encoding = make("selective_rope", wide)
    assert encoding.v.shape == (2, 32, 512)  # phi_proj_rank of their configs
    for one in (encoding.v, encoding.u, encoding.conv):  # initializer_range
        assert one.std().item() == pytest.approx(0.02, rel=0.1)
