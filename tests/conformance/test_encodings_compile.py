"""torch.compile takes a model with any encoding in it, and changes nothing."""

import pytest
import torch
from torch import nn

import pezoo
from pezoo.base import Context, Shape
from pezoo.testing.probe import task_prf

SHAPE = Shape(d_model=8, n_heads=2, d_head=4, n_layers=1, train_len=6)
SIZES = {"prism": "prism(cursors=1,d_pe=8)", "prism_spectral": "prism_spectral(cursors=1,d_pe=8)"}
FAST = {"rope"}
TEXTS = [*(SIZES.get(name, name) for name in pezoo.names()), "rope(layout=half)", "randomized:rope"]


class Model(nn.Module):
    """One layer, as a user would write it."""

    def __init__(self, encoding):
        super().__init__()
        self.encoding, self.qkv = encoding, nn.Linear(8, 24)

    def forward(self, x, pos):
        encoding = self.encoding
        scale = torch.full((1,), 6)
        ctx = encoding.prepare(Context(pos=pos, x=x, scale=scale, task_prf=task_prf))
        x = encoding.embed(x, ctx)
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4).unbind()
        q, k = encoding.transform(q, k, ctx := ctx.at(0, x, self.qkv.weight[8:16]))
        logits, bias = q @ k.mT / 2, encoding.bias(q, k, ctx)
        logits = logits if bias is None else logits + bias
        hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        return logits.masked_fill(hidden, -torch.inf).softmax(-1) @ v


def compiles(model, lengths):
    """Outputs and gradients are those of the model, on batches of each length."""
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="aot_eager")
    for n in lengths:
        x, pos, found = torch.randn(2, n, 8), torch.arange(n)[None], []
        for run in (model, compiled):
            torch.manual_seed(0)
            y = run(x, pos)
            y.square().sum().backward()
            found.append((y, *(p.grad.clone() for p in model.parameters() if p.grad is not None)))
            model.zero_grad()
        assert len(found[0]) > 2
        torch.testing.assert_close(*found)


@pytest.mark.parametrize("text", ["nope", "alibi", "rope"])
def test_encodings_that_draw_nothing_compile_into_one_graph(text):
    torch._dynamo.reset()
    encoding = pezoo.make(text, SHAPE)
    x, (q, k) = torch.randn(2, 6, 8), torch.randn(2, 2, 2, 6, 4)

    def hooks(ctx):
        ctx = encoding.prepare(ctx).at(0, x)
        return *encoding.transform(q, k, ctx), encoding.bias(q, k, ctx)

    ctx = Context(pos=torch.arange(6)[None], x=x)  # a graph cannot make a Memo
    got = torch.compile(hooks, backend="eager", fullgraph=True)(ctx)
    torch.testing.assert_close(got, hooks(ctx))


@pytest.mark.parametrize(
    "text", [pytest.param(t, marks=[] if t in FAST else [pytest.mark.slow]) for t in TEXTS]
)
def test_a_compiled_model_is_the_model(text):
    compiles(Model(pezoo.make(text, SHAPE)), lengths=[6])


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "prism_spectral(cursors=1,d_pe=8,hidden=6)",
        "prism(cursors=1,d_pe=8,hidden=6,state_noise=0.3,gate_noise=0.3)",
        "prism(cursors=1,d_pe=8,hidden=6,copy_every=1,controller=latch)",
        "randomized:rope",
        "shifted_sinusoidal",
    ],
)
def test_a_compiled_model_trains_on_batches_of_any_length(text):
    """And without a generator: what is drawn is what is drawn without compiling."""
    compiles(Model(pezoo.make(text, SHAPE)).train(), lengths=[6, 9, 4])
