"""Protocols, overrides, seeds and the identity of a run."""

import pytest

from harness import tasks
from harness.settings.config import ConfigError
from harness.settings.protocol import load_protocol, protocol_names, resolve
from leaderboard.seeds import parse_seeds
from pezoo.spec import parse


def run(pe="rope", task="copy", seed=0, overrides=(), protocol="quick"):
    return resolve(load_protocol(protocol, overrides), task, parse(pe), seed, "cpu", "auto")


@pytest.mark.parametrize("name", protocol_names())
def test_every_protocol_resolves_for_every_task(name):
    protocol = load_protocol(name)
    for task in tasks.names():
        config = resolve(protocol, task, parse("prism"), 0, "cpu", "auto")
        made = tasks.make(task)
        assert all(made.lengths(n, n) for n in config.eval.lengths), (task, config.eval.lengths)
        assert config.eval.lengths[0] == config.train.lengths[1]


def test_hash_changes_with_what_matters_and_only_with_it():
    assert run().hash == run().hash
    others = [run(seed=1), run(task="reverse"), run("alibi"), run("rope(base=500)")]
    others.append(run(overrides=("train.steps=7",)))
    assert len({run().hash, *(c.hash for c in others)}) == 6


def test_protocol_options_reach_the_encoding_and_typed_ones_win():
    assert run("prism(cursors=3)").encoding.startswith("prism(")
    assert "cursors=3" in run("prism(cursors=3)").encoding
    assert "d_pe=" in run("randomized:prism").encoding


def test_a_changed_protocol_has_another_name():
    assert run(overrides=("train.steps=7",)).protocol.startswith("quick+")


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("train.stps=5", "did you mean steps"),
        ("trian.steps=5", "did you mean train"),
        ("train.steps=-5", "greater than 0"),
        ("train.steps=many", "train.steps"),
        ("nonsense", "expected key=value"),
    ],
)
def test_bad_overrides_say_what_is_wrong(override, words):
    with pytest.raises(ConfigError, match=words):
        run(overrides=(override,))


def test_seeds():
    assert parse_seeds("0-2,7") == [0, 1, 2, 7]
    for bad in ("", "x", "2-0", "1,1", "-1", "0-99999"):
        with pytest.raises(ValueError, match="seeds"):
            parse_seeds(bad)


PAPERS = {  # Sections 6.0.1 and 6.2 of PRISM's paper, for all other tasks nothing
    "dyn_str_cpy": "prism(copy_every=5)",
    "odds_first": "prism(before=0+3)",
    "reverse": "prism(copy_every=5)",
    "scan_cot": "prism(copy_every=5)",
    "stack_manipulation": "prism(before=0+3)",
}


@pytest.mark.parametrize("task", tasks.names())
def test_prism_is_the_papers_on_every_task(task):
    config = run("prism", task=task, protocol="prism2025")
    assert config.encoding == PAPERS.get(task, "prism")
    other = run("prism(copy_every=0,before=0)", task=task, protocol="prism2025")
    assert other.encoding == "prism(before=0,copy_every=0)"


def test_a_task_may_change_single_options_of_an_encoding():
    assert "d_pe=32" in run("prism", task="reverse").encoding
