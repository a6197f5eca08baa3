"""FlexAttention and the forms of a bias, against the bias in full; backward passes need CUDA."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention import flex_attention
from torch.overrides import TorchFunctionMode

import pezoo
from pezoo import Encoding, FoX, ReRoPE, Shape
from pezoo.adapters import (
    CAUSAL,
    BackendError,
    attend,
    attention_mask,
    block_mask,
    flex,
    resolve,
)
from pezoo.base import ScoreMod
from pezoo.testing import SHAPE, build, context, tokens

D = torch.float64
NAMES = [
    "learned(max_len=40)" if name == "learned" else name
    for name in pezoo.names()
    if not (encoding := pezoo.make(name, SHAPE)).replaces_softmax
    and (not encoding.replaces_scores or type(encoding).ways is not Encoding.ways)
]
WAYS = [
    "rerope(window=3)", "rerope(window=3,leak=0.5,log_n=True)", "self_extend(window=3,group=2)",
    "self_extend(window=3,group=0)", "dual_chunk(chunk=4,window=2)",
]  # fmt: skip
VARIANTS = [
    "alibi(asymmetric=true)",
    "kerple(form=power)",
    "t5(bidirectional=true)",
    "fire(hidden=5,threshold=4)",
    "randomized:alibi",
    "randomized:t5",
]
SCORED = ["alibi", "bam", "fire", "hard_alibi", "kerple", "nape", "sandwich", "t5", *VARIANTS]
WIDE = Shape(d_model=64, n_heads=2, d_head=32, n_layers=2, train_len=1024)  # 16 or more on CUDA
on_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.fixture(autouse=True)
def _plain(monkeypatch):
    """Run a score_mod by plain operations without tracing it, of which torch allows few kinds."""
    monkeypatch.setattr(flex_attention, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)


def layer(text, pos, batch, new, dtype=D, device="cpu", shape=SHAPE, read_on=False):
    """An encoding, its q, k, v and context for the last `new` tokens of layer 1."""
    encoding = build(lambda shape: pezoo.make(text, shape), shape).to(device, dtype)
    encoding.train(not read_on)  # some read on in evaluation alone
    if text.startswith("fire"):
        with torch.no_grad():  # units that are constant, and kinks that coincide
            encoding.inner[:, 0, 0] = 0
            encoding.inner[:, :, 1] = encoding.inner[:, :, 2]
    s, generator = pos.shape[1], torch.Generator().manual_seed(0)
    x = torch.randn(batch, s, shape.d_model, generator=generator).to(device, dtype)
    ctx = encoding.prepare(context(tokens(batch, s).to(device), pos.to(device), x=x)).at(1, x)
    sizes = 3, batch, shape.n_heads, s, shape.d_head
    q, k, v = torch.randn(sizes, generator=generator).to(device, dtype)
    q, k = encoding.transform(q, k, ctx)
    if new < s:  # ctx.memo has what earlier tokens leave there
        attend(encoding, q, k, v, ctx, None, "eager")
    return encoding, q[:, :, s - new :], k, v, replace(ctx, n_new=new, x=x[:, s - new :])


@st.composite
def texts_of_tokens(draw, longest=12):
    """Positions (B|1, S) from anywhere, in documents and with padding, B, and new tokens."""
    s, batch = draw(st.integers(1, longest)), draw(st.integers(1, 3))
    rows = []
    for _ in range(draw(st.sampled_from([1, batch]))):
        row = []
        while len(row) < s:
            if draw(st.integers(0, 4)) == 0:
                row.append(-1)
            first, size = draw(st.integers(0, 20)), draw(st.integers(1, s))
            row += range(first, first + size)
        rows.append(row[:s])
    return torch.tensor(rows), batch, draw(st.integers(1, s))


@settings(max_examples=40)
@given(
    text=st.sampled_from([*NAMES, *SCORED, *WAYS]),
    case=texts_of_tokens(),
    mask=st.sampled_from(["of ctx", "blocks", "tensor"]),
)
def test_flex_is_eager(text, case, mask):
    encoding, q, k, v, ctx = layer(text, *case, read_on=True)
    given = {"of ctx": lambda ctx: None, "blocks": block_mask, "tensor": attention_mask}[mask](ctx)
    with torch.no_grad():
        want = attend(encoding, q, k, v, ctx, None, "eager")
        got = attend(encoding, q, k, v, ctx, given, "flex")
    torch.testing.assert_close(got, want, atol=1e-4 if text == "relative" else 1e-9, rtol=0)


def test_flex_refuses_products_with_a_bias_which_it_would_leave_out():
    own = type("Own", (ReRoPE,), {"bias": FoX.bias})
    with pytest.raises(BackendError, match="replaces the product of q and k"):
        resolve("flex", own(SHAPE))


@pytest.mark.parametrize("inner", ["bipe(separators=[3]):alibi", "window(size=3):alibi"])
def test_a_layer_may_have_positions_of_its_own(inner):
    encoding, q, k, v, ctx = layer(f"layers(every=2):nope,{inner}", torch.arange(9)[None], 2, 9)
    with torch.no_grad():
        want = attend(encoding, q, k, v, ctx, None, "eager")
        torch.testing.assert_close(attend(encoding, q, k, v, ctx, None, "flex"), want)


@pytest.mark.slow
def test_a_mask_can_be_compiled_as_on_cuda(monkeypatch):
    create = torch.compile(
        flex_attention.create_block_mask, dynamic=True, backend="aot_eager_decomp_partition"
    )
    for rows in (1, 2):
        *_, ctx = layer("nope", torch.tensor([[0, 1, 2, 0, 1, 2]]).repeat(rows, 1), rows, 6)
        want = block_mask(ctx).to_dense()
        with monkeypatch.context() as patch:
            patch.setattr(flex, "_torch", lambda name, compiled: create)
            assert torch.equal(block_mask(ctx).to_dense(), want)


def test_the_causal_mask_reads_no_positions():
    encoding, q, k, v, ctx = layer("nope", torch.tensor([[5, 2, 0, 0, 1]]), 2, 5)
    with torch.no_grad():
        want = attend(encoding, q, k, v, ctx, CAUSAL, "eager")
        torch.testing.assert_close(attend(encoding, q, k, v, ctx, CAUSAL, "flex"), want)


@pytest.mark.parametrize("text", SCORED)
def test_flex_builds_neither_bias_nor_mask(text, monkeypatch):
    case = torch.tensor([[-1, 0, 1, 2, 0, 1], [0, 1, 2, 3, 4, 5]]), 2, 6
    encoding, q, k, v, ctx = layer(text, *case)
    want = attend(encoding, q, k, v, ctx, None, "eager")
    for built in ("pezoo.base.ScoreMod.dense", "pezoo.adapters.attention_mask"):
        monkeypatch.setattr(built, lambda *args: pytest.fail("a dense tensor was built"))
    monkeypatch.setattr(encoding, "bias", lambda *args: pytest.fail("a bias was built"))
    with torch.no_grad():
        torch.testing.assert_close(attend(encoding, q, k, v, ctx, None, "flex"), want)


def test_blocks_that_no_query_sees_are_left_out():
    """Blocks of 128 tokens: two documents of 256 tokens, then one padded row."""
    pos = torch.stack([torch.arange(512) % 256, torch.arange(512).sub(256).clamp(min=-1)])
    _, _, _, _, ctx = layer("nope", pos, 2, 512)
    blocks = block_mask(ctx).to_dense()[:, 0]
    seen = attention_mask(ctx)[:, 0].unflatten(1, (4, 128)).unflatten(3, (4, 128))
    assert torch.equal(blocks.bool(), seen.any(4).any(2))
    assert blocks[0].sum() == 6


def test_flex_does_not_train_on_a_cpu():
    encoding, q, k, v, ctx = layer("alibi", torch.arange(5)[None], 2, 5)
    with pytest.raises(BackendError, match=r"flex cannot train on a CPU.*sdpa"):
        attend(encoding, q.requires_grad_(), k, v, ctx, None, "flex")
    with pytest.raises(ValueError, match="mask must be"):
        attend(encoding, q, k, v, ctx, block_mask(ctx), "sdpa")


def gradients(out, given):
    weight = torch.linspace(-1, 2, out.numel(), dtype=out.dtype, device=out.device)
    return torch.autograd.grad((out * weight.view(out.shape)).sum(), given, allow_unused=True)


class IndexedOnce(TorchFunctionMode):
    """Rejects a second index of a tensor that needs a gradient, as torch does on CUDA."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.Tensor.__getitem__ and args[0].requires_grad:
            assert all(x is not args[0] for x in self.seen)
            self.seen.append(args[0])
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("text", SCORED)
def test_a_score_mod_indexes_each_parameter_once(text):
    encoding, q, k, _, ctx = layer(text, torch.arange(5)[None], 2, 5)
    form = encoding.bias_form(q, k, ctx, ScoreMod)
    with IndexedOnce() as mode:
        form.dense(SHAPE.n_heads, ctx)
    assert mode.seen or not [*encoding.parameters()]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("text", ["bam", "fire", "kerple", "randomized:t5", "shaw"])
