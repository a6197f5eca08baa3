"""Figures: which panels are shown, in which order and in which colours."""

from dataclasses import replace

import pytest
import torch

from harness.show import plots
from harness.show.figures import MOST, Activations, activations, figures
from pezoo.pictures import Axis, Picture


def panels(importance=None, count=12, value=0.0, group=1):
    values = torch.full((count, 2, 2), value)
    names = tuple(f"panel {i}" for i in range(count))
    axes = Axis("query"), Axis("key")
    return Picture("Title", "Caption.", names, values, *axes, importance=importance, group=group)


def bars(value):
    axes, values = (Axis("mu", ("",)), Axis("head", ("0", "1"))), torch.full((1, 1, 2), value)
    return Picture("Mu", "Caption.", ("layer 0",), values, *axes, kind="bars")


@pytest.fixture
def having(example):
    """(*pictures) -> the activations of a model with one layer of one head."""

    def make(*pictures):
        return Activations(example("1="), torch.eye(2)[None, None], None, list(pictures))

    return make


@pytest.fixture
def drawn(monkeypatch):
    """Record the calls to matplotlib instead of drawing."""
    calls = []

    def record(name):
        def draw(*args):
            calls.append((name, *args))
            return [f"<svg {title}>" for title in args[0]] if name == "heat_maps" else "<svg>"

        return draw

    for name in ("heat_maps", "bars", "colour_bar"):
        monkeypatch.setattr(plots, name, record(name))
    return calls


def names_of(section):
    return [name for name, _ in section.panels]


def test_panels_that_matter_after_training_come_first_in_every_section(having, drawn):
    first, last = having(panels(torch.zeros(12))), having(panels(torch.arange(12.0)))
    figure = figures([last], first)[-1]
    assert [section.heading.split()[0] for section in figure.sections] == ["Before", "After"]
    for section in figure.sections:
        assert names_of(section) == [f"panel {i}" for i in range(11, -1, -1)]
        assert section.omitted == 0
        assert all(svg == f"<svg {name}>" for name, svg in section.panels)


def test_one_colour_means_one_value_before_and_after_training(having, drawn):
    figures([having(panels(value=4.0))], having(panels(value=-1.0)))
    maps = [call for call in drawn if call[0] == "heat_maps"][-2:]
    bars = [call for call in drawn if call[0] == "colour_bar"][-2:]
    assert [call[2].unique().item() for call in maps] == [-1.0, 4.0]
    assert [call[5] for call in maps] == [call[2] for call in bars] == [(-4.0, 4.0, "RdBu_r")] * 2


def test_neighbours_that_are_read_together_stay_together(having, drawn):
    importance = torch.tensor([1.0, 1, 3, 3, 2, 2])
    (section,) = figures([having(panels(importance, 6, group=2))], having())[-1].sections
    assert names_of(section) == [f"panel {i}" for i in (2, 3, 4, 5, 0, 1)]
    assert section.group == 2


def test_what_is_not_drawn_is_counted(having, drawn):
    section = figures([having(panels(count=MOST + 5))], having())[-1].sections[0]
    assert (len(section.panels), section.omitted) == (MOST, 5)


def test_constants_stand_beside_their_start(having, drawn):
    figure = figures([having(bars(1.0)), having(bars(1.0))], having(bars(0.25)))[-1]
    assert (figure.title, figure.sections[0].heading) == ("Learned constants", "Mu")
    (call,) = [call for call in drawn if call[0] == "bars"]
    assert call[1:5] == ("layer 0", [1.0, 1.0], [0.25, 0.25], "mu")
    assert call[6] == (0.0, 1.0)


@pytest.mark.parametrize(
    ("text", "bias"),
    [("nope", []), ("alibi", ["all layers"]), ("relative", ["layer 0", "layer 1"])],
)
def test_attention_and_bias_of_any_encoding(decoder, example, drawn, text, bias):
    seen = activations(decoder(text), example())
    found = figures([seen], seen)
    titles = ["Attention: maximum over heads", "Attention of every head"]
    own = ["Bias", "Positional relation function"] * bool(bias)
    assert [figure.title for figure in found] == titles + own
    most, every = ([call for call in drawn if call[0] == "heat_maps"][i][2] for i in (0, 1))
    future = torch.ones(9, 9, dtype=torch.bool).triu(1)
    assert bool((every.isnan() == future).all())
    torch.testing.assert_close(every[:2].nan_to_num().amax(0), most[0].nan_to_num())
    if bias:
        names = names_of(found[-2].sections[0])
        assert names == [f"{layer}, head {j}" for layer in bias for j in range(2)]
        assert names_of(found[-1].sections[0]) == ["all layers"]


def test_pairs_that_meet_are_drawn_together_after_training(example, having):
    pair = replace(panels(torch.tensor([1.0, 1, 2, 2]), 4, group=2), meets=True)
    names = ("a: query", "a: key", "b: query", "b: key")
    pair = replace(pair, values=torch.rand(4, 2, 9), rows=Axis("offset", ("1", "0")), panels=names)
    pair = replace(pair, columns=Axis("token"))
    here = replace(having(pair), example=example("4711=4711"))
    sections = figures([here], here)[-1].sections
    assert [section.heading.endswith("in one picture") for section in sections] == [0, 0, 1]
    assert names_of(sections[-1]) == ["b", "a"]
