"""Training where there is neither a CPU nor CUDA, as on Apple's GPUs: `meta` has shapes alone."""

from contextlib import nullcontext

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import pezoo
from harness.settings.protocol import load_protocol, resolve
from harness.training import trainer as trainer_module
from harness.training.trainer import start
from pezoo.encodings import goat, pope, relative
from pezoo.functional import has_float64
from pezoo.spec import parse

SMALL = {"prism": "prism_2025(cursors=1,d_pe=8,hidden=6,gate_noise=0.1)"}
NAMES = [name for name in pezoo.names() if name != "ideal"]  # it needs a task of fixed places
TEXTS = [*(SMALL.get(name, name) for name in NAMES), "randomized:rope"]


class NoFloat64(TorchDispatchMode):
    """Refuses what Apple's GPUs lack; a look at a value is an error on meta."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        made = [x for x in tree_leaves(out) if isinstance(x, torch.Tensor)]
        assert all(x.dtype != torch.float64 for x in made if x.is_meta), func
        return out


@pytest.mark.slow
@pytest.mark.parametrize("text", TEXTS)
def test_a_step_on_another_device(text, monkeypatch):
    for module in (goat, pope, relative):
        monkeypatch.setattr(module, "has_float64", lambda device: device.type != "meta")
    monkeypatch.setattr(torch, "autocast", lambda *args, **options: nullcontext())  # meta has none
    sets = (
        "model.width=16",
        "model.heads=2",
        "model.layers=2",
        "train.batch=2",
        "model.dropout=0.1",
    )
    task = "addition_coupled" if text == "coupled" else "copy"
    config = resolve(load_protocol("quick", sets), task, parse(text), 0, "cpu", "auto")
    config = config.model_copy(update={"device": "meta"})
    monkeypatch.setattr(trainer_module, "optimiser_for", lambda *args: None)  # not fused on meta
    trainer = start(config)
    batch, length = trainer.draw()
    assert batch.ids.is_meta
    with NoFloat64():
        loss = trainer.loss(batch, length)
        trainer.losses.note(0, loss)
        loss.backward()
    assert all(p.grad is not None and p.grad.is_meta for p in trainer.model.parameters())
    assert trainer.model.ran["train"] <= {"sdpa meta", "eager"}
    assert not {"numba", "triton"} & {*trainer.model.kernels().values()}


def test_apples_gpu_has_no_float64():
    assert not has_float64(torch.device("mps"))
    assert has_float64(torch.device("cuda:1"))
