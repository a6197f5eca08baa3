import math

import pytest
import torch

from pezoo.base import Context, Shape
from pezoo.encodings.rope import RoPE
from pezoo.registry import make
from pezoo.rope_scaling import SCALINGS
from pezoo.spec import SpecError
from pezoo.testing import check_encoding

SHAPE = Shape(d_model=64, n_heads=2, d_head=32, n_layers=1, train_len=64)
FACTORS = {
    "short_factor": tuple(1 + m / 100 for m in range(16)),
    "long_factor": tuple(1.0 + m for m in range(16)),
}
CASES = [
    {"scaling": "linear", "factor": 4.0},
    {"scaling": "dynamic", "factor": 4.0},
    {"scaling": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
    {"scaling": "yarn", "factor": 8.0, "original_max_position_embeddings": 4096},
    {
        "scaling": "yarn",
        "factor": 8.0,
        "original_max_position_embeddings": 4096,
        "beta_fast": 16.0,
        "beta_slow": 2.0,
        "truncate": False,
        "attention_factor": 1.5,
    },
    {
        "scaling": "llama3",
        "factor": 8.0,
        "original_max_position_embeddings": 8192,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
    },
    {"scaling": "longrope", "factor": 4.0, "original_max_position_embeddings": 64, **FACTORS},
    {"scaling": "proportional", "partial_rotary_factor": 0.3},
]


@pytest.mark.parametrize("base", [10_000.0, 500_000.0])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["scaling"])
@pytest.mark.parametrize("length", [64, 65, 200])
def test_frequencies_are_those_of_transformers(case, length, base):
    rope_utils = pytest.importorskip("transformers.modeling_rope_utils")
    from transformers import LlamaConfig

    options = dict(case)
    parameters = {k: list(v) if isinstance(v, tuple) else v for k, v in case.items()}
    config = LlamaConfig(
        hidden_size=64,
        num_attention_heads=2,
        max_position_embeddings=64,
        rope_parameters={
            "rope_type": parameters.pop("scaling"),
            "rope_theta": base,
            **parameters,
        },
    )
    init = rope_utils.ROPE_INIT_FUNCTIONS[case["scaling"]]
    want, factor = init(config, torch.device("cpu"), seq_len=length)
    encoding = RoPE(SHAPE, base=base, **options)
    got, own = encoding.frequencies(Context(pos=torch.arange(length)[None]))
    torch.testing.assert_close(got.view(-1), want, rtol=2e-6, atol=0)
    assert own == pytest.approx(factor)


def test_ntk_keeps_the_highest_frequency_and_divides_the_lowest():
    ctx = Context(pos=torch.zeros(1, 1, dtype=torch.long))
    plain, _ = RoPE(SHAPE).frequencies(ctx)
    got, _ = RoPE(SHAPE, scaling="ntk", factor=4.0).frequencies(ctx)
    assert got[0] == plain[0]
    assert float(got[-1]) == pytest.approx(float(plain[-1]) / 4, rel=1e-5)
    based, _ = RoPE(SHAPE, base=10_000.0 * 4 ** (32 / 30)).frequencies(ctx)
    torch.testing.assert_close(got, based)


@pytest.mark.parametrize("layout", ["interleaved", "half"])
@pytest.mark.parametrize("case", [CASES[1], CASES[2], CASES[6]], ids=lambda case: case["scaling"])
def test_the_attention_factor_multiplies_q_and_k(case, layout):
    encoding = RoPE(SHAPE, layout=layout, **case)
    q, k = torch.randn(2, 3, 2, 70, 32).unbind(0)
    ctx = Context(pos=torch.stack([torch.arange(70), torch.arange(70) - 5, torch.arange(70) * 2]))
    ctx.pos[1, :5] = -1
    got = encoding.transform(q, k, ctx)
    for b in range(3):
        w, factor = encoding.frequencies(Context(pos=ctx.pos[b : b + 1]))
        turn = torch.exp(1j * ctx.pos[b, :, None] * w.view(-1))
        for x, y in zip((q, k), got, strict=True):
            pairs = x[b].view(2, 70, 2, 16).mT if layout == "half" else x[b].view(2, 70, 16, 2)
            want = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * turn) * factor
            want = want.mT.flatten(2) if layout == "half" else want.flatten(2)
            torch.testing.assert_close(y[b], want, atol=2e-4, rtol=1e-4)


