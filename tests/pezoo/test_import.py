"""`import pezoo` is cheap; an encoding needs torch and einops alone; `from pezoo import RoPE`."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import pezoo
from pezoo.adapters import attend
from pezoo.registry import entries
from pezoo.testing import SHAPE, build, context, tokens


def run(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_no_torch_until_it_is_needed_and_a_star_imports_what_dir_lists():
    code = """
import sys, pezoo
assert "torch" not in sys.modules, "import pezoo"
assert "rope" in pezoo.names()
from pezoo.registry import check
from pezoo.spec import parse
check(parse("randomized(max_len=99):rope(base=500)"))
assert "torch" not in sys.modules, "names and options"
from pezoo import *
assert "torch" in sys.modules
public = {name for name in dir(pezoo) if getattr(getattr(pezoo, name), "name", "") in names()}
assert len(public) == len(names()) and public <= {*globals()}, public - {*globals()}
print(attend.__name__, RoPE(d_head=4).name, "import_module" in globals())
"""
    assert run(code) == "attend rope False"


def test_all_names_resolve():
    for name in pezoo.__all__:
        assert getattr(pezoo, name).__name__ == name
        assert name in dir(pezoo)


def test_the_classes_of_encodings_are_in_the_package():
    for name, entry in entries().items():
        assert getattr(pezoo, entry.cls).name == name
        assert entry.cls in dir(pezoo)
    code = """
import sys, pezoo
assert not hasattr(pezoo, "no_such_module")
assert "pezoo.registry" not in sys.modules, "which would look for plug-ins"
assert "RoPE" in dir(pezoo)
print("torch" in sys.modules)
"""
    assert run(code) == "False"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Rope", "module 'pezoo' has no attribute 'Rope'; did you mean RoPE?"),
        ("shpe", "module 'pezoo' has no attribute 'shpe'; did you mean Shape?"),
        ("xyzzy", "module 'pezoo' has no attribute 'xyzzy'"),
        ("__wrapped__", "module 'pezoo' has no attribute '__wrapped__'"),
    ],
)
def test_an_unknown_name(name, words):
    with pytest.raises(AttributeError) as caught:
        getattr(pezoo, name)
    assert str(caught.value) == words


def results(backends=("eager", "sdpa")):
    """Of every encoding: attention through torch and written out, and the gradient of q."""
    found = {}
    for name in pezoo.names():
        encoding = build(lambda shape, name=name: pezoo.make(name, shape), SHAPE).double()
        ids, generator = tokens(2, 12), torch.Generator().manual_seed(3)
        x = torch.randn(2, 12, SHAPE.d_model, generator=generator).double()
        size = 3, 2, SHAPE.n_heads, 12, SHAPE.d_head
        q, k, v = torch.randn(size, generator=generator).double()
        q.requires_grad_()
        drawn = encoding.draw(context(ids), generator=generator)
        ctx = encoding.prepare(context(ids, x=x, drawn=drawn)).at(0, x)
        wide = encoding.transform(q, k, ctx)
        alone = encoding.replaces_softmax or encoding.replaces_scores
        for backend in backends[: 1 if alone else None]:
            y = attend(encoding, *wide, v, ctx, backend=backend)
            y.square().sum().backward(retain_graph=True)
            found[f"{name} {backend}"], found[f"{name} {backend} dq"] = y.detach(), q.grad
            q.grad = None
    return found


ALONE = """
import sys, torch, einops
from importlib import import_module
before = {*sys.modules}
import pezoo.adapters
from pezoo.registry import entries
for name, entry in entries().items():
    import_module(entry.module)
    top = {module.partition(".")[0] for module in {*sys.modules} - before}
    assert top <= {"pezoo"} | sys.stdlib_module_names, f"{name} loads {top}"
for name in ("numba", "llvmlite", "scipy", "pandas", "matplotlib", "transformers"):
    assert name not in sys.modules, f"{name} is loaded"
    sys.modules[name] = None  # to import it is an error from here on
sys.path.insert(0, sys.argv[1])
from test_import import results
torch.save(results(), sys.argv[2])
"""


@pytest.mark.slow
def test_an_encoding_needs_torch_and_einops_alone(tmp_path):
    """In a fresh process, in which nothing else can be imported: every encoding, every number."""
    torch.set_num_threads(1)
    out = subprocess.run(
        [sys.executable, "-W", "error", "-c", ALONE, Path(__file__).parent, tmp_path / "found.pt"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (out.returncode, out.stderr) == (0, "")
    found = torch.load(tmp_path / "found.pt")
    torch.testing.assert_close(found, results())
    assert len(found) > 3 * len(pezoo.names())
