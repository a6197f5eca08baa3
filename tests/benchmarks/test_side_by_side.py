"""The scripts that compare with attention's other backends and with a plain loop."""

import attention
import plain_loop
import pytest
from click.testing import CliRunner


def printed(command, *words):
    done = CliRunner().invoke(command, words)
    assert done.exit_code == 0, done.output
    return done.output.splitlines()


def test_backends_compute_the_same():
    words = ("--pe", "alibi,prism", "--lengths", "16", "--dtype", "float32")
    lines = printed(attention.main, *words, "--backends", "eager,sdpa,flax")
    assert [line.split()[1:3] for line in lines[:2]] == [["alibi", "eager"], ["alibi", "sdpa"]]
    assert "cannot run" in lines[2]
    for line in (*lines[:2], *lines[3:5]):
        assert float(line.split()[-1]) < 1e-5


@pytest.mark.slow
def test_a_plain_loop_is_as_large_as_the_model_of_text():
    lines = printed(plain_loop.main, "--pe", "learned", "--rounds", "1")
    assert [line.split()[0] for line in lines] == ["plain", "learned"]
    model = plain_loop.GPT()
    size = sum(p.numel() for p in model.parameters())
    assert size == 842_880 - plain_loop.WIDTH  # records of learned have a position more
