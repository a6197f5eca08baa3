"""Teacher forcing and decoding agree, and what cannot be represented does not count as 0."""

from dataclasses import replace

import pytest
import torch

import pezoo
from harness import tasks
from harness.data.batches import training_batch
from harness.data.seeds import generator
from harness.data.sequences import decoder_sequences
from harness.model.transformer import Transformer, shape_of
from harness.settings.protocol import load_protocol, resolve, sample_count
from harness.training.evaluate import LooksAhead, check_decoding, method, score, score_all
from harness.training.predict import decode, teacher_forced
from harness.training.trainer import start
from pezoo.registry import make
from pezoo.spec import parse

torch.set_num_threads(1)
SMALL = ("model.width=16", "model.heads=2", "train.batch=8", "train.warmup=1")
PRISM = "prism_2025(cursors=1,d_pe=8,hidden=6)"
STABLE = ["nope", "rope", "alibi", "t5", "sinusoidal", "learned(max_len=99)", "lbpe_sh", PRISM]


def config_of(task, encoding, *overrides):
    sizes = ("train.steps=5", "eval.samples=8", "eval.min_samples=4", "eval.validation_samples=2")
    protocol = load_protocol("quick", (*SMALL, *sizes, *overrides))
    return resolve(protocol, task, parse(encoding), 0, "cpu", "auto")


def trained(config, steps=3):
    trainer = start(config)
    for _ in range(steps):
        trainer.advance()
    trainer.model.eval()
    return trainer


def own_answers(model, batch, length):
    """The batch with what the model answers as the truth, wrong at one place in every odd row."""
    labels = decode(model, batch, length, torch.Generator())
    where = {}
    for row in range(1, labels.shape[0], 2):
        places = batch.answer[row].nonzero()[:, 0]
        where[row] = int(places[row % len(places)])
        labels[row, where[row]] = (labels[row, where[row]] + 1) % 10
    inputs = torch.cat([batch.inputs[:, :1], labels[:, :-1]], 1)
    return replace(batch, inputs=inputs, labels=labels), where


@pytest.mark.parametrize("encoding", STABLE)
@pytest.mark.parametrize(("name", "length"), [("copy", 6), ("addition", 3)])
def test_teacher_forcing_is_decoding(encoding, name, length):
    task = tasks.make(name)
    model = trained(config_of(name, encoding)).model.double()
    batch = decoder_sequences(task.sample(generator("here", name), 12, length), task)
    if name == "addition":
        assert (batch.pos < 0).any(), "the prompts must be ragged"
    with torch.no_grad():
        batch, wrong = own_answers(model, batch, length)
        forced = teacher_forced(model, batch, length, torch.Generator())
        greedy = decode(model, batch, length, torch.Generator())
    assert forced.shape == greedy.shape == batch.labels.shape
    exact = [
        [bool(((out == batch.labels) | ~batch.answer)[row].all()) for row in range(12)]
        for out in (forced, greedy)
    ]
    assert exact[0] == exact[1] == [row not in wrong for row in range(12)]
    for row in range(12):
        stop = wrong.get(row, int(batch.answer[row].nonzero()[-1]))
        here = slice(batch.prompt - 1, stop + 1)
        assert torch.equal(forced[row, here], greedy[row, here])


def test_methods():
    for encoding, want in (("rope", "teacher-forced"), ("randomized:rope", "decoded")):
        model, task = start(config_of("copy", encoding)).model, tasks.make("copy")
        assert method(model, task) == want
        config = config_of("copy", encoding, "eval.lengths=[4]")
        assert score(model, task, config, 4).method == want
    model.encoding.stochastic = False
    assert method(model, task) == "teacher-forced"
    model.encoding.prefix_stable = False
    assert method(model, task) == "decoded"


def looking_ahead(hook):
    """A trained model whose encoding claims prefix_stable and changes the embedding by a hook."""
    trainer = trained(config_of("addition", "rope", "train.lr=1e-2"))
    trainer.model.encoding.embed = hook
    return trainer


