"""Every registered encoding passes the conformance suite."""

import pytest

import pezoo
from pezoo.testing import CHECKS, check_encoding, run_check

PRISM = "prism(d_pe=16,hidden=12)"
SPECTRAL = "prism_spectral(d_pe=16,hidden=12)"
SMALL = {"prism": PRISM, "prism_spectral": SPECTRAL}
WRAPPED = (
    "randomized:rope",
    "randomized:learned",
    "randomized(sample=distances):alibi",
    f"randomized:{PRISM}",
    "rope(rope_parameters=dynamic(factor=2,original_max_position_embeddings=6))",
    "rope(rope_parameters=yarn(factor=2))",
    "rope(drop=0.5)",
    "rerope(log_n=true)",
    "self_extend(group=0)",
    "window(size=5,sinks=2):rope",
    "ssmax(scale_bias=true):alibi",
    f"asentmax(alpha=1.25):{PRISM}",
    "dape:alibi",
    "kerple(form=power)",
    "shaw(clip=3)",
    "sinusoidal(axes=2)",
    "learned(axes=2)",
    "learned(axes=2,side=3)",
    "mrope(interleaved=true)",
    "lie_rope(commuting=true)",
    "alibi_2d(metric=manhattan)",
    "t5(buckets=8,max_distance=5,bidirectional=true)",
    "stick_breaking(rest=itself)",
    "pope(start=uniform)",
    f"layers(every=2):window(size=5):kerple,randomized:{PRISM}",
    "prism_2025(cursors=2,d_pe=16,hidden=12)",
    "prism_2025(cursors=1,d_pe=8,hidden=6,gamma=1.0,state_noise=0.2,gate_noise=0.2)",
    "prism_2025(cursors=2,d_pe=8,hidden=6,copy_every=2,controller=latch,window=2)",
    "prism_spectral(cursors=1,d_pe=8,hidden=6,controller=gru,copy_every=0,stride=1,state_noise=1.0)",
)
NAMED = tuple(SMALL.get(name, name) for name in pezoo.names())


def factory_of(text):
    return lambda shape: pezoo.make(text, shape)


QUICK = (  # of those that compute alike, one; prism's layers are tested below
    *("nope", "rope", "alibi", "alibi_2d", "t5", "learned", "sinusoidal", "relative", "randomized"),
    *("abacus", "fox", "fire", "path", "cope", "dape", "ssmax", "stick_breaking", "window", "cpe"),
    *("layers", "self_extend", "axial_rope", "selective_rope", "bipe", "geometric"),
)
SLOW = [text for text in (*NAMED, *WRAPPED) if text not in QUICK]
CASES = [*QUICK, *(pytest.param(text, marks=pytest.mark.slow) for text in SLOW)]


@pytest.mark.parametrize("text", CASES)
def test_conformance(text):
    check_encoding(factory_of(text))


TWICE = "cursors=2,d_pe=8,hidden=6,before=0+1,copy_every=2,controller=latch"


@pytest.mark.parametrize("text", [f"prism_2025({TWICE})", f"prism_spectral({TWICE})"])
@pytest.mark.parametrize(
    "name",
    ["gradients", "prefix_stability", "batch", "streaming", "cache", "positions", "documents"],
)
def test_two_layers_of_cursors(text, name):
    """The whole suite wants encodings that also serve one layer."""
    checks = {check.__name__: check for check in CHECKS}
    run_check(checks[f"check_{name}"], factory_of(text))
