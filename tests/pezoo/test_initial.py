"""Models that are built on the device meta get their initial values from `reset_parameters`."""

import copy
import pickle

import pytest
import torch
import torch.distributed as dist
from small_model import SHAPE, SMALL, Model
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

import pezoo

CURSORS = [f"prism({SMALL})", f"prism_2025({SMALL},copy_every=1)", "latch:dape:kerple"]
SEEDS = range(40)


def reset(module):
    if hasattr(module, "reset_parameters"):
        module.reset_parameters()


def built_on_meta(text):
    with torch.device("meta"):
        encoding = pezoo.make(text, SHAPE)
    return encoding.to_empty(device="cpu")


def values(encoding):
    return dict(encoding.state_dict())


def new(text, seed):
    torch.manual_seed(seed)
    return pezoo.make(text, SHAPE)


@pytest.mark.parametrize("text", CURSORS)
@pytest.mark.parametrize("children_first", [False, True])
def test_modules_that_are_reset_in_turn_have_the_same_distribution(text, children_first):
    encoding, drawn = built_on_meta(text), []
    for seed in SEEDS:
        torch.manual_seed(seed)
        for module in [] if children_first else encoding.modules():
            reset(module)
        if children_first:
            encoding.apply(reset)
        drawn.append({name: x.clone() for name, x in values(encoding).items()})
    fresh = [values(new(text, 100 + seed)) for seed in SEEDS]
    for name in fresh[0]:
        got, want = (torch.stack([one[name] for one in some]) for some in (drawn, fresh))
        spread = want.std(0).mean()
        torch.testing.assert_close(got.mean(0), want.mean(0), rtol=0, atol=1e-6 + 1.2 * spread)
        torch.testing.assert_close(got.std(0).mean(), spread, rtol=0.15, atol=1e-6)


def test_a_sharded_model_has_the_values_of_a_new_encoding(tmp_path):
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        for text in (*CURSORS, "bam", "dape:alibi"):
            with torch.device("meta"):
                model = Model(text)
            for block in model.blocks:
                fully_shard(block)
            fully_shard(model).to_empty(device="cpu")
            model.apply(reset)
            torch.manual_seed(3)
            model.encoding.reset_parameters()
            found = values(model.encoding)
            assert any(isinstance(x, DTensor) for x in found.values())
            whole = {k: x.full_tensor() if isinstance(x, DTensor) else x for k, x in found.items()}
            torch.testing.assert_close(whole, values(new(text, 3)), rtol=0, atol=0)
    finally:
        dist.destroy_process_group()


def test_copies_can_be_reset():
    encoding = new("randomized:learned", 3)
    for other in (copy.deepcopy(encoding), pickle.loads(pickle.dumps(encoding))):
        torch.manual_seed(5)
        other.reset_parameters()
        assert torch.equal(other.inner.table, new("randomized:learned", 5).inner.table)
