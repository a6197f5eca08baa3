"""The examples run as a reader runs them, and print what they promise."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
PRINTED = {  # by script: what stands in the output
    "nanogpt": "loss 0.0.*go on as .9, 10, 11, 12, .*cache: True",
    "llama": "after 7: .8, 9, 10, .*after 13, 14, 15: .0, 1, 2, .*cache: True.*loading: True",
    "extend": r"rope +0\.\d+ +\d\.\d+ +[5-9]\..*rerope +0.0\d +0.0\d +0\..*window.*0\.\d+\n$",
    "encoder": r": (?:9.|100)% of .* of 16\n.*: (?:[6-9].|100)% of .* of 64",
    "xtransformers": "after 7: .8, 9, 10, .*after 13, 14, 15: .0, 1, 2, .*cache: True",
    "with_peft": r"loss [12]\.\d+\n.*loading: True",
    "with_accelerate": r"loss 0\.\d+ in torch.bfloat16\n.*loading: True",
    "with_lightning": r"loss 0\.\d+ in torch.bfloat16\n",
}
PACKAGES = ("peft", "accelerate", "lightning")
NEEDS = {"nanogpt": "torch", "xtransformers": "x_transformers"}
NEEDS |= {f"with_{package}": package for package in PACKAGES}


def ran(*args, **environment):
    path = os.pathsep.join([str(ROOT), *environment.pop("path", [])])
    environment = {**os.environ, "PYTHONPATH": path, **environment}
    options = {"capture_output": True, "text": True, "env": environment, "cwd": EXAMPLES}
    return subprocess.run([sys.executable, *args], **options)


def test_each_is_short_and_has_a_test():
    scripts = {path.stem: path.read_text("utf-8") for path in EXAMPLES.glob("*.py")}
    assert scripts.keys() == PRINTED.keys()
    assert max(text.count("\n") for text in scripts.values()) <= 80


@pytest.mark.slow
@pytest.mark.parametrize("script", PRINTED)
def test_it_prints_what_it_promises(script):
    pytest.importorskip(NEEDS.get(script, "transformers"))
    found = ran(f"{script}.py")
    assert found.returncode == 0, found.stderr
    assert re.search(PRINTED[script], found.stdout, re.DOTALL), found.stdout


@pytest.mark.slow
def test_the_plugin_is_found_by_its_entry_points_and_passes_its_tests(tmp_path):
    plugin = EXAMPLES / "plugin"
    project = tomllib.loads((plugin / "pyproject.toml").read_text("utf-8"))["project"]
    folder = tmp_path / "my_pezoo-0.1.0.dist-info"  # as pip would write it
    folder.mkdir()
    (folder / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n")
    lines = []
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {home}" for name, home in points.items())]
    (folder / "entry_points.txt").write_text("\n".join(lines))
    args = "-m", "pytest", "-q", "-p", "no:cacheprovider", str(plugin / "test_mine.py")
    found = ran(*args, path=[str(plugin), str(tmp_path)], PYTEST_ADDOPTS="-n 0")
    assert found.returncode == 0, found.stdout
