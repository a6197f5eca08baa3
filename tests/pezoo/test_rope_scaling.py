import math

import pytest
import torch

from pezoo.base import Context, Pass, Shape
from pezoo.encodings.rope import RoPE
from pezoo.registry import make
from pezoo.rope_scaling import SCALINGS
from pezoo.spec import SpecError, parse
from pezoo.testing import CHECKS, check_encoding, run_check

SHAPE = Shape(d_model=64, n_heads=2, d_head=32, n_layers=1, train_len=64)
FACTORS = {
    "short_factor": tuple(1 + m / 100 for m in range(16)),
    "long_factor": tuple(1.0 + m for m in range(16)),
}
CASES = [
    {"rope_type": "linear", "factor": 4.0},
    {"rope_type": "dynamic", "factor": 4.0},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
    {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 4096},
    {
        "rope_type": "yarn",
        "factor": 8.0,
        "original_max_position_embeddings": 4096,
        "beta_fast": 16.0,
        "beta_slow": 2.0,
        "truncate": False,
        "attention_factor": 1.5,
    },
    {
        "rope_type": "llama3",
        "factor": 8.0,
        "original_max_position_embeddings": 8192,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
    },
    {
        "rope_type": "yarn",
        "factor": 40.0,
        "original_max_position_embeddings": 4096,
        "mscale": 0.707,
        "mscale_all_dim": 0.5,
    },
    {"rope_type": "yarn", "factor": None, "original_max_position_embeddings": 16, "mscale": 0.7},
    {"rope_type": "longrope", "factor": 4.0, "original_max_position_embeddings": 64, **FACTORS},
    {"rope_type": "longrope", "original_max_position_embeddings": 16, **FACTORS},
    {"rope_type": "proportional", "partial_rotary_factor": 0.3},
]


@pytest.mark.parametrize("base", [10_000.0, 500_000.0])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["rope_type"])
@pytest.mark.parametrize("length", [64, 65, 200])
def test_frequencies_are_those_of_transformers(case, length, base):
    rope_utils = pytest.importorskip("transformers.modeling_rope_utils")
    from transformers import LlamaConfig

    config = LlamaConfig(
        hidden_size=64,
        num_attention_heads=2,
        max_position_embeddings=64,
        rope_parameters={"rope_theta": base, **case},
    )
    init = rope_utils.ROPE_INIT_FUNCTIONS[case["rope_type"]]
    want, factor = init(config, torch.device("cpu"), seq_len=length)
    encoding = RoPE(SHAPE, rope_parameters=config.rope_parameters)
    got, own = encoding.frequencies(Context(pos=torch.arange(length)[None]))
    torch.testing.assert_close(got.view(-1), want, rtol=2e-6, atol=0)
    assert own == pytest.approx(factor)


@pytest.mark.parametrize("kind", ["linear", "ntk", "yarn", "llama3", "proportional", "riflex"])
@pytest.mark.parametrize("layer", ["rope", "rerope", "self_extend"])
def test_an_automatic_factor_is_the_smallest_power_of_two_that_holds_the_text(kind, layer):
    share = "partial_rotary_factor=0.5," * (kind == "proportional")

    def turned(n, factor, length=None):
        encoding = make(f"{layer}(rope_parameters={kind}({share}factor={factor}))", SHAPE).eval()
        ctx = Context(pos=torch.arange(n)[None])
        ctx = encoding.prepare(Pass.of(ctx, drawn=encoding.draw(ctx, length=length)))
        q = torch.ones(1, 2, n, 32)
        scores = encoding.scores(q, q, ctx)
        return encoding.transform(q, q, ctx)[0] if scores is None else scores

    for n in (1, 63, 64, 65, 128, 129, 513):
        s = 1
        while 64 * s < n:
            s *= 2
        torch.testing.assert_close(turned(n, "auto"), turned(n, s), rtol=0, atol=2e-6)
    plain = f"{layer}(rope_parameters=proportional(partial_rotary_factor=0.5))"
    plain = make(plain if share else layer, SHAPE)
    assert not make(f"{layer}(rope_parameters={kind}({share}factor=auto))", SHAPE).prefix_stable
    assert plain.prefix_stable
    # With a planned length all tokens are read as in the whole text.
    torch.testing.assert_close(turned(40, "auto", 200), turned(40, 4), rtol=0, atol=2e-6)


