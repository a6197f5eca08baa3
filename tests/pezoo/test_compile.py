"""torch.compile takes a model with any encoding in it, and changes nothing."""

import pytest
import torch
from small_model import SMALL, Model, gradients, inputs, train

from pezoo.base import Context

ONE_GRAPH = {"rope", "t5"}  # they draw nothing
ANY_LENGTH = {"rope", "shifted_sinusoidal"}
TWICE = f"prism_2025({SMALL},copy_every=1,controller=latch,before=0+1)"  # in two layers
OTHERS = (  # of those that compute alike, one
    *("t5", "shifted_sinusoidal", "relative", "fox", "dape2", "path", "selective_rope", "repo"),
    *("rope_pp", "seqpe", "stick_breaking", "asentmax", "layers", "lbpe", "lie_rope"),
    *("log_cpb", "cpe", f"prism({SMALL})", TWICE),
)
TEXTS = ["rope", *(pytest.param(text, marks=pytest.mark.slow) for text in OTHERS)]


def compiles(text, lengths, **options):
    """Outputs and gradients are those of the model, on batches of each length."""
    torch._dynamo.reset()
    model = Model(text, layers=2 if text == TWICE else 1)
    compiled = torch.compile(model, **options)
    for n in lengths:
        batch, found = inputs(n=n, seed=n), []
        for run in (model, compiled):
            torch.manual_seed(0)
            found.append((train(run, model.encoding, *batch), gradients(model)))
            model.zero_grad()
        assert len(found[0][1]) >= 4
        torch.testing.assert_close(*found)


def test_with_what_is_drawn_before_random_positions_compile_into_one_graph():
    model, (x, pos) = Model("randomized:rope"), inputs()
    model.drawn = model.encoding.draw(Context(pos))
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x, pos), model(x, pos))


@pytest.mark.slow
@pytest.mark.parametrize("text", TEXTS)
def test_a_compiled_model_is_the_model(text):
    lengths = [6, 9, 4] if text in ANY_LENGTH else [6]
    compiles(text, lengths, backend="eager", fullgraph=text in ONE_GRAPH)


@pytest.mark.slow
def test_the_default_back_end_trains_on_batches_of_any_length():
    """And without a generator: what is drawn is what is drawn without compiling."""
    text = "prism_2025(cursors=1,d_pe=8,hidden=6,state_noise=0.3,gate_noise=0.3)"
    compiles(text, [6, 9, 4], dynamic=True)