def test_the_yarn_and_llama3_examples():
    w = 10_000.0 ** (-torch.arange(64) / 64)
    got, _ = SCALINGS["yarn"](w, factor=4.0, original_max_position_embeddings=4096, base=10_000.0)
    assert torch.equal(got[:21], w[:21])
    assert torch.equal(got[46:], w[46:] / 4)
    assert (got[21:46] < w[21:46]).all()
    assert (got[21:46] > w[21:46] / 4).all()
    w = 2 * math.pi / torch.tensor([2048.0, 8192.0])
    got, _ = SCALINGS["llama3"](w, factor=8.0, original_max_position_embeddings=8192)
    torch.testing.assert_close(got, w / torch.tensor([1.0, 8.0]))


@pytest.mark.parametrize("scaling", ["dynamic", "yarn", "longrope", "drop"])
def test_conformance(scaling):
    def build(shape):
        ones = (1.0,) * (shape.d_head // 2)
        options = {
            "dynamic": {"factor": 2.0, "original_max_position_embeddings": 6},
            "yarn": {"factor": 2.0},
            "longrope": {"factor": 2.0, "short_factor": ones, "long_factor": ones},
        }
        if scaling == "drop":
            return RoPE(shape, drop=0.5)
        return RoPE(shape, scaling=scaling, **options[scaling])

    check_encoding(build)


def test_each_row_has_its_own_length():
    encoding = RoPE(SHAPE, scaling="dynamic", factor=2.0)
    pos = torch.arange(100).expand(2, -1).clone()
    pos[1, 50:] = -1
    both, _ = encoding.frequencies(Context(pos=pos))
    plain, _ = RoPE(SHAPE).frequencies(Context(pos=pos))
    torch.testing.assert_close(both[1], plain)
    assert (both[0, 1:] < plain[1:]).all()
    assert not encoding.prefix_stable
    assert not encoding.relative


def test_dropping_positions():
    encoding = RoPE(SHAPE, drop=0.8)
    ctx = Context(pos=torch.arange(9)[None])
    q, k = torch.randn(2, 1, 2, 9, 32).unbind(0)

    def keys(progress):
        drawn = encoding.draw(ctx, progress=progress)
        return encoding.transform(q, k, Context(pos=ctx.pos, drawn=drawn))[1]

    turned = RoPE(SHAPE).transform(q, k, ctx)[1]
    assert torch.equal(keys(0.0), turned)
    assert torch.equal(keys(0.79), turned)
    torch.testing.assert_close(keys(0.8), k)
    torch.testing.assert_close(keys(None), k)
    assert encoding.order_blind


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rope(scaling=yarm,factor=4)", "unknown scaling 'yarm'; did you mean yarn?"),
        ("rope(scaling=linear)", "scaling=linear needs factor"),
        (
            "rope(factor=4)",
            "scaling=default does not take factor, which is for linear, ntk, dynamic",
        ),
        ("rope(scaling=ntk,factor=2,beta_fast=3)", "does not take beta_fast, which is for yarn"),
        ("rope(scaling=linear,factor=-2)", "factor must be above 0"),
        (
            "rope(scaling=longrope,short_factor=[1,2],long_factor=[1,2])",
            "short_factor needs d_head / 2 = 16 numbers",
        ),
        ("rope(scaling=yarn,factor=2,attention_factor=-1)", "attention_factor must be above 0"),
        (
            "rope(scaling=llama3,factor=8,low_freq_factor=4)",
            "low_freq_factor must be below high_freq_factor",
        ),
        ("rope(scaling=yarn,factor=2,beta_fast=0.5)", "beta_slow must be below beta_fast"),
        ("rope(drop=0)", "drop must be above 0 and at most 1"),
        ("rope(layout=halff)", "unknown layout 'halff'; did you mean half?"),
    ],
)
def test_errors(text, message):
    with pytest.raises(SpecError) as error:
        make(text, SHAPE)
    assert message in str(error.value)
