"""Examples: prompts within and beyond the training lengths, and what is wrong with an answer."""

from types import SimpleNamespace

import pytest
import torch

from harness import tasks
from harness.cli import try_run
from harness.show import examples
from harness.tasks.base import TaskError
from harness.training import evaluate


def test_an_answer_ends_where_the_model_ends_it_and_says_what_is_wrong(
    decoder, config_of, monkeypatch
):
    task, config = tasks.make("copy"), config_of("nope")
    prompt = task.vocab.encode("471=")
    said = torch.cat([task.vocab.encode("49"), torch.tensor([task.vocab.eos, 3])])[None]
    monkeypatch.setattr(examples, "written", lambda *args: said)
    one = examples.answer(decoder("nope"), task, config, prompt, 3)
    assert one.tokens == ("4", "7", "1", "=", "4", "9", "end")
    assert one.wrong == (False, False, False, False, False, True, True)
    assert (one.right, one.truth, one.prompt, one.planned) == (False, "471", 4, 7)
    assert one.title == "example 3: length 3, seen in training"
    trainer = SimpleNamespace(task=task, model=decoder("nope"), config=config)
    assert try_run.answer(trainer, "471=") == "471=49   (wrong, expected 471)"


@pytest.mark.parametrize("name", tasks.names())
def test_example_lengths_lie_within_and_beyond_training(config_of, name):
    task, config = tasks.make(name), config_of("nope", name)
    seen, *beyond = examples.lengths(task, config)
    top = config.train.lengths[1]
    assert seen == max(task.lengths(1, top))
    assert beyond
    assert all(top < n <= 3 * top for n in beyond)
    for n in (seen, *beyond):
        prompt = examples.sample(task, n)
        assert task.measure(prompt.tolist()) == n
        assert torch.equal(prompt, examples.sample(task, n))


def test_a_prompt_of_text_may_end_in_any_byte():
    task = tasks.make("text")
    for number in (1, 2):
        prompt = examples.sample(task, 100, number)
        assert torch.equal(examples.read(task, task.vocab.decode(prompt)), prompt)


def test_any_text_is_continued_and_not_judged(config_of, monkeypatch):
    task, prompt = tasks.make("text"), "occurs\nin no file: "
    typed = "occurs⏎in no file: "
    ids = examples.read(task, prompt)
    assert task.vocab.decode(ids) == typed
    with pytest.raises(TaskError, match="does not occur"):
        task.solve(ids.tolist())
    a = task.vocab.id("a")
    monkeypatch.setattr(
        examples, "written", lambda _, batch, *more: batch.inputs[:, -batch.last :] * 0 + a
    )
    model = SimpleNamespace(track="text", eval=lambda: None)
    trainer = SimpleNamespace(task=task, model=model, config=config_of("nope"))
    assert try_run.answer(trainer, prompt) == typed + "a" * len(prompt)
    assert not any(examples.answer(model, task, trainer.config, ids).wrong)


def said(monkeypatch, config, name, prompt, answer, track="decoder"):
    """Return the line that `try` and `show` print, and the wrong tokens."""
    task = tasks.make(name)
    out = torch.tensor([[*answer, task.vocab.eos] if track == "decoder" else answer])
    for module in (evaluate, examples):
        monkeypatch.setattr(module, "written", lambda *args, **more: out)
    model = SimpleNamespace(track=track, eval=lambda: None)
    config = config.replace(track=track)
    trainer = SimpleNamespace(task=task, model=model, config=config)
    text = task.vocab.decode(prompt)
    return try_run.answer(trainer, text), examples.answer(model, task, config, torch.tensor(prompt))


@pytest.mark.parametrize(("levels", "right"), [(1, True), (3, False)])
def test_an_answer_that_the_task_counts_as_right_is_right(config_of, monkeypatch, levels, right):
    task = tasks.make("turing_sgd(format=plain)")
    prompt = examples.sample(task, 2).tolist()
    near = task.solve(prompt)
    near[1] += levels
    config, name = config_of("nope"), "turing_sgd(format=plain)"
    line, one = said(monkeypatch, config, name, prompt, near)
    assert (line.endswith("(right)"), one.right) == (right, right)


@pytest.mark.parametrize(("place", "right"), [(-1, True), (0, False)])
def test_tokens_that_do_not_count_make_no_answer_wrong(config_of, monkeypatch, place, right):
    task = tasks.make("stack_manipulation")
    prompt = next(
        one
        for one in task.sample(torch.Generator().manual_seed(0), 50, 8).prompt.tolist()
        if not task.counted(torch.tensor([task.solve(one)]))[0, -1]
    )
    answer = task.solve(prompt)
    answer[place] = (answer[place] + 1) % 2
    line, one = said(monkeypatch, config_of("nope"), task.name, prompt, answer, "encoder")
    assert (line.endswith("(right)"), one.right) == (right, right)