LEAKS = {
    "next token": lambda x, ctx: x + 0.1 * torch.cat([x[:, 1:], 0 * x[:, :1]], 1),
    "all tokens": lambda x, ctx: x + x.mean(1, keepdim=True),
    "pairs": lambda x, ctx: (
        x + torch.cat([x[:, 1::2], x[:, : x.shape[1] % 2]], 1).repeat(1, 2, 1)[:, : x.shape[1]]
    ),
    "length": lambda x, ctx: x * (1 + ctx.pos[:, -1].float().div(100).view(-1, 1, 1)),
    "sample": lambda x, ctx: x + 0.1 * torch.randn_like(x),
}


@pytest.mark.parametrize("leak", LEAKS)
def test_teacher_forcing_that_is_not_decoding_is_an_error(leak):
    trainer = looking_ahead(LEAKS[leak])
    with pytest.raises(LooksAhead, match="prefix_stable"):
        check_decoding(trainer.model, trainer.task, trainer.config)
    trainer.model.encoding.prefix_stable = False  # then it is decoded
    check_decoding(trainer.model, trainer.task, trainer.config)


def test_rounding_in_float32_is_no_error():
    eps = {dtype: 1e5 * torch.finfo(dtype).eps for dtype in (torch.float32, torch.float64)}
    trainer = looking_ahead(lambda x, ctx: x * (1 + eps[x.dtype] * x.shape[1]))
    check_decoding(trainer.model, trainer.task, trainer.config)


def test_a_mode_that_looks_ahead_is_an_error():
    trainer = looking_ahead(lambda x, ctx: LEAKS["next token"](x, ctx) if ctx.mode else x)
    trainer.model.encoding.modes = ("peek",)
    with pytest.raises(LooksAhead, match="prefix_stable"):
        check_decoding(trainer.model, trainer.task, trainer.config)


NAMES = [name for name in pezoo.names() if name not in ("ideal", "ideal_sh", "randomized", "cpe")]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_encoding_decodes_what_it_is_scored_on(name):
    task = "addition_coupled" if name == "coupled" else "addition"
    config = config_of(task, name, "train.lr=1e-2", "eval.lengths=[4, 30]")
    trainer = trained(config, 2)
    assert method(trainer.model, trainer.task) == "teacher-forced"
    before = torch.get_rng_state()
    check_decoding(trainer.model, trainer.task, config)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("protocol", "task"), [("ruoss2023-mini", "parity_check"), ("quick", "copy")]
)
def test_hooks_that_write_to_the_tokens_change_no_label(protocol, task, monkeypatch):
    def fill(self, ctx, **plan):
        ctx.ids.fill_(1)
        ctx.pos.clamp_(max=3)
        return {}

    sizes = ("eval.samples=64", "eval.min_samples=64", "eval.lengths=[40]")
    chosen = load_protocol(protocol, (*SMALL, *sizes))
    config = resolve(chosen, task, parse("nope"), 0, "cpu", "auto")
    trainer = start(config)
    truth, _ = training_batch(trainer.task, config, 0)
    monkeypatch.setattr(type(trainer.model.encoding), "draw", fill)
    batch, _ = trainer.make_batch()
    assert torch.equal(batch.labels[batch.answer], truth.labels[truth.answer])
    for _ in range(50):
        trainer.advance()
    assert score(trainer.model, trainer.task, config, 40).token < 0.7


def test_beyond_the_table_there_is_no_score():
    config = config_of("copy", "learned", "eval.lengths=[10, 50]")
    trainer = start(config)
    inside, beyond = score_all(trainer.model, trainer.task, config)
    assert (inside["status"], inside["count"], inside["seen"]) == ("ok", 8, True)
    assert (beyond["status"], beyond["seen"]) == ("cannot represent", False)
    assert beyond["exact"] is beyond["correct"] is beyond["token"] is beyond["count"] is None
    assert "represents positions 0.." in beyond["note"]


def test_the_longest_training_length_fits_a_learned_table():
    config = config_of("addition", "learned", "eval.lengths=[10]")
    trainer = start(config)
    assert score(trainer.model, trainer.task, config, 10).status == "ok"


def test_randomized_cannot_represent_more_than_its_range():
    config = config_of("copy", "randomized(max_len=25):rope", "eval.lengths=[10, 50]")
    trainer = start(config)
    assert [s["status"] for s in score_all(trainer.model, trainer.task, config)] == [
        "ok",
        "cannot represent",
    ]


