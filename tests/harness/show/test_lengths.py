"""Histograms of the lengths in tokens."""

import pytest
import torch

from harness import tasks
from harness.settings.protocol import load_protocol, resolve
from harness.show import page, plots
from harness.tasks.scan_cot import commands
from pezoo.spec import parse


def drawn(monkeypatch, task, protocol, *settings):
    """Return the shares in training and in the test, by panel."""
    shown = []
    monkeypatch.setattr(plots, "histograms", lambda name, shares, *_, **__: shown.append(shares))
    config = resolve(load_protocol(protocol, settings), task, parse("nope"), 0, "cpu", "auto")
    page.length_panels(tasks.make(task), config)
    return shown


def test_copy(monkeypatch):
    whole, answer, prompt = drawn(monkeypatch, "copy", "quick", "eval.lengths=[10,20]")
    # n digits, "=", n digits and EOS; lengths 1..10 alike; only 20 is beyond training
    for n in range(1, 11):
        assert prompt["training"][n + 1] == pytest.approx(0.1)
        assert answer["training"][n + 1] == pytest.approx(0.1)
        assert whole["training"][2 * n + 2] == pytest.approx(0.1)
    assert (prompt["test"][11], prompt["test"][21]) == (0, pytest.approx(1))
    (_, _, prompt) = drawn(monkeypatch, "copy", "quick", "eval.lengths=[5,10]")
    assert (prompt["test"][6], prompt["test"][11]) == pytest.approx((0.5, 0.5))


def test_a_task_may_draw_lengths_in_shares_of_its_own(monkeypatch):
    """turing_addition of 2 to 6 digits: 1, 3, 5, 7 and 9 pairs of lengths have these as longest."""
    _, answer, _ = drawn(monkeypatch, "turing_addition(format=plain)", "turing2024-mini")
    longest = [2 * n - 3 for n in range(2, 7)]
    digits = {n + 2 + carry for n in range(2, 7) for carry in (0, 1)}  # "$", EOS
    assert sum(answer["training"]) == pytest.approx(1)
    assert {n for n, share in enumerate(answer["training"]) if share} <= digits
    assert sum(answer["training"][:5]) < 1.5 * longest[0] / sum(longest)


def test_scan_by_hand(monkeypatch):
    """The paper's Figures 21 to 23: every command of the split's two sides counts once."""
    found = drawn(monkeypatch, "scan_cot", "prism2025", "tasks.scan_cot.eval_lengths=[24,48]")
    sides = {"training": range(23), "test": (24, 48)}  # actions
    for when, side in sides.items():
        some = [c for c in commands() if len(c.actions.split()) in side]
        answers = [len(c.thought.split()) + 1 for c in some]
        prompts = [len(c.words.split()) + 1 for c in some]
        both = [a + p for a, p in zip(answers, prompts, strict=True)]
        for shares, tokens in zip(found, (both, answers, prompts), strict=True):
            want = torch.bincount(torch.tensor(tokens)) / len(some)
            assert shares[when] == pytest.approx(want.tolist(), abs=1e-6)
