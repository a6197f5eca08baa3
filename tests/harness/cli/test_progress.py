"""The names of runs while they train."""

from types import SimpleNamespace

import pytest

from harness.cli.progress import Progress, names
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


@pytest.mark.parametrize(("exact", "words"), [(0.0, "token accuracy 10: 0.25"), (0.5, "10: 0.50")])
def test_token_accuracy_is_shown_if_no_answer_is_right(capsys, exact, words):
    row = SimpleNamespace(length=10, exact=exact, token=0.25)
    record = SimpleNamespace(
        status="done",
        run="x",
        config=config(),
        scores=SimpleNamespace(last=[row]),
        cost=SimpleNamespace(train_seconds=1),
    )
    with Progress([config()], 0) as progress:
        progress.update(0, {"record": record})
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("track", "exact", "steps", "warned"),
    [
        ("decoder", 0.31, (1000, 1349, 1350, 1400, 1499), 1),
        ("decoder", 0.9, (1400, 1500), 0),
        ("decoder", 0.31, (1000, 1349), 0),
        ("decoder", None, (1400,), 0),
        ("encoder", 0.31, (1400,), 0),
    ],
)
def test_near_the_end_a_run_that_has_not_learned_says_once_what_to_try(
    capsys, track, exact, steps, warned
):
    with Progress([config(steps=1500).replace(track=track)], 0) as progress:
        for step in steps:
            event = {"step": step, "of": 1500, "loss": 0.5, "exact": exact, "rate": 9.0}
            progress.update(0, event)
    said = " ".join(capsys.readouterr().err.split())  # a terminal wraps the line
    words = (
        "rope · copy · seed 0: not learned yet: validation 0.31, below 0.9, at step 1350 of 1500;"
    )
    assert said.count(f"{words} try --set train.steps=3000") == said.count("learned") == warned
