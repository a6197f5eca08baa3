"""The implementation that `pezoo perf --harness` is compared with: `reference.toml`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from experiment.config import RunConfig


@dataclass(frozen=True)
class Reference:
    """CPU seconds of a training step by encoding, at one task, length, batch and model."""

    source: str
    task: str
    length: int
    batch: int
    model: dict[str, int]
    cpu_seconds: dict[str, float]

    @property
    def settings(self) -> tuple[str, ...]:
        """Its sizes as `--set` takes them."""
        model = [f"model.{name}={value}" for name, value in self.model.items()]
        return (*model, f"train.batch={self.batch}", f"train.lengths=[1, {self.length}]")

    def of(self, config: RunConfig, length: int) -> float | None:
        """What it takes for such a run, where that was measured."""
        same = (config.task, length, config.train.batch) == (self.task, self.length, self.batch)
        same = same and self.model.items() <= config.model.model_dump().items()
        return self.cpu_seconds.get(config.label) if same and config.device == "cpu" else None


def reference() -> Reference:
    """The one that comes with the harness."""
    path = Path(__file__).parent / "reference.toml"
    return Reference(**tomllib.loads(path.read_text(encoding="utf-8")))