def test_an_automatic_factor_counts_each_row():
    encoding = make("rope(rope_parameters=linear(factor=auto))", SHAPE)
    pos = torch.stack([torch.arange(100), torch.arange(100) - 60]).clamp(min=-1)
    w, factor = encoding.frequencies(Context(pos=pos))
    torch.testing.assert_close(w[0] * 2, w[1])
    assert factor.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("kind", ["dynamic(factor=auto)", "longrope(factor=auto)"])
def test_no_automatic_factor_where_the_type_reads_the_length(kind):
    with pytest.raises(SpecError, match="reads the length itself: factor must be a number"):
        make(f"rope(rope_parameters={kind})", SHAPE)


def test_ntk_keeps_the_highest_frequency_and_divides_the_lowest():
    ctx = Context(pos=torch.zeros(1, 1, dtype=torch.long))
    plain, _ = RoPE(SHAPE).frequencies(ctx)
    got, _ = RoPE(SHAPE, rope_parameters="ntk(factor=4)").frequencies(ctx)
    assert got[0] == plain[0]
    assert float(got[-1]) == pytest.approx(float(plain[-1]) / 4, rel=1e-5)
    based, _ = RoPE(SHAPE, base=10_000.0 * 4 ** (32 / 30)).frequencies(ctx)
    torch.testing.assert_close(got, based)


@pytest.mark.parametrize(("options", "faded"), [("", 5), ("(share=0.5)", 8), ("(share=1)", 16)])
def test_clipping_fades_out_the_lowest_frequencies(options, faded):
    ctx = Context(pos=torch.zeros(1, 1, dtype=torch.long))
    plain = RoPE(SHAPE).frequencies(ctx)[0].tolist()
    got = RoPE(SHAPE, rope_parameters=f"clipped{options}").frequencies(ctx)[0].tolist()
    for m, w in enumerate(plain):
        k = m - (16 - faded)  # of the faded ones
        share = (1 + math.cos(math.pi * k / (faded - 1))) / 2 if k > 0 else 1.0
        assert got[m] == pytest.approx(w * share, rel=1e-5, abs=1e-8)
    assert got[-1] == pytest.approx(0.0, abs=1e-8)


@pytest.mark.parametrize(("trained", "slowed"), [(5, 0), (64, 4), (150, 5), (400, 7), (10**6, 15)])
@pytest.mark.parametrize("factor", [1, 1.5, 16])
def test_riflex_slows_the_pair_that_turns_once_in_training(trained, slowed, factor):
    ctx = Context(pos=torch.zeros(1, 1, dtype=torch.long))
    shape = SHAPE.replaced(train_len=trained)
    got = RoPE(shape, rope_parameters=f"riflex(factor={factor})").frequencies(ctx)[0].tolist()
    periods = [2 * math.pi * 10_000 ** (m / 16) for m in range(16)]
    assert min(range(16), key=lambda m: abs(periods[m] - trained)) == slowed
    for m, period in enumerate(periods):
        grown = m == slowed and factor > 1
        want = max(period, factor * trained) if grown else period
        assert 2 * math.pi / got[m] == pytest.approx(want, rel=1e-5)


def test_one_clipped_pair_does_not_turn():
    ctx = Context(pos=torch.zeros(1, 1, dtype=torch.long))
    small = RoPE(d_head=8, rope_parameters="clipped").frequencies(ctx)[0]
    assert small[-1].abs() < 1e-6
    assert torch.equal(small[:-1], RoPE(d_head=8).frequencies(ctx)[0][:-1])


@pytest.mark.parametrize("train_len", [6, 7, 64, 1_000])
def test_hope_is_the_product_of_what_turns_once_in_training_and_of_the_rest_as_it_is(train_len):
    """In plain loops over pairs: rotations for w >= 2 pi / L, content alone for the others."""
    encoding = make("hope", SHAPE.replaced(train_len=train_len))
    q, k = torch.randn(2, 1, 2, 9, 32, dtype=torch.float64)
    pos = torch.tensor([[-1, 0, 1, 2, 3, 0, 1, 2, 40]])
    turned = encoding.transform(q, k, encoding.prepare(Context(pos)))
    got = (turned[0] @ turned[1].mT)[0, 1]
    a, b = (torch.view_as_complex(x[0, 1].view(9, 16, 2)) for x in (q, k))
    for i in range(1, 9):
        for j in range(1, 9):
            want = 0.0
            for m in range(16):
                w = 10_000 ** (-m / 16)
                angle = w * float(pos[0, i] - pos[0, j]) if w * train_len >= 2 * math.pi else 0.0
                turn = complex(math.cos(angle), math.sin(angle))
                want += float((turn * a[i, m] * b[j, m].conj()).real)
            assert got[i, j].item() == pytest.approx(want, abs=1e-4)


