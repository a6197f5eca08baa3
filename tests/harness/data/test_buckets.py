"""Batches padded to a few sizes train the same model."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import pezoo
from harness import tasks
from harness.data.buckets import bucket
from harness.data.sequences import decoder_sequences
from harness.settings.protocol import load_protocol, resolve
from harness.training.trainer import start
from pezoo.spec import parse

torch.set_num_threads(1)
SETTINGS = ("train.steps=4", "model.width=16", "model.heads=2", "train.batch=6", "train.warmup=2",
            "model.dropout=0.2", "train.lengths=[2, 7]")  # fmt: skip
NOISE = "state_noise=0.3,gate_noise=0.2"
PRISM = f"prism_2025(cursors=1,d_pe=8,hidden=6,before=0+1,{NOISE})"
SMALL = {
    "prism": PRISM,
    "prism_spectral": f"prism_spectral(cursors=1,d_pe=8,hidden=6,{NOISE})",
}
COPYING = f"prism_2025(cursors=2,d_pe=8,hidden=6,copy_every=2,{NOISE})"
WRAPPED = ("randomized:learned", "randomized(sample=distances):alibi", f"randomized:{COPYING}")
TOLD = ("ideal", "ideal_sh", "coupled")  # by the task
NAMES = [name for name in pezoo.names() if name not in TOLD]
TEXTS = (*(SMALL.get(name, name) for name in NAMES), *WRAPPED)


@given(st.integers(1, 100_000))
def test_a_size_is_near_and_serves_itself(n):
    size = bucket(n)
    assert n <= size == bucket(size)
    assert size % 8 == 0
    assert size - n < max(8, n / 4)
    assert bucket(n) <= bucket(n + 1)


def test_a_doubling_has_four_sizes():
    for exponent in range(5, 14):
        assert len({bucket(n) for n in range(2**exponent + 1, 2 * 2**exponent + 1)}) == 4


@pytest.mark.parametrize("task", ["copy", "addition"])  # prompts of one length, and of several
def test_padding_is_on_the_right_and_not_supervised(task):
    made = tasks.make(task)
    batch = decoder_sequences(made.sample(torch.Generator().manual_seed(0), 4, 5), made)
    size = batch.inputs.shape[1]
    padded = batch.padded(size + 2, made.vocab.pad).padded(size + 5, made.vocab.pad)
    assert (padded.padding, padded.prompt) == (5, batch.prompt)
    for name in ("inputs", "labels", "answer", "counted"):
        assert torch.equal(getattr(padded, name)[:, :size], getattr(batch, name))
    assert torch.equal(padded.pos[:, :size], batch.pos)
    assert (padded.inputs[:, size:] == made.vocab.pad).all()
    assert (padded.pos[:, size:] == batch.pos[:, -1:]).all()
    assert not padded.answer[:, size:].any()
    rows = padded.rows(1, 3)
    assert torch.equal(rows.inputs, padded.inputs[1:3])
    assert rows.padding == 5


def two(text, task):
    """The same run with and without buckets."""
    protocol = load_protocol("quick", SETTINGS)
    both = [start(resolve(protocol, task, parse(text), 0, "cpu", "auto")) for _ in range(2)]
    both[1].buckets = True
    return both


@pytest.mark.parametrize("task", ["copy", "addition"])
@pytest.mark.parametrize("text", TEXTS)
def test_buckets_change_nothing(text, task):
    plain, padded = two(text, task)
    for trainer in (plain, padded):
        trainer.model.double()
    for step in range(2):
        plain.step = padded.step = step
        assert plain.backward() == pytest.approx(float(padded.backward()), abs=1e-6)
        gradients = zip(plain.model.parameters(), padded.model.parameters(), strict=True)
        for a, b in gradients:
            torch.testing.assert_close(b.grad, a.grad, rtol=0, atol=1e-6)


def test_an_encoding_that_looks_ahead_is_not_padded():
    _, trainer = two("rope", "copy")
    trainer.model.encoding.prefix_stable = False
    assert trainer.draw()[0].padding is None
