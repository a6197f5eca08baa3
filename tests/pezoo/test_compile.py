"""torch.compile takes a model with any encoding in it, and changes nothing."""

import pytest
import torch
from small_model import SMALL, Model, gradients, inputs, train

import pezoo
from pezoo.base import Context

SIZES = {name: f"{name}({SMALL})" for name in ("prism", "prism_spectral")}
FAST = {"rope"}
TEXTS = [*(SIZES.get(name, name) for name in pezoo.names()), "rope(layout=half)", "randomized:rope"]


def compiles(model, lengths, **options):
    """Outputs and gradients are those of the model, on batches of each length."""
    torch._dynamo.reset()
    compiled = torch.compile(model, **options)
    for n in lengths:
        batch, found = inputs(n=n, seed=n), []
        for run in (model, compiled):
            torch.manual_seed(0)
            found.append((train(run, model.encoding, *batch), gradients(model)))
            model.zero_grad()
        assert len(found[0][1]) >= 8
        torch.testing.assert_close(*found)


@pytest.mark.parametrize(
    "text", ["alibi", *(pytest.param(t, marks=pytest.mark.slow) for t in ("nope", "rope", "t5"))]
)
def test_encodings_that_draw_nothing_compile_into_one_graph(text):
    compiles(Model(text), [6], backend="aot_eager", fullgraph=True)


def test_with_what_is_drawn_before_random_positions_compile_into_one_graph():
    model, (x, pos) = Model("randomized:rope"), inputs()
    model.drawn = model.encoding.draw(Context(pos))
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x, pos), model(x, pos))


@pytest.mark.parametrize(
    "text", [pytest.param(t, marks=[] if t in FAST else [pytest.mark.slow]) for t in TEXTS]
)
def test_a_compiled_model_is_the_model(text):
    compiles(Model(text), [6], backend="aot_eager")


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "prism_spectral(cursors=1,d_pe=8,hidden=6)",
        "prism(d_pe=8,hidden=6)",
        "prism_2025(cursors=1,d_pe=8,hidden=6,state_noise=0.3,gate_noise=0.3)",
        "prism_2025(cursors=1,d_pe=8,hidden=6,copy_every=1,controller=latch,before=0+1)",
        "rope",
        "alibi",
        "t5",
        "randomized:rope",
        "shifted_sinusoidal",
    ],
)
def test_the_default_back_end_trains_on_batches_of_any_length(text):
    """And without a generator: what is drawn is what is drawn without compiling."""
    compiles(Model(text), [6, 9, 4])
