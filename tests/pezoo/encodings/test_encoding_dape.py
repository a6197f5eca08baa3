import pytest
import torch

from pezoo import Context, Shape, make
from pezoo.adapters import attention_mask

D = torch.float64
SHAPE = Shape(d_model=8, n_heads=2, d_head=4, n_layers=2, train_len=8)


def as_stored(text, data):
    """Return the encoding with stored weights in its last layer."""
    encoding = make(text, SHAPE).double()
    with torch.no_grad():
        for name in ("w_in", "b_in", "w_out", "b_out"):
            own, weight = getattr(encoding, name)[1], torch.tensor(data[name], dtype=D)
            own.copy_(weight.view(own.shape))
    return encoding


def logits(encoding, q, k, pos=None):
    pos = torch.arange(q.shape[2])[None] if pos is None else pos
    ctx = encoding.prepare(Context(pos)).at(1, None)
    return q @ k.mT / 2 + encoding.bias(q, k, ctx)


def tensors(data):
    return (torch.tensor(data[name], dtype=D) for name in ("q", "k", "logits"))


def test_it_is_the_authors_code(oracles):
    q, k, want = tensors(oracles["dape"])
    got = logits(as_stored("dape(width=3):alibi", oracles["dape"]), q, k)
    torch.testing.assert_close(got.tril(), want.tril(), atol=1e-12, rtol=0)


def test_the_second_version_is_the_authors_code_but_for_keys_beyond_the_query(oracles):
    q, k, want = tensors(oracles["dape2"])
    encoding = as_stored("dape2(width=3):alibi", oracles["dape2"])
    got = logits(encoding, q, k)
    torch.testing.assert_close(got.tril(-1), want.tril(-1), atol=1e-12, rtol=0)
    torch.testing.assert_close(got[:, :, -1], want[:, :, -1], atol=1e-12, rtol=0)
    shorter = logits(encoding, q[:, :, :4], k[:, :, :4])
    torch.testing.assert_close(shorter.tril(), got[:, :, :4, :4].tril(), atol=1e-12, rtol=0)


def test_the_second_version_in_loops_skips_padding_and_other_documents():
    pos = torch.tensor([[0, 1, -1, 2, 0, 1, -1, 3]])
    encoding = make("dape2(width=3,kernel=5):kerple", SHAPE).double()
    q, k = torch.randn(2, 1, 2, 8, 4, dtype=D)
    got = logits(encoding, q, k, pos)
    ctx = encoding.prepare(Context(pos)).at(1, None)
    b = encoding.inner.bias(q, k, ctx).expand(1, -1, -1, -1)
    both, seen = torch.cat([q @ k.mT / 2, b], 1)[0], attention_mask(ctx)[0, 0]
    w_in, b_in, w_out, b_out = (
        getattr(encoding, name)[1].detach() for name in ("w_in", "b_in", "w_out", "b_out")
    )
    for i in (3, 7):
        keys = [j for j in range(i + 1) if seen[i, j]]
        padded = [torch.zeros(4, dtype=D)] * 2 + [both[:, i, j] for j in keys]
        padded += [torch.zeros(4, dtype=D)] * 2
        hidden = [
            b_in + sum(w_in[:, :, m] @ padded[n + m] for m in range(5)) for n in range(len(keys))
        ]
        hidden = [torch.where(x > 0, x, 0.01 * x) for x in hidden]
        hidden = [torch.zeros(3, dtype=D)] * 2 + hidden + [torch.zeros(3, dtype=D)] * 2
        for n, j in enumerate(keys):
            out = b_out + sum(w_out[:, :, m] @ hidden[n + m] for m in range(5))
            want = both[:2, i, j] + both[2:, i, j] + out
            torch.testing.assert_close(got[0, :, i, j], want, atol=1e-12, rtol=0)


@pytest.mark.parametrize("inner", ["kerple", "hard_alibi", "rope", "nope"])
def test_without_the_networks_it_is_the_inner_encoding(inner):
    q, k = torch.randn(2, 1, 2, 8, 4, dtype=D)
    for name in ("dape", "dape2"):
        encoding = make(f"{name}:{inner}", SHAPE).double()
        torch.nn.init.zeros_(encoding.w_out)
        torch.nn.init.zeros_(encoding.b_out)
        ctx = encoding.prepare(Context(torch.arange(8)[None])).at(1, None)
        want = encoding.inner.bias(q, k, ctx)
        want = torch.zeros(1, dtype=D) if want is None else want.to(D)
        got = encoding.bias(q, k, ctx)
        torch.testing.assert_close(got, want.expand_as(got), atol=1e-12, rtol=0)


def test_a_kernel_of_one_is_the_first_version():
    one, two = make("dape(width=5)", SHAPE).double(), make("dape2(width=5,kernel=1)", SHAPE)
    two.double().load_state_dict(one.state_dict())
    q, k = torch.randn(2, 1, 2, 8, 4, dtype=D)
    torch.testing.assert_close(logits(one, q, k).tril(), logits(two, q, k).tril())


def test_it_starts_as_torchs_layers():
    torch.manual_seed(0)
    encoding, theirs = make("dape2(width=64,kernel=5)", SHAPE), torch.nn.Conv2d(4, 64, (1, 5))
    for own, other in ((encoding.w_in, theirs.weight), (encoding.b_in, theirs.bias)):
        limit = 20**-0.5
        assert other.abs().max() <= limit >= own.abs().max() > 0.9 * limit
