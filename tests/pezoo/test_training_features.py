"""Training features change no result: checkpointing, autocast, DDP and FSDP2."""

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from small_model import SHAPE, SMALL, Model, gradients, inputs, train
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.func import functional_call, vmap
from torch.func import grad as gradient
from torch.nn.parallel import DistributedDataParallel

from pezoo.base import Context

TEXTS = [
    "rope",
    "alibi",
    "t5",
    f"prism_2025({SMALL},before=0+1,key_bias=2.0,reset_bias=-2.0)",
    "prism_spectral(d_pe=4,hidden=5)",
    "randomized:rope",
]
WITH_WEIGHTS = TEXTS[2:5]
WRAPPERS = ["DDP", "FSDP2"]
ROWS = 4


def ready(text, **options):
    """A model, with what its encoding draws in any process alike.

    The encoding adds no noise, which would differ between parts of a batch.
    """
    model, (x, pos) = Model(text, **options), inputs(ROWS)
    model.encoding.eval()
    generator = torch.Generator().manual_seed(0)
    model.drawn = model.encoding.draw(Context(pos, x=x), generator=generator)
    return model


@pytest.mark.parametrize("text", TEXTS)
def test_checkpointed_blocks_have_the_same_gradients(text):
    found = []
    for checkpointed in (False, True):
        model = ready(text, checkpointed=checkpointed)
        loss = train(model, model.encoding, *inputs(ROWS))
        found.append((loss, gradients(model)))
    torch.testing.assert_close(*found, rtol=0, atol=0)


@pytest.mark.parametrize("text", TEXTS)
def test_autocast_changes_no_more_than_bfloat16_rounds(text):
    found = []
    for on in (False, True):
        model = ready(text)
        with torch.autocast("cpu", torch.bfloat16, enabled=on):
            loss = train(model, model.encoding, *inputs(ROWS))
        found.append((loss, gradients(model)))
    (want, right), (got, near) = found
    torch.testing.assert_close(got, want, rtol=0.02, atol=0)
    whole = torch.cat([grad.flatten() for grad in right.values()]).norm()
    for name, grad in right.items():
        assert near[name].dtype == torch.float32
        assert (near[name] - grad).norm() < 0.1 * grad.norm() + 1e-4 * whole, name


@pytest.mark.parametrize("text", ["rope", "t5", "relative", "sandwich", "wavelet", "fox", "path"])
@pytest.mark.parametrize("rows", [None, 0])
def test_gradients_of_each_sample_by_vmap(text, rows):
    model, (x, pos) = Model(text), inputs(ROWS)
    weights = {name: p.detach() for name, p in model.named_parameters()}

    def loss(weights, x, pos):
        return functional_call(model, weights, (x[None], pos[None])).square().mean()

    pos = pos[0] if rows is None else pos + torch.arange(ROWS)[:, None]
    found = vmap(gradient(loss), in_dims=(None, 0, rows))(weights, x, pos)
    for i in range(ROWS):
        want = gradient(loss)(weights, x[i], pos if rows is None else pos[i])
        torch.testing.assert_close({name: g[i] for name, g in found.items()}, want)


def test_what_reads_positions_says_that_vmap_hides_them():
    model, (x, pos) = Model("learned"), inputs(ROWS)
    with pytest.raises(
        ValueError, match=r"torch\.vmap has no values for draw to read: call draw be"
    ):
        vmap(lambda x, pos: model(x[None], pos[None]))(x, pos.expand(ROWS, -1))


def shared(model, wrapper):
    """The model in a wrapper that shares a batch, or also the parameters, among processes."""
    if wrapper == "DDP":
        return DistributedDataParallel(model)
    for block in model.blocks:
        fully_shard(block)
    return fully_shard(model)


def process(rank, folder):
    """Train on half of the batch, and save what all processes have found."""
    torch.set_num_threads(1)
    store = dist.FileStore(f"{folder}/store", 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    for text in WITH_WEIGHTS:
        for wrapper in WRAPPERS:
            model, (x, pos) = ready(text), inputs(ROWS)
            loss = train(shared(model, wrapper), model.encoding, x.chunk(2)[rank], pos)
            dist.all_reduce(loss)
            found = {
                name: grad.full_tensor() if isinstance(grad, DTensor) else grad
                for name, grad in gradients(model).items()
            }
            torch.save((loss / 2, found), f"{folder}/{rank}.{text}.{wrapper}")
    dist.destroy_process_group()


@pytest.fixture(scope="session")
def together(tmp_path_factory):
    """The folder in which two processes saved losses and gradients."""
    folder = str(tmp_path_factory.mktemp("together"))
    processes.start_processes(process, (folder,), nprocs=2, start_method="spawn")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_two_processes_train_as_one(wrapper, together):
    for text in WITH_WEIGHTS:
        model = ready(text)
        want = train(model, model.encoding, *inputs(ROWS)), gradients(model)
        for rank in range(2):
            got = torch.load(f"{together}/{rank}.{text}.{wrapper}")
            torch.testing.assert_close(got, want, msg=lambda words, text=text: f"{text}: {words}")


@pytest.mark.slow
def test_the_optimiser_gets_sharded_parameters(tmp_path):
    dist.init_process_group(
        "gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1
    )
    model = Model("prism_spectral(d_pe=4,hidden=5)")
    shared(model, "FSDP2")
    (group,) = model.encoding.param_groups()
    assert all(isinstance(p, DTensor) for p in group.params)
    assert len(group.params[0]) == SHAPE.n_layers
    dist.destroy_process_group()
