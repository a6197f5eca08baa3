"""Logs of runs for TensorBoard, Weights & Biases and Trackio, made of a run's events.

What is logged              when
    train/loss, learning_rate, steps_per_second    about once a second, and at validations
    validation/exact                               at validations
    train/seconds, tokens_per_second               at the last step
    test/exact, token, bits                        at the end, by length: the last checkpoint's
"""

import contextvars
import json
import os
import re
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Protocol, Self

from experiment.config import ConfigError, RunConfig
from harness.runs.events import Event
from harness.training.optimiser import rate
from leaderboard.record.schema import Record
from pezoo.spec import unknown

Axis = Literal["step", "length"]
PROJECT = "pezoo"


class Log(Protocol):
    """The log of one run in one program: Log(config, name, folder)."""

    def write(self, values: Mapping[str, float], axis: Axis, at: int) -> None:
        """Add numbers that belong to a step of training or to a test length."""

    def close(self) -> None:
        """Write what is left."""


class TensorBoard:
    """Event files in folder/tensorboard, for `tensorboard --logdir`."""

    def __init__(self, config: RunConfig, name: str, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        safe = re.sub(r"[^\w.,=-]+", "-", name)[:100]
        self.writer = SummaryWriter(str(folder / "tensorboard" / f"{safe}-{config.hash}"))
        self.writer.add_text("config", f"```json\n{json.dumps(_settings(config), indent=1)}\n```")

    def write(self, values: Mapping[str, float], axis: Axis, at: int) -> None:
        for key, value in values.items():
            self.writer.add_scalar(key, value, at)
        self.writer.flush()

    def close(self) -> None:
        self.writer.close()


class Wandb:
    """A run of W&B in folder/wandb: offline, for `wandb sync`, unless WANDB_MODE says otherwise."""

    def __init__(self, config: RunConfig, name: str, folder: Path) -> None:
        import wandb

        folder.mkdir(parents=True, exist_ok=True)
        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=name,
            id=config.hash,
            group=config.task,
            config=_settings(config),
            dir=folder,
            mode=os.environ.get("WANDB_MODE", "offline"),
            resume="allow",
            reinit="create_new",  # several runs at once
            settings=wandb.Settings(silent=True, console="off"),
        )
        for axis, keys in (("step", "train"), ("step", "validation"), ("length", "test")):
            self.run.define_metric(f"{keys}/*", step_metric=axis)

    def write(self, values: Mapping[str, float], axis: Axis, at: int) -> None:
        self.run.log({**values, axis: at})

    def close(self) -> None:
        self.run.finish()


class Trackio:
    """A run of Trackio in its own folder, for `trackio show`."""

    def __init__(self, config: RunConfig, name: str, folder: Path) -> None:
        import trackio

        # A context of its own: `init` ends the run of the context that it is called in.
        own = contextvars.copy_context()
        with redirect_stdout(sys.stderr):
            self.run = own.run(
                trackio.init, PROJECT, f"{name} {config.hash[:8]}", config.task,
                config=_settings(config), resume="allow",
            )  # fmt: skip

    def write(self, values: Mapping[str, float], axis: Axis, at: int) -> None:
        self.run.log(dict(values), step=at)

    def close(self) -> None:
        with redirect_stdout(sys.stderr):
            self.run.finish()


KINDS = {"tensorboard": TensorBoard, "wandb": Wandb, "trackio": Trackio}


def check(kinds: Sequence[str]) -> None:
    """Refuse logs that are unknown or not installed. Errors: ConfigError names the extra."""
    for kind in kinds:
        if kind not in KINDS:
            raise ConfigError(unknown("log", kind, KINDS))
        if getattr(find_spec(kind), "origin", None) is None:  # a folder of this name is no package
            raise ConfigError(f"--log {kind} needs a package:\npip install 'pezoo[{kind}]'")


class Logs:
    """Writes the events of runs to logs. A log that fails is left with a warning."""

    def __init__(
        self, kinds: Sequence[str], configs: Sequence[RunConfig], names: Sequence[str], folder: Path
    ) -> None:
        self.kinds, self.configs, self.names = list(kinds), configs, names
        self.folder = folder / "logs"
        self.open: dict[tuple[int, str], Log] = {}
        self.written: set[tuple[int, str, str, int]] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for run in {run for run, _ in self.open}:
            self._close(run)

    def update(self, run: int, event: Event) -> None:
        """Write one event of one run."""
        if not self.kinds:
            return
        config = self.configs[run]
        if "loss" in event:
            step, every = event["step"], config.eval.every
            now = {"train/loss": event["loss"], "train/steps_per_second": event["rate"]}
            if not config.train.learned:  # else validations decide
                now["train/learning_rate"] = config.train.lr * rate(config.train, step - 1)
            self._write(run, "step", step, now)
            # Reported before the validation that may be due at this step.
            validated = (step - 1) // every * every
            self._write(run, "step", validated, {"validation/exact": event["exact"]})
        elif "record" in event:
            self._end(run, event["record"])
        if event.keys() & {"record", "error", "busy"}:
            self._close(run)

    def _end(self, run: int, record: Record) -> None:
        train, cost = record.config.train, record.cost
        ending = record.last_step - train.learned.decay if train.learned else 0
        for point in record.learning:
            share = rate(train, point.step - 1, ending)
            now = {"train/loss": point.loss, "train/learning_rate": train.lr * share}
            self._write(run, "step", point.step, now | {"validation/exact": point.exact})
        seconds, tokens = cost.train_seconds, cost.tokens
        speed = tokens / seconds if tokens and seconds else None
        last = {"train/seconds": seconds, "train/tokens_per_second": speed}
        self._write(run, "step", record.last_step, last)
        for row in record.scores.last:
            found = {"test/exact": row.exact, "test/token": row.token, "test/bits": row.bits}
            self._write(run, "length", row.length, found)

    def _write(self, run: int, axis: Axis, at: int, values: Mapping[str, float | None]) -> None:
        """Write numbers that this run has not written there yet."""
        keys = {(run, key, axis, at): key for key, value in values.items() if value is not None}
        new = {key: values[key] for place, key in keys.items() if place not in self.written}
        self.written |= keys.keys()
        for kind in [*self.kinds] if new else ():
            with self._guarded(kind):
                if (run, kind) not in self.open:
                    made = KINDS[kind](self.configs[run], self.names[run], self.folder)
                    self.open[run, kind] = made
                self.open[run, kind].write(new, axis, at)  # type: ignore[arg-type]

    def _close(self, run: int) -> None:
        for kind in [*self.kinds]:
            if log := self.open.pop((run, kind), None):
                with self._guarded(kind):
                    log.close()

    @contextmanager
    def _guarded(self, kind: str) -> Iterator[None]:
        """Turn an error of a log into a warning, after which that kind is left out."""
        try:
            yield
        except Exception as error:
            self.kinds.remove(kind)
            warnings.warn(f"--log {kind} stopped: {error}", stacklevel=2)


def _settings(config: RunConfig) -> dict[str, Any]:
    return config.model_dump(mode="json") | {"run": config.hash}
