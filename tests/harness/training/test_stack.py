"""Runs trained as one stack are the runs trained alone."""

import math

import pytest
import torch

import pezoo
from harness.settings.protocol import load_protocol, resolve
from harness.training.stack import Stack
from harness.training.trainer import start
from pezoo.spec import parse

torch.set_num_threads(1)
SETTINGS = ("train.steps=50", "model.width=16", "model.heads=2", "train.batch=4", "train.warmup=4",
            "train.lengths=[1, 5]")  # fmt: skip
NOISE = "state_noise=0.3,gate_noise=0.2"
SMALL = {
    "prism": f"prism(cursors=1,d_pe=8,hidden=6,orthogonal=0.1,{NOISE})",
    "prism_spectral": f"prism_spectral(cursors=1,d_pe=8,hidden=6,{NOISE})",
}
COPYING = f"prism(cursors=2,d_pe=8,hidden=6,copy_every=2,before=0+1,{NOISE})"
# Biases of -128 leave most gradients to rounding: one ulp more in one layer's weights at the start
# is 2e-4 in the loss after 50 steps alone, too. In float64 it is as the others.
FAR = "randomized(sample=distances):alibi"
MORE = (
    COPYING,
    "prism(cursors=1,d_pe=8,hidden=6,controller=latch)",
    "prism(cursors=2,d_pe=8,hidden=6,stride=2,copy_every=2,top_weight=4.0,lead=true)",
    "prism_spectral(cursors=1,d_pe=8,hidden=6,controller=latch)",
    "randomized:learned",
    FAR,
)
NAMES = [name for name in pezoo.names() if name != "ideal"]  # it needs a task of fixed places
TEXTS = (*(SMALL.get(name, name) for name in NAMES), *MORE)
# The machinery does not depend on the encoding: nothing, a bias in factors, a table and a number
# that are drawn for the batch, noise that is drawn for rows and tokens. The others are slow tests.
USUAL = ("nope", "relative", "randomized", "shifted_sinusoidal", SMALL["prism"])


def slow_but(*quick):
    return [text if text in quick else pytest.param(text, marks=pytest.mark.slow) for text in TEXTS]


RATES = (1e-3, 3e-3, 1e-3)  # of seeds 0, 1, 2


def config_of(text, seed=0, lr=1e-3, *settings, task="copy"):
    config = resolve(
        load_protocol("quick", (*SETTINGS, *settings)), task, parse(text), seed, "cpu", "auto"
    )
    train = config.train.model_copy(update={"lr": lr})
    return config.model_copy(update={"train": train})


def trainers(text, *settings, task="copy", double=False):
    made = [start(config_of(text, i, lr, *settings, task=task)) for i, lr in enumerate(RATES)]
    for trainer in made:
        trainer.model.to(torch.float64 if double else torch.float32)
    return made


def losses(stack, steps):
    """By seed, one list a step."""
    found = []
    for _ in range(steps):
        by_seed = zip(
            [t.config.seed for t in stack.trainers], stack.advance().tolist(), strict=True
        )
        found.append([loss for _, loss in sorted(by_seed)])
    return found


def assert_same_weights(one, two, tolerance):
    for a, b in zip(one, two, strict=True):
        assert a.step == b.step
        for x, y in zip(a.model.parameters(), b.model.parameters(), strict=True):
            torch.testing.assert_close(y, x, rtol=0, atol=tolerance)
        for x, y in zip(
            a.optimiser.state_dict()["state"].values(),
            b.optimiser.state_dict()["state"].values(),
            strict=True,
        ):
            torch.testing.assert_close(y, x, rtol=1e-4, atol=tolerance)


