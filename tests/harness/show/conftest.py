"""A model and an example to look into."""

import pytest
import torch

import pezoo
from experiment.config import Model
from harness import tasks
from harness.model.transformer import Transformer, shape_of
from harness.settings.protocol import load_protocol, resolve
from harness.show.examples import Example, word
from pezoo.spec import parse

MODEL = Model(layers=2, heads=2, width=16)
SET = (
    "train.steps=3", "train.batch=4", "eval.samples=2", "eval.min_samples=2",
    "eval.validation_samples=1", "eval.lengths=[10,20]",
    "model.layers=1", "model.width=16", "model.heads=1",
)  # fmt: skip


@pytest.fixture(scope="session")
def config_of():
    """(encoding, task) -> the settings of a run of three steps."""

    def make(encoding, task="copy"):
        return resolve(load_protocol("quick", SET), task, parse(encoding), 0, "cpu", "auto")

    return make


@pytest.fixture(scope="session")
def decoder():
    """(encoding, train_len) -> an untrained model."""

    def make(text, train_len=32):
        torch.manual_seed(0)
        encoding = pezoo.make(text, shape_of(MODEL, train_len))
        prf, told = tasks.make("copy(aligned=4)").prf, tasks.make("addition_coupled").fields
        return Transformer(MODEL, encoding, 0, task_prf=prf, task_fields=told).eval()

    return make


@pytest.fixture(scope="session")
def example():
    """(text, number) -> an example as if the model had answered with the right half of the text."""

    def make(text="4711=4711", number=1):
        task = tasks.make("copy")
        ids = torch.cat([task.vocab.encode(text), torch.tensor([task.vocab.eos])])[None]
        words = tuple(word(task, int(i)) for i in ids[0])
        prompt, wrong = text.index("=") + 1, (False,) * len(words)
        read = ids[:, :-1], words[:-1], ("",) * (prompt - 1) + words[prompt:]
        return Example(
            number, prompt - 1, True, prompt, ids, words, wrong, "", ids.shape[1] - 1, *read
        )

    return make
