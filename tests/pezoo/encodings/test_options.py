"""Options and sizes that an encoding cannot have are errors that say so."""

import pytest

from pezoo import Shape, make

SHAPE = Shape(d_model=16, n_heads=4, d_head=4, n_layers=2, train_len=10)
IMPOSSIBLE = [
    ("abacus(digits=())", "digits"),
    ("axial_rope(axes=3)", "an axis without pairs: d_head=4, axes=3"),
    ("axial_rope(axes=0)", "axes must be at least 1, got 0"),
    ("mixed_rope(axes=3)", r"axes must be within 1\.\.2, the pairs of d_head; got 3"),
    ("alibi_2d(metric=city)", "unknown metric 'city'"),
    ("cpe(kernel=2)", "kernel must be odd and at least 1, got 2"),
    ("log_cpb(hidden=0)", "hidden must be at least 1, got 0"),
    ("relative_2d(clip=0)", "clip must be at least 1, got 0"),
    ("learned(side=3)", "side=3 needs axes=2, and no max_len"),
    ("cable(kernel=cube)", "unknown kernel 'cube'"),
    ("carope(base=1.0)", "base must be above 1, got 1"),
    ("carope(rope_parameters=ntk(factor=2))", "rope_type=ntk has others"),
    ("cope(max_pos=1)", "max_pos must be at least 2"),
    ("coupled(max_pos=0)", "max_pos"),
    ("fire(c=0)", "c must be above 0 and finite"),
    ("fire(hidden=0)", "hidden must be above 0 and finite"),
    ("fire(threshold=0)", "threshold must be above 0 and finite"),
    ("hard_alibi(masked=-1)", r"0\.\.4, the number of heads, got -1"),
    ("hard_alibi(masked=5)", r"0\.\.4, the number of heads, got 5"),
    ("ideal(values=1)", "values must be at least 2"),
    ("kerple(form=exp)", r"unknown form 'exp' \(known: log, power\)"),
    ("latch(gates=0)", "gates"),
    ("lbpe(values=0)", "at least 1"),
    ("learned(max_len=-1)", "max_len"),
    ("learned(std=-1.0)", "std"),
    ("pope(start=one)", "start"),
    ("randomized(sample=distances):rope", "sample=distances needs an encoding that reads dist"),
    ("randomized(sample=both)", "unknown sample 'both'"),
    ("randomized(max_len=0)", "max_len"),
    ("randomized(max_len=90):learned(max_len=6)", "from 90 positions, of which Learned repres"),
    ("shaw(clip=0)", "clip must be at least 1"),
    ("shifted(span=0)", "span must be"),
    ("tapa(share=0.1)", "share=0.1 of d_head=4 leaves no component in one part"),
    ("tapa(alpha=0)", "alpha must be above 0, got 0"),
    ("t5(buckets=1)", "must be"),
    ("t5(buckets=3,bidirectional=true)", "must be"),
    ("t5(buckets=32,max_distance=16)", "must be"),
]


@pytest.mark.parametrize(("text", "words"), IMPOSSIBLE)
def test_impossible_options(text, words):
    with pytest.raises(ValueError, match=words):
        make(text, SHAPE)


@pytest.mark.parametrize(
    ("name", "sizes", "words"),
    [
        ("relative", {"d_model": 7}, "even d_model"),
        ("sinusoidal", {"d_model": 7}, "even d_model"),
        ("rope", {"d_head": 7}, "even d_head"),
        ("selective_rope", {"d_model": 9}, "does not divide"),
    ],
)
def test_impossible_sizes(name, sizes, words):
    with pytest.raises(ValueError, match=words):
        make(name, SHAPE.replaced(**sizes))
