"""`import pezoo` is cheap, and so is asking for names."""

import subprocess
import sys

import pytest

import pezoo


def run(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_no_torch_until_it_is_needed():
    code = """
import sys, pezoo
assert "torch" not in sys.modules, "import pezoo"
assert "rope" in pezoo.names()
from pezoo.registry import check
from pezoo.spec import parse
check(parse("randomized(max_len=99):rope(base=500)"))
assert "torch" not in sys.modules, "names and options"
pezoo.Shape
print("torch" in sys.modules)
"""
    assert run(code) == "True"


def test_all_names_resolve():
    for name in pezoo.__all__:
        assert getattr(pezoo, name).__name__ == name
        assert name in dir(pezoo)


def test_an_unknown_name():
    with pytest.raises(AttributeError, match="no attribute 'ropee'"):
        _ = pezoo.ropee
