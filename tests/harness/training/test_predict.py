"""Answers under a sliding window: against a plain loop that knows no cache and no batch."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from experiment.config import TestSet
from harness import tasks
from harness.data.seeds import generator
from harness.data.sequences import decoder_sequences
from harness.model.transformer import Transformer
from harness.settings.protocol import load_protocol, resolve
from harness.tasks.base import Task
from harness.training import evaluate, predict
from harness.training.predict import Window
from harness.training.trainer import start
from pezoo.spec import parse

SIZES = ("model.width=16", "model.heads=2", "train.batch=4", "train.context=24", "eval.window=24")
SIZES += ("eval.stride=5", "eval.samples=8", "eval.min_samples=4", "eval.validation_samples=2")


SLOW = [
    pytest.param(name, marks=pytest.mark.slow)
    for name in ("t5", "learned", "prism_2025(cursors=1,d_pe=8,hidden=6)")
]


def config_of(encoding, *overrides, task="turing_addition"):
    protocol = load_protocol("turing2024-mini", (*SIZES, *overrides))
    return resolve(protocol, task, parse(encoding), 0, "cpu", "auto")


@torch.enable_grad()
def trained(encoding, *overrides, steps=3):
    trainer = start(config_of(encoding, *overrides))
    for _ in range(steps):
        trainer.advance()
    trainer.model.eval()
    return trainer


def loop(model, task, window, prompt, columns):
    """The paper's words as a loop: feed the last tokens, append the likeliest, no cache."""
    ids = [*prompt]
    kept = [*prompt]
    while len(ids) < columns + 1:
        while len(kept) > window.size:
            kept = kept[window.stride :]
        text = torch.tensor([kept])
        logits = model(text, torch.arange(len(kept))[None])
        token = int(logits[0, -1].argmax())
        ids, kept = [*ids, token], [*kept, token]
        if token == task.vocab.eos:
            break
    return ids[len(prompt) :]


@given(st.integers(2, 60), st.data(), st.integers(1, 300))
def test_spans_predict_every_token_once_from_what_the_window_shows(size, data, tokens):
    window = Window(size, data.draw(st.integers(1, size - 1)))
    seen = []
    for start_, stop, first in window.spans(tokens):
        for token in range(first, stop + 1):
            assert window.start(token) == start_
            assert 1 <= token - start_ <= size
            seen.append(token)
    assert seen == [*range(1, tokens + 1)]


@torch.no_grad()
@pytest.mark.parametrize("encoding", ["hard_alibi(masked=1)", "rope", *SLOW])
def test_decoding_is_the_plain_loop(encoding):
    trainer = trained(encoding, "encodings={}" if "prism" in encoding else "train.lr=1e-2")
    model, task = trainer.model.double(), trainer.task
    batch = decoder_sequences(task.sample(generator("here"), 3, 4), task)
    assert len(batch.pos) > 1, "prompts must be ragged"
    window, aligned = Window(24, 5), batch.left_aligned(task.vocab.pad)
    out = predict.decode(model, aligned, 4, torch.Generator(), window=window)
    longest = 0
    for row in range(3):
        begin = int(aligned.answer[row].nonzero()[0])
        prompt = aligned.inputs[row, : begin + 1].tolist()
        want = loop(model, task, window, prompt, aligned.inputs.shape[1])
        assert out[row, begin : begin + len(want)].tolist() == want
        longest = max(longest, len(prompt) + len(want))
    assert longest > 24, "the window must move"


@torch.no_grad()
def test_teacher_forcing_is_decoding():
    trainer = trained("hard_alibi(masked=1)")
    model, task, window = trainer.model.double(), trainer.task, Window(24, 5)
    batch = decoder_sequences(task.sample(generator("here"), 8, 4), task).left_aligned(
        task.vocab.pad
    )
    own = predict.decode(model, batch, 4, torch.Generator(), window=window)
    inputs = torch.cat([batch.inputs[:, :1], own[:, :-1]], 1)
    told = replace(batch, inputs=inputs, labels=own, counted=batch.answer)
    forced = predict.teacher_forced(model, told, 4, torch.Generator(), window=window)
    assert torch.equal(forced[batch.answer], own[batch.answer])


