"""Principal components, and an encoder's run on its page."""

import pytest
import torch

from harness.model.transformer import Transformer
from harness.settings.protocol import load_protocol, resolve
from harness.show import examples, page, pca
from harness.show.figures import activations, figures
from harness.training import evaluate
from harness.training.trainer import start
from pezoo.spec import parse

SMALL = (
    *("model.width=16", "model.heads=2", "model.layers=2", "model.vocab=32", "train.batch=4"),
    *("train.steps=2", "train.lengths=[1,4]", "eval.lengths=[4,5]"),
)


def started(protocol, pe="rope"):
    config = resolve(load_protocol(protocol, SMALL), "copy", parse(pe), 0, "cpu", "auto")
    return config, start(config)


def test_components_are_those_of_the_covariance():
    x = torch.randn(200, 6, dtype=torch.float64) @ torch.randn(6, 6, dtype=torch.float64) + 3
    mean, basis = pca.components(x)
    torch.testing.assert_close(mean, x.mean(0))
    _, vectors = torch.linalg.eigh(torch.cov(x.T))
    want = vectors[:, [-1, -2]]
    torch.testing.assert_close((basis * want).sum(0).abs(), torch.ones(2, dtype=torch.float64))


@pytest.mark.parametrize("protocol", ["quick", "ruoss2023-mini"])
def test_activations_are_what_layers_read_and_give(protocol):
    config, trainer = started(protocol)
    model = trainer.model
    assert isinstance(model, Transformer)
    layers, accuracy = pca.activations_of(model, trainer.task, 4, None)
    assert len(layers) == 3
    tokens = 30 * (8 if config.track == "encoder" else 9)  # digits, "=", digits; without "="
    assert {x.shape for x in layers} == {(tokens, 16)}
    assert not list(model.blocks[0]._forward_hooks)
    figure = pca.pca_figure(model, trainer.task, examples.lengths(trainer.task, config, 9))
    assert figure is not None
    assert f"30 sequences of length 4 ({tokens} tokens" in figure.caption
    assert f"{accuracy:.3f} at length 4" in figure.caption
    assert ("the empty tokens" in figure.caption) == (config.track == "encoder")
    assert ("given the right answer" in figure.caption) == (config.track == "decoder")
    assert "share one draw" not in figure.caption
    (section,) = figure.sections
    assert [name for name, _ in section.panels] == ["embeddings", "layer 0", "layer 1"]


def test_a_longer_length_that_cannot_be_represented_is_named():
    config, trainer = started("ruoss2023-mini", "learned(max_len=12)")
    run = page.FinishedRun({}, config, trainer.task, trainer.model, trainer.model)
    found = page.inspect(run)
    assert found.errors[-1].startswith("no principal components at length 8: Learned represents")
    assert "Activations: principal components" not in [one.title for one in found.figures]


@pytest.mark.slow
@pytest.mark.parametrize("window", [None, 8])
def test_captions_say_that_pictures_have_no_window(window):
    config, trainer = started("quick", "rope")
    config = config.replace_eval(window=window, stride=4)
    found = page.inspect(page.FinishedRun({}, config, trainer.task, trainer.model, trainer.model))
    said = {f.title: "without the window" in f.caption for f in found.figures}
    names = ("Attention: maximum over heads", "Activations: principal components")
    assert [said[name] for name in names] == [window is not None] * 2


def test_accuracy_is_that_of_a_score_on_the_same_sequences(monkeypatch):
    config, trainer = started("ruoss2023-mini", "randomized:rope")
    model, task = trainer.model, trainer.task
    _, accuracy = pca.activations_of(model, task, 9, None)
    draws = pca.generator("show", "activations", task.name, task.version, 9)
    monkeypatch.setattr(evaluate, "examples", lambda *_: task.sample(draws, 30, 9))
    monkeypatch.setattr(evaluate, "seed", lambda *_: examples.positions(9).initial_seed())
    assert accuracy == pytest.approx(evaluate.score(model, task, config, 9).token)
    figure = pca.pca_figure(model, task, (4, 9))
    assert figure is not None
    assert "share one draw" in figure.caption


def test_an_encoders_example_has_empty_tokens_and_both_directions():
    config, trainer = started("ruoss2023-mini")
    prompt = trainer.task.vocab.encode("471=")
    one = examples.answer(trainer.model, trainer.task, config, prompt)
    assert one.reads == ("4", "7", "1", *examples.EMPTY * 3)
    assert (one.prompt, one.inputs.shape) == (3, (1, 6))
    assert one.writes[:3] == ("", "", "")
    assert one.tokens[:3] == ("4", "7", "1")
    assert len(one.tokens) == 6
    found = activations(trainer.model, one)
    assert found.attention.shape == (2, 2, 6, 6)
    torch.testing.assert_close(found.attention.sum(-1), torch.ones(2, 2, 6))
    assert (found.attention.triu(1) > 0).any()  # it sees later tokens
    title = figures([found], found)[0].title
    assert title == "Attention: maximum over heads"
