"""Every encoding on a CUDA device against the CPU in float64."""

import pytest
import torch

from pezoo import make, names
from pezoo.testing import SHAPE, Probe, build, context, tokens

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-3), (torch.bfloat16, 0.3)])
def test_cuda_agrees_with_float64_on_the_cpu(name, dtype, tolerance):
    ids = tokens()
    ctx = context(ids)
    torch.manual_seed(0)  # of random positions, drawn on the CPU
    expected = Probe(build(lambda shape: make(name, shape), SHAPE))(ids, ctx)
    probe = Probe(build(lambda shape: make(name, shape), SHAPE), dtype)
    probe.table, probe.qkv, probe.out = (x.cuda() for x in (probe.table, probe.qkv, probe.out))
    probe.encoding.cuda()
    moved = context(ids.cuda(), ctx.pos.cuda())
    torch.manual_seed(0)
    out = probe(ids.cuda(), moved)
    assert (out.cpu().double() - expected).abs().max() < tolerance * expected.abs().max()
