"""xformers' back end against eager: on a CPU its masks and biases are materialised."""

import sys

import pytest
import torch
from test_flex import NAMES, WIDE, gradients, layer, on_cuda

from pezoo.adapters import (
    CAUSAL,
    BackendError,
    attend,
    attention_mask,
    memory_efficient,
    packed_mask,
)
from pezoo.functional import full_precision

PACKED = torch.tensor([[0, 1, 2, 0, 1, 2, 3, 4, 0], [5, 6, 7, 8, 9, 10, 0, 1, 2]])
PADDED = torch.tensor([[-1, -1, 0, 1, 2, 0, 1, 2, 3], [0, 1, 2, 3, 4, 5, 6, 7, 8]])


def naive(query, key, value, attn_bias=None, scale=None):
    """The documented equivalent of memory_efficient_attention, with what it wants checked."""
    q, k, v = (x.transpose(1, 2) for x in (query, key, value))
    assert all(x.shape[-1] % 8 == 0 for x in (q, k, v))
    logits = q @ k.mT * scale
    if isinstance(attn_bias, torch.Tensor):
        assert attn_bias.shape == logits.shape
        assert attn_bias.stride(-2) % 8 == 0
        assert attn_bias.dtype == q.dtype
        logits = logits + attn_bias
    elif attn_bias is not None:
        logits = logits + attn_bias.materialize(logits.shape, dtype=q.dtype)
    return (logits.softmax(-1) @ v).transpose(1, 2)


@pytest.fixture
def on_a_cpu(monkeypatch):
    ops = pytest.importorskip("xformers.ops")
    monkeypatch.setattr(ops, "memory_efficient_attention", naive)
    monkeypatch.setattr(memory_efficient, "attention", memory_efficient._attention)


def compared(text, pos, new, mask=None, want=None):
    encoding, q, k, v, ctx = layer(text, pos, 2, new)
    given = [x.detach().requires_grad_() for x in (q, k, v)]
    inputs = [*given, *encoding.parameters()]
    found = []
    for backend, own in (("eager", want), ("xformers", mask)):
        own = own(ctx) if callable(own) else own
        out = attend(encoding, *given, ctx, own, backend)
        loss = (out * torch.linspace(-1, 2, out.numel(), dtype=out.dtype).view(out.shape)).sum()
        grads = torch.autograd.grad(loss, inputs, allow_unused=True, retain_graph=True)
        found.append([out, *grads])
    for a, b in zip(*found, strict=True):
        assert (a is None) == (b is None)
        if b is not None:
            torch.testing.assert_close(a, b, atol=1e-4 if text == "relative" else 1e-9, rtol=1e-7)


@pytest.mark.parametrize("text", ["nope", "alibi", "t5", "fox", "kerple", "shaw"])
@pytest.mark.parametrize("new", [9, 3, 1])
def test_it_computes_what_eager_does(on_a_cpu, text, new):
    """With gradients of q, k, v and of a learned bias; whole, and with earlier tokens."""
    for pos in (torch.arange(9)[None], PADDED):
        compared(text, pos, new)
    compared(text, torch.arange(9)[None], new, CAUSAL, CAUSAL)


def test_text_without_padding_needs_no_mask_tensor(on_a_cpu, monkeypatch):
    monkeypatch.setattr(memory_efficient, "as_bias", lambda *args: pytest.fail("built a tensor"))
    for text in ("nope", "rope", "fox"):
        encoding, q, k, v, ctx = layer(text, PACKED, 2, 9)
        with torch.no_grad():
            want = attend(encoding, q, k, v, ctx, attention_mask(ctx), "eager")
            got = attend(encoding, q, k, v, ctx, packed_mask(ctx), "xformers")
            torch.testing.assert_close(got, want)


def test_packed_documents(on_a_cpu):
    for pos in (PACKED, PACKED[:1]):
        compared("nope", pos, 9, packed_mask, attention_mask)
    ctx = layer("nope", PADDED, 2, 9)[-1]
    with pytest.raises(ValueError, match="whole texts without padding"):
        packed_mask(ctx)
    encoding, q, k, v, ctx = layer("alibi", PACKED, 2, 9)
    with pytest.raises(BackendError, match="a bias needs a mask tensor"):
        attend(encoding, q, k, v, ctx, packed_mask(ctx), "xformers")


def test_errors(monkeypatch):
    encoding, q, k, v, ctx = layer("nope", torch.arange(4)[None], 2, 4)
    with pytest.raises(BackendError, match="on CUDA alone: use sdpa"):
        attend(encoding, q, k, v, ctx, None, "xformers")
    monkeypatch.setitem(sys.modules, "xformers", None)
    with pytest.raises(BackendError, match=r"pip install 'pezoo\[xformers\]'"):
        packed_mask(ctx)
    encoding, q, k, v, ctx = layer("geometric", torch.arange(4)[None], 2, 4)
    with pytest.raises(BackendError, match="replaces softmax, which xformers"):
        attend(encoding, q, k, v, ctx, None, "xformers")


@on_cuda
@pytest.mark.gpu
@pytest.mark.parametrize("text", NAMES)
def test_it_trains_on_cuda_as_eager_does(text):
    pytest.importorskip("xformers.ops")
    pos = torch.stack([torch.arange(300) % 100, torch.arange(300).sub(75).clamp(min=-1)])
    encoding, q, k, v, ctx = layer(text, pos, 2, 300, torch.float32, "cuda", WIDE)
    given = [x.detach().requires_grad_() for x in (q, k, v)]
    with full_precision("cuda"):
        found = []
        for backend in ("eager", "xformers"):
            out = attend(encoding, *given, ctx, None, backend)
            found.append([out, *gradients(out, [*given, *encoding.parameters()])])
    for a, b in zip(*found, strict=True):
        assert (a is None) == (b is None)
        if b is not None:
            size = max(float(b.detach().abs().max()), 1e-3)
            torch.testing.assert_close(a, b, atol=2e-2 * size, rtol=2e-2)
