"""Export to ONNX: encodings that draw nothing run elsewhere, the others say why they do not."""

import pytest
import torch
from torch import nn

import pezoo
from pezoo.adapters import attend
from pezoo.base import Context, Shape

SHAPE = Shape(d_model=8, n_heads=2, d_head=4, n_layers=2, train_len=6)
SMALL = "cursors=1,d_pe=4,hidden=5"


class Model(nn.Module):
    """Two layers of attention alone."""

    def __init__(self, text):
        super().__init__()
        self.encoding, self.qkv = pezoo.make(text, SHAPE), nn.Linear(8, 24)
        self.drawn = None

    def forward(self, x, pos):
        encoding = self.encoding
        ctx = encoding.prepare(Context(pos, x=x, drawn=self.drawn))
        x = encoding.embed(x, ctx)
        for layer in range(SHAPE.n_layers):
            q, k, v = self.qkv(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4).unbind()
            here = ctx.at(layer, x, self.qkv.weight[8:16])
            y = attend(encoding, *encoding.transform(q, k, here), v, here)
            x = x + y.transpose(1, 2).flatten(2)
        return x


@pytest.mark.slow
@pytest.mark.parametrize("text", ["rope", "alibi", "t5", "lbpe", "randomized:rope"])
def test_it_runs_in_onnxruntime_at_any_length(text, tmp_path):
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    torch.manual_seed(0)
    model = Model(text).eval().requires_grad_(False)
    if text.startswith("randomized"):
        model.drawn = model.encoding.draw(Context(torch.arange(6)[None]), length=64)
    length = torch.export.Dim("T", min=2, max=64)
    torch.onnx.export(
        model,
        (torch.randn(2, 6, 8), torch.arange(6)[None]),
        tmp_path / "model.onnx",
        dynamic_shapes=({1: length}, {1: length}),
        dynamo=True,
        verbose=False,
    )
    session = runtime.InferenceSession(tmp_path / "model.onnx")
    packed = torch.tensor([[-1, 0, 1, 2, 0, 1, 2, 3, 4]])
    for pos in (torch.arange(6)[None], torch.arange(11)[None], packed):
        x = torch.randn(2, pos.shape[1], 8)
        given = zip(session.get_inputs(), (x, pos), strict=True)
        (got,) = session.run(None, {one.name: y.numpy() for one, y in given})
        torch.testing.assert_close(torch.from_numpy(got), model(x, pos), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("learned", "no values for draw"),
        ("randomized:rope", "no values for draw"),
        (f"prism({SMALL})", "does not support torch.export"),
        (f"prism_spectral({SMALL})", "does not support torch.export"),
        (f"randomized:prism({SMALL})", "no values for draw"),
    ],
)
def test_what_cannot_be_exported_says_so(text, words, monkeypatch):
    monkeypatch.setattr(torch.compiler, "is_exporting", lambda: True)
    with pytest.raises(ValueError, match=words):
        Model(text).eval()(torch.randn(2, 6, 8), torch.arange(6)[None])


def test_documents_are_the_same_without_the_operation_that_onnx_lacks(monkeypatch):
    pos = torch.randint(-1, 4, (50, 9), generator=torch.Generator().manual_seed(0))
    want = Context(pos).document
    monkeypatch.setattr(torch.compiler, "is_exporting", lambda: True)
    assert want.max() > 2
    assert torch.equal(Context(pos).document, want)
