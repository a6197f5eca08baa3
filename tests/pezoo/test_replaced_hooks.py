"""Leaving out `scores` or `weights` of an encoding that replaces them raises an error."""

from functools import partial

import pytest
import torch
from small_model import SHAPE, Model, inputs

import pezoo
from pezoo.adapters import attend
from pezoo.base import Context, Encoding, Memo, Pass
from pezoo.encodings.geometric import Geometric
from pezoo.encodings.randomized import Randomized


class Product(Encoding):
    """Twice the product, which a model's own q k^T would lose."""

    def scores(self, q, k, ctx):
        return 2 * (q @ k.mT) * self.shape.d_head**-0.5


class Both(Product):
    def weights(self, logits, ctx):
        return logits.sigmoid()


class FromAMixin:
    def weights(self, logits, ctx):
        return logits.sigmoid()


class Mixed(FromAMixin, Encoding):
    pass


def own_softmax(encoding, q, k, v, ctx):
    bias = encoding.bias(q, k, ctx)
    logits = q @ k.mT * encoding.shape.d_head**-0.5 + (0 if bias is None else bias)
    return logits.softmax(-1) @ v


def run(encoding, attention, memo=None, layers=SHAPE.n_layers, begin=0):
    x, _ = inputs()
    memo = Memo() if memo is None else memo
    ctx = Context(torch.arange(begin + 6)[None], x=x, n_new=6, memo=memo)
    ctx = encoding.prepare(Pass.of(ctx, drawn=encoding.draw(ctx, length=8)))
    for layer in range(layers):
        q, k, v = torch.randn(3, 2, SHAPE.n_heads, 6, SHAPE.d_head)
        here = ctx.at(layer, x)
        q, k = encoding.transform(q, k, here)
        k, v = (torch.cat([torch.zeros_like(y[:, :, :1])] * begin + [y], 2) for y in (k, v))
        attention(encoding, q, k, v, here)


SILENT = {
    "geometric": (partial(Geometric, SHAPE), r".*geometric.*encoding.weights\(logits, ctx\)"),
    "around": (lambda: Randomized(SHAPE, Geometric), "layer 0 .*geometric.*weights"),
    "scores": (partial(Product, SHAPE), r"layer 0 .*Product.*encoding.scores\(q, k, ctx\)"),
    "both": (partial(Both, SHAPE), r"Both.*encoding.scores.* and encoding.weights"),
    "mixed": (partial(Mixed, SHAPE), "Mixed.*weights"),
}


@pytest.mark.parametrize("name", SILENT)
def test_the_next_layer_raises(name):
    make, message = SILENT[name]
    with pytest.raises(ValueError, match=message):
        run(make(), own_softmax)
    run(make(), attend)


@pytest.mark.parametrize("name", SILENT)
def test_the_next_pass_with_the_same_memo_raises(name):
    make, message = SILENT[name]
    encoding, memo = make(), Memo()
    run(encoding, own_softmax, memo, layers=1)
    with pytest.raises(ValueError, match=message):
        run(encoding, own_softmax, memo, layers=1, begin=1)
    run(encoding, attend, memo, begin=1)  # it is said once
    run(encoding, attend, memo, begin=2)


def test_one_of_two_hooks_is_not_enough():
    def with_weights(encoding, q, k, v, ctx):
        return encoding.weights(q @ k.mT, ctx) @ v

    with pytest.raises(ValueError, match=r"encoding\.scores") as caught:
        run(Both(SHAPE), with_weights)
    assert "weights" not in str(caught.value)


def test_an_attention_that_asks_every_hook_may_be_ones_own():
    def written_out(encoding, q, k, v, ctx):
        logits = encoding.scores(q, k, ctx=ctx)
        logits = q @ k.mT if logits is None else logits
        weights = encoding.weights(logits=logits, ctx=ctx)
        return (logits.softmax(-1) if weights is None else weights) @ v

    for make, _ in SILENT.values():
        run(make(), written_out)


@pytest.mark.parametrize("text", ["nope", "rope", "alibi", "randomized:rope"])
def test_encodings_that_keep_both_owe_nothing(text):
    run(pezoo.make(text, SHAPE), own_softmax)


def test_interleaved_and_abandoned_passes_are_no_fault():
    encoding, (x, pos) = Geometric(SHAPE), inputs()
    q = torch.randn(2, SHAPE.n_heads, 6, SHAPE.d_head)
    first, second = (encoding.prepare(Context(pos, x=x)) for _ in range(2))
    layers = [first.at(i, x) for i in range(2)]
    encoding.transform(q, q, layers[0])
    encoding.transform(q, q, second.at(0, x))
    attend(encoding, q, q, q, layers[0])
    attend(encoding, *encoding.transform(q, q, layers[1]), q, first.at(1, x))
    encoding.prepare(Context(pos, x=x))


@pytest.mark.parametrize("text", ["geometric", "randomized(max_len=9):geometric"])
def test_checkpointed_layers_run_twice(text):
    x, pos = inputs()
    for checkpointed in (False, True):
        model = Model(text, checkpointed)
        if text != "geometric":
            model.drawn = model.encoding.draw(Context(pos))
        model(x, pos).square().mean().backward()


@pytest.mark.slow
def test_compiled_in_part_or_whole():
    encoding, (x, pos) = Geometric(SHAPE), inputs()
    compiled = torch.compile(attend, backend="eager")
    run(encoding, compiled)
    model = Model("geometric")
    whole = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(whole(x, pos), model(x, pos))
