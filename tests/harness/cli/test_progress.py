"""The names of runs while they train."""

import pytest

from harness.cli.progress import names
from harness.settings.protocol import load_protocol, resolve
from pezoo.spec import parse


def config(task="copy", seed=0, protocol="quick", **train):
    one = resolve(load_protocol(protocol, ()), task, parse("rope"), seed, "cpu", "auto")
    return one.replace_train(**train) if train else one


@pytest.mark.parametrize(
    ("configs", "expected"),
    [
        ([], []),
        ([config(seed=0), config(seed=1)], ["copy · seed 0", "copy · seed 1"]),
        ([config(), config(lr=0.003)], ["copy · seed 0 · lr 0.002", "copy · seed 0 · lr 0.003"]),
        (  # tasks differ in settings anyway
            [config(task, 0, "turing2024-mini") for task in ("ngram_copy", "turing_sgd")],
            ["ngram_copy · seed 0", "turing_sgd · seed 0"],
        ),
        (
            [config(), config(lengths=(1, 20), curriculum=())],
            [
                "copy · seed 0 · lengths 1 to 10 · curriculum 5 until 15 %",
                "copy · seed 0 · lengths 1 to 20 · curriculum none",
            ],
        ),
    ],
)
def test_names_say_what_differs(configs, expected):
    assert names(configs) == [f"rope · {name}" for name in expected]
