"""The record of one run, checked field by field.

A record is taken as hostile until it has passed: numbers must be finite and in range, texts short
and visible. Fields that this version does not know are dropped; missing ones are an error.
"""

from __future__ import annotations

import hashlib
import json
from datetime import datetime
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Field,
    JsonValue,
    PrivateAttr,
    model_validator,
)

from leaderboard.fields import (
    Amount,
    Cleaned,
    Command,
    Count,
    Length,
    Lengths,
    Moment,
    Name,
    Part,
    Share,
    Text,
    Version,
)
from leaderboard.files import hidden
from leaderboard.tuning import Tuning, is_tuning_run

# What may differ within one table. Where it ran is left to a warning beside the table.
_FREE = {"seed", "label", "encoding", "encoding_version", "device", "attention", "threads"}


def _plain(value: Any) -> Any:
    _bounded(value, 0)
    return value


Plain = Annotated[JsonValue, AfterValidator(_plain)]


class Score(Part):
    """What one checkpoint did at one length; only status "ok" has numbers."""

    length: Length
    seen: bool
    status: Literal["ok", "cannot represent", "no instance"]
    exact: Share | None = None
    correct: Count | None = None
    count: Annotated[int, Field(ge=1, le=10**12)] | None = None
    token: Share | None = None
    method: Literal["teacher-forced", "decoded"] | None = None
    note: Cleaned | None = None

    @model_validator(mode="after")
    def _agrees(self) -> Score:
        if self.status != "ok":
            if any(v is not None for v in (self.exact, self.correct, self.count, self.token)):
                raise ValueError(f"status {self.status!r} has no exact, correct, count or token")
            return self
        if self.exact is None or self.correct is None or self.count is None or not self.method:
            raise ValueError("status 'ok' needs exact, correct, count and method")
        if self.correct > self.count:
            raise ValueError(f"correct={self.correct} is more than count={self.count}")
        if abs(self.exact - self.correct / self.count) > 1e-3:
            raise ValueError(f"exact={self.exact} is not correct/count={self.correct}/{self.count}")
        return self


class Scores(Part):
    """The scores after the last step, and those of the checkpoint chosen on validation data."""

    last: Annotated[list[Score], Field(max_length=1000)]
    best: Annotated[list[Score], Field(max_length=1000, default_factory=list)]


class Lesson(Part):
    """One point of the learning curve."""

    step: Count
    loss: Annotated[float, Field(ge=-1e12, le=1e12)] | None = None
    exact: Share | None = None


class Cost(Part):
    """What the run took. Times in seconds, memory in megabytes, tokens without padding."""

    parameters: Count | None = None
    encoding_parameters: Count | None = None
    train_seconds: Amount | None = None
    eval_seconds: Amount | None = None
    steps_per_second: Amount | None = None
    cpu_seconds: Amount | None = None
    peak_memory_mb: Amount | None = None
    tokens: Count | None = None
    data_share: Share | None = None  # of the training time: to draw batches
    eval_cpu_seconds: Amount | None = None
    save_seconds: Amount | None = None
    sessions: Annotated[int, Field(ge=1, le=10**6)] | None = None  # 1: never interrupted
    stacked: Annotated[int, Field(ge=1, le=10**6)] | None = None  # runs that trained as one


class Env(Part):
    """What the run ran on."""

    pezoo: Text
    commit: Text | None = None
    dirty: bool | None = None
    python: Text
    torch: Text
    numpy: Text | None = None
    numba: Text | None = None
    triton: Text | None = None
    cuda: Text | None = None
    platform: Text | None = None
    device: Text
    cpu: Text | None = None
    cores: Annotated[int, Field(ge=1, le=100_000)] | None = None
    threads: Annotated[int, Field(ge=1, le=10_000)] | None = None
    compiled: bool | None = None  # training, through torch.compile
    attention: Text | None = None
    attention_ran: Plain = None  # in training and in evaluating: what `attention` came to
    kernels: Plain = None  # which kernel back ends ran


class Provenance(Part):
    """How to get this run again."""

    command: Command
    finished: Moment
    tuning: Tuning | None = None  # where the settings were chosen from a grid


class Settings(Part):
    """The few settings that the pages must understand; a run keeps all the others as they are."""

    train_lengths: Lengths
    spec: Text
    encoding_version: Version
    task_version: Version