@pytest.mark.parametrize("text", slow_but("nope"))
def test_a_stack_has_the_losses_of_its_members(text):
    """In float32, as runs are.

    Weights are compared in float64: AdamW divides a gradient by its size, so that a weight whose
    gradient is nothing but rounding, as that of a key's bias, goes where rounding sends it.
    """
    alone, stack = trainers(text), Stack(trainers(text))
    expected = torch.tensor([[float(trainer.advance()) for trainer in alone] for _ in range(50)])
    tolerance = 2e-3 if text == FAR else 1e-5
    torch.testing.assert_close(torch.tensor(losses(stack, 50)), expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("text", slow_but(*USUAL))
@pytest.mark.parametrize("task", ["copy", "addition"])  # the second has rows of several lengths
def test_a_stack_has_the_weights_of_its_members(text, task):
    if (text, task) == ("ideal_sh", "addition"):
        pytest.skip("addition declares no relation of positions for its steps")
    alone, together = (trainers(text, "model.dropout=0.1", task=task, double=True) for _ in "ab")
    stack = Stack(together)
    for _ in range(3):
        expected = [float(trainer.advance()) for trainer in alone]
        assert losses(stack, 1)[0] == pytest.approx(expected, abs=1e-9)
    stack.write_back()
    assert_same_weights(alone, together, 1e-6)


@pytest.mark.parametrize("text", ["randomized:learned", "relative"])
def test_encoders_see_no_padding_of_the_stack(text):
    """A member whose batch is the shorter gets positions row by row, which say where it ends."""

    def made():
        protocol = load_protocol("ruoss2023-mini", SETTINGS)
        configs = (
            resolve(protocol, "reverse", parse(text), seed, "cpu", "auto") for seed in range(3)
        )
        trainers = [start(config) for config in configs]
        for trainer in trainers:
            trainer.model.double()
        return trainers

    alone, together = made(), made()
    stack = Stack(together)
    widths = {trainer.make_batch()[0].inputs.shape[1] for trainer in alone}
    assert len(widths) > 1, "members must differ in length"
    expected = [float(trainer.advance()) for trainer in alone]
    assert losses(stack, 1)[0] == pytest.approx(expected, abs=1e-9)
    stack.write_back()
    assert_same_weights(alone, together, 1e-6)


def test_members_of_one_packed_row_keep_their_own_documents():
    settings = ("train.batch=1", "train.context=120", "train.lengths=[1, 3]", "train.curriculum=[]")
    protocol = load_protocol(
        "turing2024-mini", (*SETTINGS, *settings, 'train.borders="closed"', "model.layers=1")
    )
    text = parse("hard_alibi(masked=1)")

    def made():
        configs = [resolve(protocol, "turing_addition", text, i, "cpu", "auto") for i in range(3)]
        trainers = [start(config) for config in configs]
        for trainer in trainers:
            trainer.model.double()
        return trainers

    alone, stack = made(), Stack(made())
    first, second, _ = (trainer.make_batch()[0].pos for trainer in alone)
    assert len(first) == 1
    assert not torch.equal(first, second)
    expected = [float(trainer.advance()) for trainer in alone]
    assert losses(stack, 1)[0] == pytest.approx(expected, abs=1e-9)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("text", TEXTS)
def test_a_stack_on_a_gpu(text):
    configs = [config_of(text, seed).model_copy(update={"device": "cuda"}) for seed in (0, 1, 2)]
    alone, stack = [start(config) for config in configs], Stack([start(c) for c in configs])
    for _ in range(3):
        expected = [float(trainer.advance()) for trainer in alone]
        assert stack.advance().tolist() == pytest.approx(expected, abs=1e-4)
    stack.write_back()


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("text", ["rope", "relative", "randomized:shaw"])
def test_other_attention_than_a_cpus_own(text, attention):
    def made():
        configs = [config_of(text, seed) for seed in (0, 1)]
        return [start(c.model_copy(update={"attention": attention})) for c in configs]

    alone, stack = made(), Stack(made())
    for _ in range(2):
        expected = [float(trainer.advance()) for trainer in alone]
        assert stack.advance().tolist() == pytest.approx(expected, abs=1e-5)
    assert {*stack.modules[0].model.ran["train"]} == {*alone[0].model.ran["train"]}


@pytest.mark.slow
@pytest.mark.parametrize("text", TEXTS)
def test_weights_after_fifty_steps(text):
    alone, together = (trainers(text, double=True) for _ in "ab")
    stack = Stack(together)
    expected = [[float(trainer.advance()) for trainer in alone] for _ in range(50)]
    torch.testing.assert_close(
        torch.tensor(losses(stack, 50)), torch.tensor(expected), rtol=0, atol=1e-5
    )
    stack.write_back()
    assert_same_weights(alone, together, 1e-5)


def test_members_may_come_and_go():
    """From trainers that have taken steps already, alone or in a larger stack."""
    alone, together = (trainers(SMALL["prism"], double=True) for _ in "ab")
    for _ in range(4):
        for trainer in alone:
            trainer.advance()
    for trainer in together:
        trainer.advance()
    first = Stack(together)
    losses(first, 2)
    first.write_back()
    second = Stack(together[:2])
    losses(second, 1)
    second.write_back()
    for _ in range(1):
        together[2].advance()
    assert_same_weights(alone[2:], together[2:], 1e-6)
    assert together[0].step == 4
    assert_same_weights(alone[:2], together[:2], 1e-6)


def test_a_member_that_diverges_changes_no_other():
    alone, together = (trainers("relative", double=True) for _ in "ab")
    with torch.no_grad():
        together[1].model.embedding.weight.fill_(math.nan)
    stack = Stack(together)
    for _ in range(3):
        expected = [float(trainer.advance()) for trainer in alone]
        found = losses(stack, 1)[0]
        assert math.isnan(found[1])
        assert [found[0], found[2]] == pytest.approx([expected[0], expected[2]], abs=1e-9)
    stack.write_back()
    assert_same_weights([alone[0], alone[2]], [together[0], together[2]], 1e-6)


def test_bfloat16_is_that_of_the_members():
    alone, together = (trainers("rope", "train.precision=bf16") for _ in "ab")
    expected = [float(trainer.advance()) for trainer in alone]
    assert losses(Stack(together), 1)[0] == pytest.approx(expected, abs=0.02)


def test_what_can_be_stacked():
    config = config_of("rope")
    assert config.family == config_of("rope", 7, 0.5).family
    assert config.family == config_of("rope", 0, 1e-3, "train.lr=3e-3").family
    for other in (config_of("nope"), config_of("rope", 0, 1e-3, "train.batch=5")):
        assert config.family != other.family
        with pytest.raises(ValueError, match="differ in more than seed and learning rate"):
            Stack([start(config), start(other)])
    ahead = start(config)
    ahead.advance()
    with pytest.raises(ValueError, match="differ in more"):
        Stack([start(config_of("rope", 1)), ahead])
    ahead.model.encoding.prefix_stable = False
    with pytest.raises(ValueError, match="looks ahead"):
        Stack([ahead])
