"""The checks of pezoo, once the package is installed: `pip install -e .`, then `pytest`."""

import torch
from my_encodings import Slope

from harness.tasks import make as make_task
from harness.tasks.testing import check_task
from pezoo import attention, make
from pezoo.testing import parametrize_with_checks


@parametrize_with_checks({"slope": Slope})  # failures by design: see expected_failures
def test_conformance(check, factory):
    check(factory)


def test_task():
    check_task(make_task("rotate"))


def test_formula():
    """The checks do not know the formula: compare it with plain loops."""
    slope = make("slope(start=0.5)", n_layers=1, n_heads=2)
    q, k, v = torch.randn(3, 1, 2, 5, 4)
    out, rate = attention(q, k, v, slope), torch.tensor(0.5).exp().add(1).log()
    for h in range(2):
        for i in range(5):
            logits = [q[0, h, i] @ k[0, h, j] / 2 - rate * (i - j) for j in range(i + 1)]
            want = torch.stack(logits).softmax(0) @ v[0, h, : i + 1]
            torch.testing.assert_close(out[0, h, i], want)
