"""One step, the schedule and the data order, which no encoding changes."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from experiment.config import Learned, Stage, Train
from harness import tasks
from harness.data.batches import length_choice, training_batch
from harness.data.seeds import generator
from harness.data.sequences import decoder_sequences, to_sequences
from harness.settings.protocol import load_protocol, resolve
from harness.training.optimiser import rate
from harness.training.trainer import Diverged, Losses, start
from pezoo.functional import parameter_groups
from pezoo.spec import parse

torch.set_num_threads(1)
SMALL = ("model.width=16", "model.heads=2", "train.batch=8", "train.warmup=2")
PRISM = "prism_2025(cursors=1,d_pe=8,hidden=6)"


def config_of(encoding, *overrides, task="copy", seed=0):
    protocol = load_protocol("quick", ("train.steps=5", *SMALL, *overrides))
    return resolve(protocol, task, parse(encoding), seed, "cpu", "auto")


def batches(config, monkeypatch):
    """The batches of every step, as the model gets them."""
    seen = []

    def record(*args):
        seen.append(to_sequences(*args))
        return seen[-1]

    monkeypatch.setattr("harness.data.batches.to_sequences", record)
    trainer = start(config)
    for _ in range(config.train.steps):
        trainer.advance()
    return [batch.ids for batch in seen]


@pytest.mark.parametrize("task", ["copy", "addition"])
def test_every_encoding_sees_the_same_data(task, monkeypatch):
    orders = [
        batches(config_of(text, task=task), monkeypatch)
        for text in ("rope", "randomized:learned", PRISM, "shifted_sinusoidal")
    ]
    for other in orders[1:]:
        assert all(torch.equal(a, b) for a, b in zip(orders[0], other, strict=True))
    config = config_of("rope", task=task)
    for step, ids in enumerate(orders[0]):  # what is drawn depends on seed and step alone
        draws = generator("train", task, config.task_version, 0, step)
        made = tasks.make(task)
        (length,) = length_choice(made, config.train, step).draw(draws, 1)
        assert torch.equal(decoder_sequences(made.sample(draws, 8, length), made).ids, ids)
    other = batches(config_of("rope", task=task, seed=1), monkeypatch)
    assert any(a.shape != b.shape or (a != b).any() for a, b in zip(orders[0], other, strict=True))


@pytest.mark.parametrize(
    "text",
    [
        *("learned", "relative", "path", "geometric", "fox", "bipe", "randomized"),
        "prism(d_pe=8,hidden=6)",
    ],
)
def test_padding_on_the_right_changes_no_loss(text):
    """Rows that share their positions train as rows that are padded on the left."""
    trainer = start(config_of(text, task="addition"))
    trainer.model.double()
    left, length = training_batch(trainer.task, trainer.config, 3)
    assert len(left.pos) > 1, "prompts must be ragged"
    found = []
    for batch in (left, left.left_aligned(trainer.task.vocab.pad)):
        loss = trainer.loss(trainer.with_drawn(batch), length)  # at step 0, where no gate has noise
        trainer.optimiser.zero_grad()
        loss.backward()
        found.append((loss.item(), [p.grad for p in trainer.model.parameters()]))
    (loss, grads), (other, others) = found
    assert loss == pytest.approx(other, rel=1e-6)  # some encodings compute in float32
    for grad, same in zip(grads, others, strict=True):
        torch.testing.assert_close(grad, same, rtol=1e-4, atol=1e-6)
    trainer.step = 3
    assert len(trainer.make_batch()[0].pos) == 1


def test_the_rate_by_hand():
    settings = config_of(
        "rope", "train.steps=100", "train.warmup=10", "train.floor=0.1", "train.schedule=cosine"
    ).train
    for step in range(100):
        cosine = 0.1 + 0.9 * (1 + math.cos(math.pi * (step + 1) / 100)) / 2
        assert rate(settings, step) == pytest.approx(min(1, (step + 1) / 10) * cosine)
    assert rate(settings, 99) == pytest.approx(0.1)
    assert rate(settings, 49) == pytest.approx(0.55)
    falls = settings.model_copy(update={"schedule": "linear", "floor": 0.0})
    for step in range(100):  # from the first step on; the warm-up is a factor of it
        assert rate(falls, step) == pytest.approx(min(1, (step + 1) / 10) * (100 - step) / 100)
    flat = settings.model_copy(update={"schedule": "constant"})
    assert [rate(flat, step) for step in (0, 4, 9, 99)] == pytest.approx([0.1, 0.5, 1, 1])
    assert rate(flat.model_copy(update={"warmup": 0}), 0) == 1
    ends = flat.model_copy(update={"learned": Learned(decay=20), "steps": 1000})
    assert [rate(ends, step, 40) for step in (39, 40, 49, 59)] == pytest.approx(
        [1, 0.955, 0.55, 0.1]
    )
    early = settings.model_copy(update={"learned": Learned(decay=20)})
    level = rate(early, 49, 50)  # half of the cosine
    assert level == rate(settings, 49)
    assert [rate(early, step, 50) for step in (50, 59, 69)] == pytest.approx(
        [level - (level - 0.1) * share for share in (0.05, 0.5, 1)]
    )


@given(
    st.lists(st.sampled_from([0.0, 0.98, 0.99, 1.0]), max_size=12),
    st.integers(1, 4),
    st.integers(1, 7),
)
def test_the_step_from_which_the_rate_decays(least, evaluations, decay):
    rule = {"learned": {"evaluations": evaluations, "decay": decay * 10}}
    train = Train.model_validate({"steps": 100, "batch": 1, "lengths": [1, 2]} | rule)
    points = [(10 * (at + 1), share) for at, share in enumerate(least)]
    ends = [
        points[at][0]
        for at in range(evaluations - 1, len(points))
        if all(share >= 0.99 for _, share in points[at + 1 - evaluations : at + 1])
    ]
    assert train.ending(points) == min([*ends, 100 - decay * 10])
    assert train.last_step(train.ending(points)) == train.ending(points) + decay * 10


def test_groups_of_the_optimiser():
    trainer = start(config_of("prism(d_pe=8,hidden=6)", "train.lr=1e-3"))
    rest, alpha = trainer.optimiser.param_groups
    own = trainer.model.encoding
    assert list(map(id, alpha["params"])) == [id(p) for p in (own.alpha, own.top_weight, own.lead)]
    assert (alpha["peak"], alpha["betas"], alpha["weight_decay"]) == (0.03, (0.8, 0.92), 0.0)
    assert (rest["peak"], rest["betas"], rest["weight_decay"]) == (1e-3, (0.9, 0.98), 0.01)
    taken = [id(p) for group in (rest, alpha) for p in group["params"]]
    assert sorted(taken) == sorted(id(p) for p in trainer.model.parameters())
    trainer.advance()
    factor = rate(trainer.config.train, 0)
    assert [g["lr"] for g in (rest, alpha)] == pytest.approx([1e-3 * factor, 0.03 * factor])
    (only,) = start(config_of("rope", "train.lr=1e-3")).optimiser.param_groups
    assert only["peak"] == 1e-3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"params": [torch.nn.Parameter(torch.ones(1))] * 2},
            "prism: param_groups holds a parameter twice",
        ),
        ({"lr": -1.0}, "learning rate of 0 or more in param_groups, was -1.0"),
    ],
)
def test_groups_that_no_optimiser_takes_are_refused(change, message):
    trainer = start(config_of(PRISM))
    (group,) = trainer.model.encoding.param_groups()
    trainer.model.encoding.param_groups = lambda: [replace(group, **change)]
    with pytest.raises(ValueError, match=message):
        parameter_groups(trainer.model)


def weights(text, seed=0, noise=0, task="copy"):
    torch.manual_seed(noise)  # what happened before a run changes nothing
    torch.rand(noise)
    trainer = start(config_of(text, "model.dropout=0.1", seed=seed, task=task))
    losses = [float(trainer.advance()) for _ in range(5)]
    assert trainer.step == 5
    return losses, trainer.model.state_dict()


@pytest.mark.parametrize("text", ["learned", "randomized:relative", PRISM])
def test_one_seed_one_result(text):
    (first, a), (second, b) = weights(text), weights(text, noise=7)
    assert first == second
    assert all(torch.equal(a[name], b[name]) for name in a)
    _, other = weights(text, seed=1)
    assert any((a[name] != other[name]).any() for name in a)


@pytest.mark.parametrize("task", ["copy", "addition"])
def test_batches_drawn_ahead_are_those_of_their_steps(task):
    config = config_of("learned", "model.dropout=0.1", task=task)
    plain, early = start(config), start(config)
    early.early = True
    for step in range(1, 6):
        assert early.advance() == plain.advance()
        assert (early.ready is not None) == (step < 5)
        assert early.tokens == plain.tokens > 0
    for a, b in zip(plain.model.parameters(), early.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_batch_drawn_ahead_is_not_used_for_another_step():
    trainer = start(config_of("rope"))
    trainer.early = True
    trainer.advance()
    first, _ = trainer.make_batch()
    trainer.step = 3
    assert trainer.ready is not None
    batch, _ = trainer.draw()
    assert torch.equal(batch.ids, trainer.make_batch()[0].ids)
    assert not torch.equal(batch.ids, first.ids)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_batches_on_a_gpu_are_those_of_the_cpu():
    config = config_of("rope")
    trainer = start(config.model_copy(update={"device": "cuda"}))
    assert trainer.early
    for trainer.step in range(5):
        batch, length = trainer.draw()
        made, same = trainer.make_batch()
        assert length == same
        assert torch.equal(batch.ids.cpu(), made.ids)
        assert batch.ids.is_cuda


def test_the_curriculum():
    settings = config_of("rope").train.model_copy(
        update={
            "steps": 100,
            "lengths": (2, 9),
            "curriculum": (Stage(until=0.2, max=3), Stage(until=0.5, max=5)),
        }
    )
    task = tasks.make("copy")
    for steps, top in ((range(20), 3), (range(20, 50), 5), (range(50, 100), 9)):
        lengths = {
            length_choice(task, settings, step).draw(generator("here", step, i), 1)[0]
            for step in steps
            for i in range(8)
        }
        assert lengths == set(range(2, top + 1))
    low = settings.model_copy(update={"curriculum": (Stage(until=1.0, max=1),)})
    shortest = [2]  # no length is left
    assert length_choice(task, low, 0).draw(generator("here"), 1) == shortest


def test_the_penalty_is_in_the_loss():
    losses = [
        start(config_of(f"prism_2025(controller=gru,d_pe=8,hidden=6,orthogonal={weight})"))
        for weight in (0.0, 10.0)
    ]
    for trainer in losses:
        with torch.no_grad():
            trainer.model.encoding.layers[0].controller.gru.weight_hh_l0.mul_(1.5)
    plain, penalised = (float(trainer.advance()) for trainer in losses)
    assert penalised - plain == pytest.approx(10 * 18 * (1.5**2 - 1) ** 2, rel=1e-3)


def losses_of(*values):
    losses = Losses()
    for step, value in enumerate(values):
        losses.note(step, torch.tensor(value, requires_grad=True))
    return losses


def test_the_last_loss_is_read():
    assert math.isnan(losses_of().read())
    losses = losses_of(2.0, 0.125)
    assert [losses.read(), losses.read()] == [0.125, 0.125]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_the_first_loss_that_is_not_finite_is_reported(bad):
    with pytest.raises(Diverged, match=f"loss is {bad} at step 1"):
        losses_of(2.0, bad, math.nan, 1.0).read()


def test_a_vocabulary_that_is_too_small():
    with pytest.raises(ValueError, match=r"has 13 tokens, model.vocab is 12"):
        start(config_of("rope", "model.vocab=12"))


@pytest.mark.parametrize("text", ["rope", "alibi", "learned", PRISM])
def test_bfloat16_is_near_and_a_run_of_its_own(text):
    config = config_of(text)
    losses = {}
    for precision in ("float32", "bf16"):
        settings = config.train.model_copy(update={"precision": precision})
        trainer = start(config.model_copy(update={"train": settings}))
        losses[precision] = [float(trainer.advance()) for _ in range(5)]
        assert (trainer.config.hash == config.hash) == (precision == "float32")
        assert all(p.dtype == torch.float32 for p in trainer.model.parameters())
    assert losses["bf16"] == pytest.approx(losses["float32"], abs=0.02)
    assert losses["bf16"] != losses["float32"]
    assert "precision" not in config.model_dump(mode="json")["train"]
