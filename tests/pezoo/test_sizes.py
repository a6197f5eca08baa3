"""Every encoding is made from the sizes that it reads, as keywords, without a Shape."""

import copy
import pickle

import pytest
import torch

import pezoo
from pezoo import Context, Encoding, Shape, attend, make, names
from pezoo.base import PartialShape
from pezoo.registry import check
from pezoo.spec import parse

SIZES = {"d_model": 16, "n_heads": 4, "d_head": 4, "n_layers": 2, "train_len": 32}
LAYERS, WIDE = "n_heads n_layers", "d_model n_heads n_layers"
FEWEST = {
    "abacus": "d_model",
    "alibi": "n_heads",
    "alibi_2d": "n_heads",
    "asentmax": WIDE,
    "axial_rope": "d_head",
    "bam": "n_heads",
    "bipe": "d_model d_head",
    "cable": WIDE,
    "carope": WIDE,
    "cope": "d_head n_layers",
    "coupled": "d_model",
    "cpe": WIDE,
    "dape": "n_heads d_head n_layers",
    "dape2": "n_heads d_head n_layers",
    "dual_chunk": "d_head train_len",
    "fire": LAYERS,
    "fope": "n_heads d_head n_layers train_len",
    "fope(period=32)": "n_heads d_head n_layers",
    "fox": WIDE,
    "geometric": "n_heads d_head n_layers",
    "goat": "n_heads n_layers train_len",
    "grape": WIDE,
    "grape(bias=none,rotary=true)": "d_head n_layers",
    "hard_alibi": "n_heads",
    "ideal": WIDE,
    "ideal_sh": WIDE,
    "kerple": LAYERS,
    "latch": "d_model d_head",
    "layers": "d_head n_layers",
    "lbpe": WIDE,
    "lbpe_sh": WIDE,
    "learned": "d_model train_len",
    "learned(max_len=40)": "d_model",
    "learned(axes=2,side=3)": "d_model",
    "lie_rope": "n_heads d_head n_layers",
    "log_cpb": LAYERS,
    "mixed_rope": "n_heads d_head n_layers",
    "mrope": "d_head",
    "nape": "n_heads",
    "nope": "",
    "path": WIDE,
    "pope": "n_heads d_head n_layers",
    "pose": "d_head train_len",
    "prism": WIDE,
    "prism_spectral": WIDE,
    "randomized": WIDE,
    "randomized:alibi": "n_heads",
    "relative": WIDE,
    "relative_2d": LAYERS,
    "repo": WIDE,
    "rerope": "d_head train_len",
    "rope": "d_head",
    "rope_pp": "d_head",
    "sandwich": "n_heads",
    "wall": WIDE,
    "wavelet": "d_head",
    "selective_rope": WIDE,
    "self_extend": "d_head train_len",
    "seqpe": "d_model n_heads",
    "shaw": "n_heads d_head n_layers",
    "shifted": "d_model",
    "shifted_sinusoidal": "d_model",
    "sinusoidal": "d_model",
    "ssmax": "n_heads d_head n_layers train_len",
    "ssmax(start=1):nape": LAYERS,
    "stick_breaking": "",
    "t5": "d_model n_heads",
    "tapa": "d_head",
    "window": "d_head train_len",
    "xpos": "d_head",
}


def test_every_encoding_is_in_the_table():
    assert {parse(text).name for text in FEWEST} == {*names()}


def made(text, sizes):
    spec = check(parse(text))
    if spec.inner is not None:
        return make(text, **sizes)
    return getattr(pezoo, pezoo.registry.entries()[spec.name].cls)(**spec.options, **sizes)


def run(encoding):
    """Run every hook once, in the last layer."""
    x, w_key = torch.randn(2, 7, 16), torch.randn(16, 16)
    q, k, v = torch.randn(3, 2, 4, 7, 4)
    scale, told = torch.tensor([3]), {"task_prf": lambda i, j, n: (i - j).clamp(0, 1)}
    pos = torch.arange(7)[None]
    told |= {"ids": pos.expand(2, -1), "slots": pos % 5}
    ctx = encoding.prepare(Context(pos, x=x, scale=scale, **told))
    encoding.embed(x, ctx)
    for layer in range(2):
        here = ctx.at(layer, x, w_key)
        out = attend(encoding, *encoding.transform(q, k, here), v, here)
    return out


@pytest.mark.parametrize("text", FEWEST)
def test_an_encoding_needs_the_sizes_that_it_reads_and_no_other(text):
    sizes = {name: SIZES[name] for name in FEWEST[text].split()}
    torch.manual_seed(0)
    few = made(text, sizes)
    torch.manual_seed(0)
    full = make(text, Shape(**SIZES))
    full.load_state_dict(few.state_dict())
    torch.manual_seed(1)
    got = run(few)
    torch.manual_seed(1)
    torch.testing.assert_close(got, run(full))
    for name in sizes:
        rest = {key: size for key, size in sizes.items() if key != name}
        with pytest.raises(ValueError, match=rf"reads ({name}|d_head): add the keyword \w+="):
            run(made(text, rest))


def test_an_error_names_the_encoding_and_the_call():
    with pytest.raises(ValueError, match=r"^PRISM reads n_layers: add .* to d_model=8, n_heads=2"):
        pezoo.PRISM(d_model=8, n_heads=2)
    with pytest.raises(TypeError, match=r"ALiBi 'n_head'; did you mean n_heads\?"):
        pezoo.ALiBi(n_head=8)
    with pytest.raises(TypeError, match=r"^ALiBi takes either a Shape or sizes"):
        pezoo.ALiBi(8)
    with pytest.raises(ValueError, match="n_heads=3 does not divide d_model=8"):
        pezoo.PRISM(d_model=8, n_heads=3, n_layers=1)
    with pytest.raises(ValueError, match="d_head must be a whole number"):
        pezoo.Encoding(d_head=0)


def test_a_class_that_takes_only_a_shape_still_works():
    class Own(Encoding):
        def __init__(self, shape):
            super().__init__(shape)
            self.heads = shape.n_heads

    assert Own(Shape(**SIZES)).heads == 4


def test_a_partial_shape_is_copied_saved_and_compared():
    shape = PartialShape("RoPE", d_model=16, n_heads=4)
    for other in (copy.deepcopy(shape), pickle.loads(pickle.dumps(shape))):
        assert other == shape
        assert other.d_head == 4
        with pytest.raises(ValueError, match="RoPE reads n_layers"):
            _ = other.n_layers
    assert shape.replaced(n_layers=2, train_len=32) == Shape(16, 4, 4, 2, 32)
    assert repr(shape) == "Shape(d_model=16, n_heads=4, d_head=4)"
    assert repr(pezoo.ALiBi(n_heads=4)) == "ALiBi(n_heads=4)"
