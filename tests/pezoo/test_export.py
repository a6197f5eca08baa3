"""torch.export and ONNX: encodings that draw nothing run elsewhere, the others say why not."""

import pytest
import torch
from small_model import SMALL, Model, inputs

from pezoo.base import Context

PACKED = torch.tensor([[-1, 0, 1, 2, 0, 1, 2, 3, 4]])
LENGTH = torch.export.Dim("T", min=2, max=64)


SIZES = ({1: LENGTH}, {1: LENGTH})


def to_export(text):
    """A model with what its encoding draws for up to 64 tokens."""
    model = Model(text).eval().requires_grad_(False)
    model.drawn = model.encoding.draw(Context(inputs()[1]), length=64)
    return model


def batches():
    return inputs(n=6), inputs(n=11), (inputs(n=9)[0], PACKED)


def test_an_exported_model_takes_any_length():
    model = to_export("alibi")
    program = torch.export.export(model, inputs(), dynamic_shapes=SIZES).module()
    for batch in batches():
        torch.testing.assert_close(program(*batch), model(*batch))


@pytest.mark.slow
@pytest.mark.parametrize("text", ["t5", "randomized:rope"])
def test_it_runs_in_onnxruntime_at_any_length(text, tmp_path):
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    model, path = to_export(text), tmp_path / "model.onnx"
    torch.onnx.export(model, inputs(), path, dynamic_shapes=SIZES, dynamo=True, verbose=False)
    session = runtime.InferenceSession(path)
    for batch in batches():
        given = zip(session.get_inputs(), batch, strict=True)
        (got,) = session.run(None, {one.name: y.numpy() for one, y in given})
        torch.testing.assert_close(torch.from_numpy(got), model(*batch), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("learned", "no values for draw"),
        ("randomized:rope", "no values for draw"),
        (f"prism_2025({SMALL})", "does not support torch.export"),
        (f"prism_spectral({SMALL})", "does not support torch.export"),
        (f"randomized:prism_2025({SMALL})", "no values for draw"),
    ],
)
def test_what_cannot_be_exported_says_so(text, words, monkeypatch):
    monkeypatch.setattr(torch.compiler, "is_exporting", lambda: True)
    with pytest.raises(ValueError, match=words):
        Model(text).eval()(*inputs())


def test_documents_are_the_same_without_the_operation_that_onnx_lacks(monkeypatch):
    pos = torch.randint(-1, 4, (50, 9), generator=torch.Generator().manual_seed(0))
    want = Context(pos).document
    monkeypatch.setattr(torch.compiler, "is_exporting", lambda: True)
    assert want.max() > 2
    assert torch.equal(Context(pos).document, want)