def test_gradients_flow_through_what_a_score_mod_captures(text, monkeypatch):
    """By torch's plain backward pass, which it has on a CPU but does not offer."""
    monkeypatch.setattr(flex_attention, "_validate_device", lambda *args: None)
    monkeypatch.setattr(flex_attention, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", False)
    torch.compiler.reset()
    case = torch.tensor([[-1, 7, 8, 9, 0, 1, 2], [0, 1, 2, 3, 4, 5, 6]]), 2, 5
    encoding, q, k, v, ctx = layer(text, *case)
    given = [x.detach().requires_grad_() for x in (q, k, v)]
    inputs = [*given, *encoding.parameters()]
    want = gradients(attend(encoding, *given, ctx, None, "eager"), inputs)
    bias = encoding.bias_form(q, k, ctx, ScoreMod)
    bias = encoding.bias(given[0], given[1], ctx) if bias is None else bias
    out = flex_attention.flex_attention(
        *given,
        score_mod=flex.score_mod(bias, ctx),
        block_mask=block_mask(ctx),
        scale=SHAPE.d_head**-0.5,
    )
    for a, b in zip(gradients(out, inputs), want, strict=True):
        assert (a is None) == (b is None)
        if b is not None:
            torch.testing.assert_close(a, b, atol=1e-9, rtol=1e-7)


def packed(s):
    """Two rows of s tokens: documents, and padding."""
    return torch.stack([torch.arange(s) % (s // 3), torch.arange(s).sub(s // 4).clamp(min=-1)])


# A scale, a network, a mask, and one that reads the queries.
COMPILED = ["hard_alibi", "fire(hidden=5,threshold=4)"]


@pytest.mark.slow
@pytest.mark.parametrize("text", COMPILED)
def test_torch_compiles_score_mod_and_mask(text):
    """On a CPU with fixed sizes: torch 2.13 writes no valid code there for sizes that change."""
    s, new = [(200, 200), (201, 3)][COMPILED.index(text) % 2]  # whole, and with a cache
    torch.compiler.reset()
    encoding, q, k, v, ctx = layer(text, packed(s), 2, new, torch.float32)
    compiled = torch.compile(flex_attention.flex_attention, dynamic=False, fullgraph=True)
    with torch.no_grad():
        want = attend(encoding, q, k, v, ctx, None, "eager")
        bias = encoding.bias_form(q, k, ctx, ScoreMod)
        bias = encoding.bias(q, k, ctx) if bias is None else bias
        mod, blocks = flex.score_mod(bias, ctx), block_mask(ctx)
        got = compiled(q, k, v, score_mod=mod, block_mask=blocks, scale=SHAPE.d_head**-0.5)
    torch.testing.assert_close(got, want, atol=1e-4, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("text", ["sandwich", "fire"])
def test_torch_traces_a_score_mod_that_reads_numbers_of_its_encoding(text, monkeypatch):
    """With sizes that change and gradients, as on CUDA; its kernel is not written here."""
    monkeypatch.setattr(flex_attention, "_validate_device", lambda *args: None)
    torch.compiler.reset()
    encoding, q, k, v, ctx = layer(text, packed(200), 2, 200, torch.float32)
    whole = {"dynamic": True, "fullgraph": True, "backend": "aot_eager"}
    compiled = flex.constant_floats(torch.compile(flex_attention.flex_attention, **whole))
    q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
    mod = flex.score_mod(encoding.bias_form(q, k, ctx, ScoreMod), ctx)
    scale = SHAPE.d_head**-0.5
    got = compiled(q, k, v, score_mod=mod, block_mask=block_mask(ctx), scale=scale)
    want = attend(encoding, q, k, v, ctx, None, "eager")
    torch.testing.assert_close(got, want, atol=1e-4, rtol=1e-4)


@on_cuda
@pytest.mark.gpu
@pytest.mark.parametrize("text", [*SCORED, *WAYS, "relative", "shaw", "nope"])
def test_flex_trains_on_cuda_as_eager_does(text):
    torch.compiler.reset()
    encoding, q, k, v, ctx = layer(text, packed(300), 2, 300, torch.float32, "cuda", WIDE)
    given = [x.detach().requires_grad_() for x in (q, k, v)]
    found = []
    for backend in ("eager", "flex"):
        out = attend(encoding, *given, ctx, None, backend)
        found.append([out, *gradients(out, [*given, *encoding.parameters()])])
    largest = max(float(x.detach().abs().max()) for x in found[0] if x is not None)
    for a, b in zip(*found, strict=True):
        assert (a is None) == (b is None)
        if b is not None:  # the gradient of a number added to all logits is rounding alone
            size = max(float(b.detach().abs().max()), 1e-3 * largest)
            torch.testing.assert_close(a, b, atol=2e-2 * size, rtol=2e-2)


@on_cuda
@pytest.mark.gpu
@pytest.mark.parametrize("text", [text for text in SCORED if "randomized" not in text])
def test_peak_memory_is_linear_in_the_length(text):
    torch.compiler.reset()
    peaks = []
    for s in (8192, 32768):
        encoding, q, k, v, ctx = layer(text, packed(s), 2, s, torch.bfloat16, "cuda", WIDE)
        given = [x.detach().requires_grad_() for x in (q, k, v)]
        attend(encoding, *given, ctx, None, "flex").sum().backward()  # compiles
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        attend(encoding, *given, ctx, None, "flex").sum().backward()
        peaks.append(torch.cuda.max_memory_allocated() - before)
    assert peaks[1] < 6 * peaks[0]  # 16 times would be quadratic