def _read(config: dict[str, Any]) -> Settings:
    """Settings as the harness writes them (flat), or grouped by protocol, encoding and task."""

    def part(name: str) -> dict[str, Any]:
        return value if isinstance(value := config.get(name), dict) else {}

    train = part("train") or part("protocol").get("train")
    return Settings.model_validate(
        {
            "train_lengths": train.get("lengths") if isinstance(train, dict) else None,
            "spec": part("encoding").get("spec", config.get("encoding")),
            "encoding_version": part("encoding").get("version", config.get("encoding_version", 1)),
            "task_version": part("task").get("version", config.get("task_version")),
        }
    )


def _settings(config: dict[str, Any]) -> dict[str, Any]:
    _bounded(config, 0)
    _read(config)
    return config


def _bounded(value: Any, depth: int) -> None:
    """Settings are plain data of bounded size. Errors: ValueError."""
    if depth > 10:
        raise ValueError("settings are nested deeper than 10")
    if isinstance(value, dict | list):
        if len(value) > 1000:
            raise ValueError("more than 1000 settings in one place")
        for key in value if isinstance(value, dict) else ():
            _bounded(key, depth)
        for item in value.values() if isinstance(value, dict) else value:
            _bounded(item, depth + 1)
    elif isinstance(value, str) and (len(value) > 2000 or any(hidden(char) for char in value)):
        raise ValueError("a text among the settings is too long or holds invisible characters")
    elif isinstance(value, int | float) and not abs(value) <= 2**63:
        raise ValueError("a number among the settings is not finite or beyond 2**63")


class Record(Part):
    """One run: what was asked, what came out, on what, and how to repeat it."""

    schema_: Annotated[Literal[1], Field(alias="schema")]
    run: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
    status: Literal["done", "failed"]
    reason: Cleaned | None = None
    protocol: Name
    task: Name
    encoding: Text
    seed: Annotated[int, Field(ge=0, lt=2**63)]
    config: Annotated[dict[str, JsonValue], AfterValidator(_settings)]
    backbone_hash: Text | None = None
    data_hash: Text | None = None
    chance: Share | None = None
    best_step: Count | None = None
    scores: Scores
    # The same weights, evaluated in another way.
    modes: Annotated[dict[Name, Scores], Field(max_length=20, default_factory=dict)]
    learning: Annotated[list[Lesson], Field(max_length=100_000, default_factory=list)]
    cost: Cost
    env: Env
    provenance: Provenance
    _mode: str = PrivateAttr("")

    @model_validator(mode="after")
    def _agrees(self) -> Record:
        if self.status == "done" and not self.scores.last:
            raise ValueError("a run that is done needs scores.last")
        low, high = min(self.plain.train_lengths), self.train_length
        every = (self.scores, *self.modes.values())
        for scores in (part for both in every for part in (both.last, both.best)):
            if len({score.length for score in scores}) < len(scores):
                raise ValueError("scores name a length twice")
            for score in scores:
                if score.length >= low and score.seen != (score.length <= high):
                    raise ValueError(
                        f"length {score.length} has seen={score.seen}, but training "
                        f"lengths were {low} to {high}"
                    )
        return self

    @property
    def mode(self) -> str:
        """The evaluation mode that `scores` belong to; "" for the one that training used."""
        return self._mode

    def views(self) -> list[Record]:
        """The record as trained, then one view per evaluation mode, with that mode's scores."""
        views = [self]
        for mode, scores in sorted(self.modes.items()):
            view = self.model_copy(update={"scores": scores})
            view._mode = mode
            views.append(view)
        return views

    @cached_property
    def plain(self) -> Settings:
        """The settings that the pages must understand."""
        return _read(self.config)

    @property
    def train_length(self) -> int:
        """The longest length that training used."""
        return max(self.plain.train_lengths)

    @property
    def finished(self) -> datetime:
        return datetime.fromisoformat(self.provenance.finished)

    def shared(self) -> dict[str, JsonValue]:
        """The settings that all runs of one table have in common; of what was tuned, the grid."""
        settings = {key: value for key, value in self.config.items() if key not in _FREE}
        train, tuning = settings.get("train"), self.provenance.tuning
        if tuning is None or not isinstance(train, dict):
            return settings
        fixed = {key: value for key, value in train.items() if key not in tuning.grid}
        return settings | {"train": fixed, "tuned": tuning.sweep()}

    @property
    def tuning_run(self) -> bool:
        """Whether this run only served to choose settings: its test examples are its own."""
        return is_tuning_run(self.config)

    @cached_property
    def shared_hash(self) -> str:
        """Eight hexadecimal digits; equal only where runs may be compared."""
        text = json.dumps(self.shared(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:8]