@pytest.mark.parametrize(("options", "turning"), [("", 8), ("(partial_rotary_factor=0.25)", 4)])
def test_all_turning_pairs_turn_once_in_training(options, turning):
    ctx = Context(pos=torch.zeros(1, 1, dtype=torch.long))
    got = RoPE(SHAPE, rope_parameters=f"in_distribution{options}").frequencies(ctx)[0].double()
    assert (got[turning:] == 0).all()
    steps = got[1:turning] / got[: turning - 1]  # a geometric series from 1 to one turn in 64
    torch.testing.assert_close(steps, torch.full_like(steps, (math.pi / 32) ** (1 / (turning - 1))))
    torch.testing.assert_close(
        got[[0, turning - 1]], torch.tensor([1.0, 2 * math.pi / 64]).double()
    )


@pytest.mark.parametrize("layout", ["interleaved", "half"])
@pytest.mark.parametrize("case", [CASES[1], CASES[2], CASES[8]], ids=lambda case: case["rope_type"])
def test_the_attention_factor_multiplies_q_and_k(case, layout):
    encoding = RoPE(SHAPE, layout=layout, rope_parameters=case)
    q, k = torch.randn(2, 3, 2, 70, 32).unbind(0)
    ctx = Context(pos=torch.stack([torch.arange(70), torch.arange(70) - 5, torch.arange(70) * 2]))
    ctx.pos[1, :5] = -1
    got = encoding.transform(q, k, encoding.prepare(ctx))
    for b in range(3):
        w, factor = encoding.frequencies(Context(pos=ctx.pos[b : b + 1]))
        turn = torch.exp(1j * ctx.pos[b, :, None] * w.view(-1))
        for x, y in zip((q, k), got, strict=True):
            pairs = x[b].view(2, 70, 2, 16).mT if layout == "half" else x[b].view(2, 70, 16, 2)
            want = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * turn) * factor
            want = want.mT.flatten(2) if layout == "half" else want.flatten(2)
            torch.testing.assert_close(y[b], want, atol=2e-4, rtol=1e-4)


