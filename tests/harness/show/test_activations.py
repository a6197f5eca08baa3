"""Recorded activations are those of the model, and recording changes nothing."""

from dataclasses import replace

import pytest
import torch

import pezoo
from harness import tasks
from harness.show import examples
from harness.show.figures import activations
from pezoo.adapters.layer import Cache
from pezoo.encodings.randomized import Randomized

CURSORS = "prism_2025(cursors=1,d_pe=8,hidden=6)"


def test_attention_is_that_of_a_plain_loop(decoder, example):
    model, one = decoder("alibi"), example()
    seen = activations(model, one)
    block, t = model.blocks[0], one.ids.shape[1] - 1
    with torch.no_grad():
        x = model.embedding(one.ids[:, :-1]) * 4
        q, k, _ = block.qkv(block.norm1(x))[0].view(t, 3, 2, 8).unbind(1)
    for h, slope in enumerate((2**-4, 2**-8)):
        for i in range(t):
            logits = [float(q[i, h] @ k[j, h]) / 8**0.5 - slope * (i - j) for j in range(i + 1)]
            row = torch.tensor(logits).softmax(0)
            torch.testing.assert_close(seen.attention[0, h, i, : i + 1], row)
            assert seen.bias[1, h, i, 0] == pytest.approx(-slope * i)


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        *("learned", "rope", "relative", "path", "geometric", "fox", "coupled", "ideal_sh"),
        f"randomized:{CURSORS}",
    ],
)
def test_recording_changes_nothing(decoder, example, text):
    model, one = decoder(text), example()
    before = model.encoding, model.attention
    ids = one.ids[:, :-1]

    def logits():
        pos, scale = torch.arange(ids.shape[1])[None], torch.tensor([one.length])
        draws = examples.positions(one.length)
        return model(ids, pos, scale=scale, generator=draws, cache=Cache(length=one.planned))

    with torch.no_grad():
        expected = logits()
        seen = activations(model, one)
        assert (model.encoding, model.attention) == before
        torch.testing.assert_close(logits(), expected)
    assert seen.attention.shape == (2, 2, 9, 9)
    if not before[0].replaces_softmax:
        torch.testing.assert_close(seen.attention.sum(-1), torch.ones(2, 2, 9))
    assert (seen.attention.sum(-1) < 1 + 1e-5).all()
    assert not bool(seen.attention.triu(1).any())


def test_an_encoding_is_restored_when_it_cannot_represent_the_example(decoder, example):
    model = decoder("learned", train_len=4)
    before = model.encoding
    with pytest.raises(pezoo.PositionError):
        activations(model, example())
    assert model.encoding is before


def test_random_positions_are_those_that_the_answer_was_given_with(decoder, config_of, monkeypatch):
    drawn, draw = [], Randomized.table
    monkeypatch.setattr(Randomized, "table", lambda *args: drawn.append(draw(*args)) or drawn[-1])
    task, config = tasks.make("copy"), config_of("randomized:alibi")
    model = decoder("randomized:alibi")
    one = examples.answer(model, task, config, task.vocab.encode("4711="))
    cut = replace(one, inputs=one.inputs[:, :6])  # as if the model had stopped early
    activations(model, cut)
    assert len(drawn) == 2
    assert torch.equal(*drawn)