@torch.no_grad()
def test_a_window_that_holds_everything_changes_nothing():
    trainer = trained("rope")
    model, task = trainer.model.double(), trainer.task
    batch = decoder_sequences(task.sample(generator("here"), 6, 3), task)
    wide = batch.left_aligned(task.vocab.pad)
    out = predict.teacher_forced(model, wide, 3, torch.Generator(), window=Window(500, 20))
    plain = predict.teacher_forced(model, wide, 3, torch.Generator())
    assert torch.equal(out[wide.answer], plain[wide.answer])
    left = predict.teacher_forced(model, batch, 3, torch.Generator())
    assert out[wide.answer].tolist() == left[batch.answer].tolist()  # row by row, padding or not


@torch.no_grad()
@pytest.mark.parametrize("encoding", ["randomized:rope", "fox", "prism(cursors=1,d_pe=8)"])
def test_read_in_parts_is_one_pass(encoding, monkeypatch):
    trainer = trained(encoding, "encodings={}")
    model, task = trainer.model.double(), trainer.task
    batch = decoder_sequences(task.sample(generator("here"), 3, 4), task)
    batch = batch.left_aligned(task.vocab.pad)
    monkeypatch.setattr(predict, "PART_TOKENS", 7)
    read = predict.bits_and_hits
    draws = (torch.Generator().manual_seed(1) for _ in range(2))
    parts = predict.read_in_parts(model, batch, 4, next(draws), None, read)
    whole = predict.teacher_forced(model, batch, 4, next(draws), read=read)
    torch.testing.assert_close(parts[batch.answer], whole[batch.answer])


def test_aligned_rows_hold_the_same_tokens():
    task = tasks.make("turing_addition")
    batch = decoder_sequences(task.sample(generator("here"), 9, 5), task)
    aligned, pad = batch.left_aligned(task.vocab.pad), task.vocab.pad
    for row in range(9):
        one, other = batch.inputs[row], aligned.inputs[row]
        assert one[one != pad].tolist() == other[other != pad].tolist()
        assert aligned.labels[row][aligned.answer[row]].tolist() == (
            batch.labels[row][batch.answer[row]].tolist()
        )
        assert aligned.inputs[row, 0] != pad
    assert aligned.prompt == int((batch.pos[:, : batch.prompt] >= 0).sum(1).min())


def test_columns_after_all_answers_are_left_out():
    task = tasks.make("scan_cot")
    trimmed = 0
    for seed in range(8):
        batch = decoder_sequences(task.sample(generator("here", seed), 5, 9), task)
        aligned = batch.left_aligned(task.vocab.pad)
        ends = (batch.pos.expand_as(batch.inputs) + 1) * batch.answer  # as columns from the first
        assert aligned.inputs.shape[1] == aligned.pos.shape[1] == int(ends.max())
        assert int(aligned.answer.sum()) == int(batch.answer.sum())
        trimmed += aligned.inputs.shape[1] < batch.inputs.shape[1]
    assert trimmed, "some batch must have room after all answers"


def test_random_encodings_are_decoded_under_the_window():
    config = config_of("randomized:rope", "eval.lengths=[3]", "eval.samples=4")
    trainer = start(config)
    got = evaluate.score(trainer.model, trainer.task, config, 3)
    assert (got.method, got.count) == ("decoded", 4)
    again = evaluate.score(trainer.model, trainer.task, config, 3)
    assert got == again


