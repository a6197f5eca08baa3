"""Runs that die at a step."""

import pytest

from harness.runs.run import execute
from harness.training.trainer import Trainer


class Killed(BaseException):
    """Stands for a process that dies: nothing in the harness handles it."""


@pytest.fixture
def die_at(monkeypatch):
    """Have every run of this test die when it has taken so many steps."""
    advance = Trainer.advance

    def patch(step, monkeypatch=monkeypatch):
        def dying(self):
            if self.step == step:
                raise Killed
            return advance(self)

        monkeypatch.setattr(Trainer, "advance", dying)

    return patch


@pytest.fixture
def train_to(die_at):
    """Train a run until it dies at a step; return its folder."""

    def train(config, root, step):
        with pytest.MonkeyPatch.context() as patch:
            die_at(step, patch)
            with pytest.raises(Killed):
                execute(config, root, "test", lambda event: None)
        return root / config.hash

    return train