def test_conformance_of_longrope():
    def build(shape):
        ones = [1.0] * (shape.d_head // 2)
        parameters = {"factor": 2.0, "short_factor": ones, "long_factor": ones}
        return RoPE(shape, rope_parameters={"rope_type": "longrope", **parameters})

    check_encoding(build)


BRIEF = {
    **{name: {"factor": 4.0} for name in ("linear", "ntk", "dynamic", "yarn", "llama3", "riflex")},
    "longrope": {"short_factor": [1.1] * 4, "long_factor": [1.0, 1.3, 2.7, 3.9]},
    "proportional": {"partial_rotary_factor": 0.5},
}


@pytest.mark.parametrize("rope_type", SCALINGS)
def test_a_half_precision_default_dtype_leaves_the_angles(rope_type):
    own = {"rope_type": rope_type, **BRIEF.get(rope_type, {})}
    check = {check.__name__: check for check in CHECKS}["check_default_dtype"]
    run_check(check, lambda shape: RoPE(shape, rope_parameters=own))


def test_each_row_has_its_own_length():
    encoding = RoPE(SHAPE, rope_parameters="dynamic(factor=2)")
    pos = torch.arange(100).expand(2, -1).clone()
    pos[1, 50:] = -1
    both, _ = encoding.frequencies(Context(pos=pos))
    plain, _ = RoPE(SHAPE).frequencies(Context(pos=pos))
    torch.testing.assert_close(both[1], plain)
    assert (both[0, 1:] < plain[1:]).all()
    assert not encoding.prefix_stable
    assert not encoding.relative


@pytest.mark.parametrize("parameters", ["default", "yarn(factor=8)"])
def test_dropping_positions(parameters):
    encoding = RoPE(SHAPE, drop=0.8, rope_parameters=parameters)
    ctx = Context(pos=torch.arange(9)[None])
    q, k = torch.randn(2, 1, 2, 9, 32).unbind(0)

    def keys(progress):
        drawn = encoding.draw(ctx, progress=progress)
        return encoding.transform(q, k, encoding.prepare(Pass.of(ctx, drawn=drawn)))[1]

    plain = RoPE(SHAPE, rope_parameters=parameters)
    turned = plain.transform(q, k, plain.prepare(ctx))[1]
    assert torch.equal(keys(0.0), turned)
    assert torch.equal(keys(0.79), turned)
    torch.testing.assert_close(keys(0.8), k)
    with pytest.raises(ValueError, match="needs the progress of training"):
        keys(None)
    encoding.eval()
    torch.testing.assert_close(keys(None), k)
    assert encoding.order_blind


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rope(rope_parameters=yarm(factor=4))", "unknown rope_type 'yarm'; did you mean yarn?"),
        ("rope(rope_parameters=linear)", "rope_type=linear needs factor"),
        (
            "rope(rope_parameters={'factor': 4})",
            "rope_type=default does not take factor, which is for linear, ntk, dynamic",
        ),
        (
            "rope(rope_parameters=ntk(factor=2,beta_fast=3))",
            "does not take beta_fast, which is for yarn",
        ),
        ("rope(rope_parameters=ntk(factor=2,mscale=3))", "does not take mscale"),
        ("rope(rope_parameters=linear(factor=-2))", "factor must be a number above 0"),
        ("rope(rope_parameters=linear(factor=two))", "factor must be a number above 0"),
        ("rope(rope_parameters={'rope_theta':-1})", "rope_theta must be a number above 0"),
        (
            "rope(rope_parameters=longrope(short_factor=[1,2],long_factor=[1,2]))",
            "short_factor needs d_head / 2 = 16 numbers",
        ),
        (
            "rope(rope_parameters=longrope(short_factor=2,long_factor=[1]))",
            "short_factor must be numbers above 0",
        ),
        ("rope(rope_parameters=yarn(factor=2,attention_factor=0))", "attention_factor must be"),
        ("rope(rope_parameters=yarn(factor=4,beta_slow=-1))", "beta_slow must be"),
        ("rope(base=1,rope_parameters=yarn(factor=4))", "yarn needs a base above 1"),
        (
            "rope(rope_parameters=llama3(factor=8,low_freq_factor=4))",
            "low_freq_factor must be below high_freq_factor",
        ),
        (
            "rope(rope_parameters=yarn(factor=2,beta_fast=0.5))",
            "beta_slow must be below beta_fast",
        ),
        ("rope(rope_parameters=proportional(partial_rotary_factor=2))", "must be at most 1"),
        ("rope(rope_parameters=clipped(share=1.5))", "share must be at most 1"),
        (
            "rope(rope_parameters={'partial_rotary_factor': 0.5})",
            "rope_type=default rotates whole heads",
        ),
        ("rope(rope_parameters=3)", "expects"),
        ("rope(rope_parameters=yarn(factor=4):linear(factor=2))", "rope_parameters wraps nothing"),
        ("rope(rope_parameters=yarn(factor=4,truncate=7))", "truncate must be true or false"),
        (
            "rope(rope_parameters={'rope_type':'yarn','factor':4,'finetuned':True})",
            "unknown key of rope_parameters 'finetuned'",
        ),
        (
            "rope(rope_parameters={'full_attention':{'rope_type':'default'}})",
            "unknown key of rope_parameters 'full_attention'",
        ),
        (
            "rope(rope_parameters={'rope_type':'yarn','type':'linear','factor':4})",
            "rope_type=yarn and type=linear differ",
        ),
        ("rope(rope_parameters={'type':'linaer','factor':4})", "did you mean linear?"),
        ("rope(rope_parameters=yarn(factor=4,mscale=-1))", "mscale must be a number"),
        ("rope(drop=0)", "drop must be above 0 and at most 1"),
        ("rope(layout=halff)", "unknown layout 'halff'; did you mean half?"),
    ],
)
def test_errors(text, message):
    with pytest.raises(SpecError) as error:
        make(text, SHAPE)
    assert message in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        "rope(rope_parameters=yarn(factor=4,beta_fast=16))",
        "rope(rope_parameters={'rope_type': 'yarn', 'factor': 4, 'beta_fast': 16})",
        "rope(base=3,rope_parameters={'rope_type': 'yarn', 'rope_theta': 1e4, 'factor': 4.0,"
        " 'beta_fast': 16, 'beta_slow': None})",
        "rope(rope_parameters={'type':'yarn','factor':4,'beta_fast':16,'mscale_all_dim':0.0})",
        "rope(rope_parameters={'type':'yarn','rope_type':'yarn','factor':4,'beta_fast':16})",
    ],
)
def test_a_text_and_a_dictionary_are_the_same(text):
    ctx = Context(pos=torch.arange(9)[None])
    parameters = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0, "beta_fast": 16.0}
    want, factor = RoPE(SHAPE, rope_parameters=parameters).frequencies(ctx)
    for spec in (text, str(parse(text))):
        got, own = make(spec, SHAPE).frequencies(ctx)
        assert torch.equal(got, want)
        assert own == factor
    assert make(text, SHAPE).base == 10_000.0