def test_scores_repeat_and_depend_on_no_chunks(monkeypatch):
    config = config_of("addition", "rope")
    trainer = start(config)
    first = score(trainer.model, trainer.task, config, 4)
    assert score(trainer.model, trainer.task, config, 4) == first
    monkeypatch.setattr("harness.training.evaluate.CHUNK_TOKENS", 100)
    again = score(trainer.model, trainer.task, config, 4)
    assert (again.correct, again.count) == (first.correct, first.count)
    assert again.token == pytest.approx(first.token, abs=0.02)
    assert first.exact == first.correct / first.count


@pytest.mark.parametrize("protocol", ["quick", "ruoss2023-mini"])
def test_random_positions_are_drawn_once_for_all_samples_of_a_length(protocol, monkeypatch):
    sizes = ("eval.samples=16", "eval.min_samples=16", "model.layers=1")
    config = resolve(
        load_protocol(protocol, (*SMALL, *sizes)), "even_pairs" if "mini" in protocol else "copy",
        parse("randomized:rope"), 0, "cpu", "auto",
    )  # fmt: skip
    trainer = start(config)
    drawn = []
    table = type(trainer.model.encoding).table
    monkeypatch.setattr(
        type(trainer.model.encoding), "table",
        lambda self, *given: drawn.append(table(self, *given)) or drawn[-1],
    )  # fmt: skip
    whole = score(trainer.model, trainer.task, config, 12)
    assert len(drawn) == 1
    monkeypatch.setattr("harness.training.evaluate.CHUNK_TOKENS", 100)
    again = score(trainer.model, trainer.task, config, 12)
    assert len(drawn) > 3
    assert all(one.equal(drawn[0]) for one in drawn)
    assert (again.correct, again.token) == (whole.correct, pytest.approx(whole.token, abs=0.02))


def test_a_length_without_instances():
    config = config_of("scan_cot", "rope")
    trainer = start(config)
    none = score(trainer.model, trainer.task, config, 5000)
    assert (none.status, none.exact) == ("no instance", None)


def test_sample_counts():
    config = config_of("copy", "rope", "eval.samples=100", "eval.max_tokens=2200")
    task = tasks.make("copy")
    assert sample_count(task, config.eval, 5) == 100
    assert sample_count(task, config.eval, 54) == 2200 // 110
    assert sample_count(task, config.eval, 10_000) == 4


@torch.no_grad()
def test_a_perfect_model_scores_one():
    """A model that receives the answers: the count of right answers is exact."""
    config = config_of("addition", "nope")
    task = tasks.make("addition")

    class Told(Transformer):
        def forward(self, ids, pos, **fields):
            rows = []
            for row, at in zip(ids.tolist(), pos.expand(len(ids), -1).tolist(), strict=True):
                text = [i for i, p in zip(row, at, strict=True) if p >= 0]
                equals = text.index(task.vocab.symbols.index("=")) + 1
                prompt = text[:equals]
                full = [*prompt, *task.solve(prompt), task.vocab.eos]
                nexts = full[1:] + [0] * len(row)
                rows.append([0] * (len(row) - len(text)) + nexts[: len(text)])
            return torch.nn.functional.one_hot(torch.tensor(rows), 64).float()

    model = Told(config.model, make("nope", shape_of(config.model, 99)), 0)
    got = score(model, task, config, 3)
    assert (got.exact, got.token, got.correct, got.count) == (1.0, 1.0, 8, 8)


def test_wrong_answers_end_at_their_first_wrong_symbol():
    trainer = start(config := config_of("copy", "rope"))
    length = config.eval.lengths[0]
    (one,) = [s for s in score_all(trainer.model, trainer.task, config, answers=True)
              if s["length"] == length]  # fmt: skip
    assert 0 < len(one["wrong"]) <= 3
    for answer in one["wrong"]:
        assert answer["expected"] == answer["prompt"].removesuffix("=") + "⟨end⟩"
        given = answer["given"].removesuffix("…")
        assert not answer["expected"].startswith(given)
    assert one["tokens"] == one["count"] * (length + 1)
    plain = score_all(trainer.model, trainer.task, config)
    assert all(row["wrong"] == [] for row in plain)
