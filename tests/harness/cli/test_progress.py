"""What runs are called while they train."""

from harness.cli.progress import names
from harness.settings.protocol import load_protocol, resolve
from pezoo.spec import parse


def test_runs_of_a_sweep_can_be_told_apart():
    protocol = load_protocol("quick", ())
    first, second = (
        resolve(protocol, "copy", parse("rope"), seed, "cpu", "auto") for seed in (0, 1)
    )
    assert names([first, second]) == ["rope · copy · seed 0", "rope · copy · seed 1"]
    train = first.train.model_copy(update={"lr": 0.003})
    faster = first.model_copy(update={"train": train})
    assert names([first, faster]) == [
        "rope · copy · seed 0 · lr 0.002",
        "rope · copy · seed 0 · lr 0.003",
    ]
    assert names([]) == []


def test_what_tasks_differ_in_anyway_is_not_in_the_names():
    protocol = load_protocol("turing2024-mini", ())
    configs = [
        resolve(protocol, task, parse("rope"), 0, "cpu", "auto")
        for task in ("ngram_copy", "turing_multiplication_1")
    ]
    assert names(configs) == [
        "rope · ngram_copy · seed 0",
        "rope · turing_multiplication_1 · seed 0",
    ]


def test_lengths_and_curricula_are_in_words():
    protocol = load_protocol("quick", ())
    short = resolve(protocol, "copy", parse("rope"), 0, "cpu", "auto")
    long = short.replace_train(lengths=(1, 20), curriculum=())
    assert names([short, long]) == [
        "rope · copy · seed 0 · lengths 1 to 10 · curriculum 5 until 15 %",
        "rope · copy · seed 0 · lengths 1 to 20 · curriculum none",
    ]