def test_a_perfect_model_scores_one_on_every_test_set():
    """Told the answers, also where the window has dropped the prompt."""
    config = config_of("nope", "eval.lengths=[9]")
    config = config.replace_eval(sets=(TestSet(name="4+n", lengths=(3, 6)),))
    task = tasks.make(config.task)

    class Told(Transformer):
        """Copy the answers given for the text that ends with the window."""

        known: list

        def forward(self, ids, pos, *, last=None, **fields):
            rows = []
            for row in ids.tolist():
                whole = next(w for w in self.known if _inside(row, w))
                at = _inside(row, whole) - 1
                nexts = whole[at + 1 : at + 1 + len(row)]
                rows.append(nexts + [0] * (len(row) - len(nexts)))
            return torch.nn.functional.one_hot(torch.tensor(rows), 256).float()[:, -(last or 0) :]

    trainer = start(config)
    model = Told(config.model, trainer.model.encoding, 0)
    model.known = []
    for name, length in (("n+n", 9), ("4+n", 3), ("4+n", 6)):
        made = evaluate.examples(task, config.replace_eval(set=name), length)
        for p, t in zip(made.prompt.tolist(), made.target.tolist(), strict=True):
            text = [i for i in p + t if i != task.vocab.pad]
            model.known.append([*text, task.vocab.eos])
    got = evaluate.score(model, task, config, 9)
    assert (got.exact, got.token, got.count) == (1.0, 1.0, 8)
    sets = evaluate.score_sets(model, task, config)
    assert [(one["length"], one["exact"]) for one in sets["4+n"]] == [(3, 1.0), (6, 1.0)]


def _inside(row, whole):
    """Return the position of a row without padding in a text, from 1; 0 if absent."""
    row = [i for i in row if i != 28]
    for at in range(len(whole) - len(row) + 1):
        if whole[at : at + len(row)] == row:
            return at + 1
    return 0


class Near(Task):
    """Half: counts an answer as right whose second token is wrong."""

    exact = False

    def right(self, answer, target):
        first = [next(i for i in row.tolist() if i != self.vocab.pad) for row in answer]
        want = [next(i for i in row.tolist() if i != self.vocab.pad) for row in target]
        return torch.tensor([a == b for a, b in zip(first, want, strict=True)])


def test_a_task_that_counts_more_as_right_is_decoded():
    trainer = trained("nope", "eval.lengths=[3]")
    task = type("Own", (Near, type(trainer.task)), {})()
    config = config_of("nope", "eval.lengths=[3]")
    got = evaluate.score(trainer.model, task, config, 3)
    assert got.method == "decoded"
    assert evaluate.method(trainer.model, trainer.task) == "teacher-forced"


def test_the_tokens_of_an_answer_that_ends_early_count_as_without_a_window():
    """A model that writes nothing but EOS: one token of each answer is right."""
    config = config_of("randomized:rope")
    trainer = start(config)
    with torch.no_grad():
        trainer.model.unembedding.bias[trainer.task.vocab.eos] = 1e4
    length = 4
    scores = [
        evaluate.score(trainer.model, trainer.task, own, length)
        for own in (config, config.replace_eval(window=None))
    ]
    made = evaluate.examples(trainer.task, config, length)
    tokens = int((made.target != trainer.task.vocab.pad).sum()) + len(made.target)
    assert [one.method for one in scores] == ["decoded", "decoded"]
    assert [one.token for one in scores] == [len(made.target) / tokens] * 2


def test_a_test_set_is_seen_where_both_operands_are():
    config = config_of("nope", "train.lengths=[2,5]")
    sets = (TestSet(name="4+n", lengths=(3, 6)), TestSet(name="7+n", lengths=(3, 8)))
    config = config.replace_eval(sets=sets)
    trainer = start(config)
    found = evaluate.score_sets(trainer.model, trainer.task, config)
    assert [(one["length"], one["seen"]) for one in found["4+n"]] == [(3, True), (6, False)]
    assert [(one["length"], one["seen"]) for one in found["7+n"]] == [(3, False), (8, False)]
