"""Examples: prompts within and beyond the training lengths, and what is wrong with an answer."""

import pytest
import torch

from harness import tasks
from harness.show import examples


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
