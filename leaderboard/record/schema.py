"""The record of one run, checked field by field.

A record counts as hostile until it has passed: numbers must be finite and in range, texts short
and visible. Fields that this version does not know are dropped; missing ones are an error.
"""

import hashlib
import json
from collections import Counter
from datetime import datetime
from functools import cached_property, lru_cache
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic.dataclasses import dataclass

from experiment.config import WHERE, RunConfig, Settings
from leaderboard.escape import shown
from leaderboard.record import fields
from leaderboard.record.fields import CHECKED, Part, bounded
from leaderboard.record.tuning import EXAMPLES, Tuning

# Runs of one table may differ in these. Where they ran is left to a warning beside the table.
_OWN = (*WHERE, "encoding", "spec", "encoding_version", "threads")
_FREE: dict[str, Any] = dict.fromkeys(_OWN, True) | {"start": {*WHERE}}


# Encodings answer the same prompts: one object for each.
AnswerText = Annotated[str, Field(max_length=2000), AfterValidator(lru_cache(1 << 16)(shown))]


@dataclass(config=CHECKED, frozen=True, slots=True, kw_only=True)
class Answer:
    """A wrong answer. `given` goes up to its first wrong symbol; "…" stands for what follows."""

    prompt: AnswerText
    expected: AnswerText
    given: AnswerText


NUMBERS = ("exact", "correct", "count", "token", "tokens", "bits", "gain", "by_place", "wrong")


@dataclass(config=CHECKED, frozen=True, slots=True, kw_only=True)
class Score:
    """The score of one checkpoint at one length; only status "ok" has numbers."""

    length: fields.Length
    seen: bool
    status: Literal["ok", "cannot represent", "no instance"]
    exact: fields.Share | None = None
    correct: fields.Count | None = None
    count: fields.Positive | None = None
    token: fields.Share | None = None
    tokens: fields.Positive | None = None  # scored, the ends of answers included
    method: Literal["teacher-forced", "decoded", "one pass"] | None = None
    # Of text: bits per token of the targets; how many fewer than what the model has within its
    # training length, and the standard error; bits at places 1, 2-3, 4-7, ...
    bits: fields.Amount | None = None
    gain: fields.Loss | None = None
    gain_error: fields.Amount | None = None
    by_place: Annotated[tuple[fields.Amount, ...], Field(max_length=64)] = ()
    note: fields.Cleaned | None = None
    wrong: Annotated[tuple[Answer, ...], Field(max_length=10)] = ()

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.status != "ok":
            if any(getattr(self, name) not in (None, ()) for name in NUMBERS):
                raise ValueError(f"status {self.status!r} has no {', '.join(NUMBERS)}")
            return self
        if self.exact is None or self.correct is None or self.count is None or not self.method:
            raise ValueError("status 'ok' needs exact, correct, count and method")
        if self.correct > self.count:
            raise ValueError(f"correct={self.correct} is more than count={self.count}")
        if len(self.wrong) > self.count - self.correct:
            raise ValueError(
                f"{len(self.wrong)} wrong answers, but {self.correct} of {self.count} are right"
            )
        if abs(self.exact - self.correct / self.count) > 1e-9:
            raise ValueError(f"exact={self.exact} is not correct/count={self.correct}/{self.count}")
        return self


Checkpoint = Literal["last", "best", "top1", "top3", "top3_each"]  # the fields of Scores


class Scores(Part):
    """The scores after the last step, and those of the checkpoint chosen on validation data.

    topN, where the protocol asks for it (`eval.top`, 1 or 3): the N evaluations with the best mean
    over all test lengths, as some papers report; top3_each: the best three of each length. They
    select on what they report.
    """

    last: Annotated[list[Score], Field(max_length=1000)]
    best: Annotated[list[Score], Field(max_length=1000, default_factory=list)]
    top1: Annotated[list[Score], Field(max_length=1000, default_factory=list)]
    top3: Annotated[list[Score], Field(max_length=1000, default_factory=list)]
    top3_each: Annotated[list[Score], Field(max_length=1000, default_factory=list)]


@dataclass(config=CHECKED, frozen=True, slots=True, kw_only=True)
class Lesson:
    """One point of the learning curve; `exact` is over the training lengths.

    With `eval.curve_lengths` also the seconds of training until then, by the clock, and the means
    over these lengths, on the examples of the test; None where one of them has no number. With
    `train.learned` also the least exact match of a training length.
    """

    step: fields.Count
    loss: fields.Loss | None = None
    exact: fields.Share | None = None
    seconds: fields.Amount | None = None
    test_token: fields.Share | None = None
    test_exact: fields.Share | None = None
    least: fields.Share | None = None


@dataclass(config=CHECKED, frozen=True, slots=True, kw_only=True)
class Cost:
    """The cost of the run. Times in seconds, memory in megabytes, tokens without padding."""

    parameters: fields.Count | None = None
    encoding_parameters: fields.Count | None = None
    train_seconds: fields.Amount | None = None
    eval_seconds: fields.Amount | None = None
    steps_per_second: fields.Amount | None = None
    cpu_seconds: fields.Amount | None = None
    peak_memory_mb: fields.Amount | None = None
    tokens: fields.Count | None = None
    data_share: fields.Share | None = None  # of the training time: to draw batches
    eval_cpu_seconds: fields.Amount | None = None
    save_seconds: fields.Amount | None = None
    sessions: fields.Positive | None = None  # 1: never interrupted


@dataclass(config=CHECKED, frozen=True, slots=True, kw_only=True)
class Env:
    """The environment of the run."""

    pezoo: fields.Text
    commit: fields.Text | None = None
    dirty: bool | None = None
    python: fields.Text
    torch: fields.Text
    numpy: fields.Text | None = None
    numba: fields.Text | None = None
    triton: fields.Text | None = None
    cuda: fields.Text | None = None
    platform: fields.Text | None = None
    device: fields.Text
    cpu: fields.Text | None = None
    cores: fields.Positive | None = None
    threads: fields.Positive | None = None
    attention: fields.Text | None = None
    # The kernels that computed it.
    attention_ran: dict[Literal["train", "eval"], list[fields.Text]] | None = None
    # {operation: back end}
    kernels: Annotated[dict[fields.Name, fields.Text], Field(max_length=100)] | None = None
    processes: fields.Positive | None = None  # of torchrun, which share every batch
    accumulate: fields.Positive | None = None  # parts in which each computes its share


class Start(Part):
    """The run whose last weights a run starts from, and the SHA-256 of their file.

    `missing` are weights of this run that the other lacks or has in another shape, which start as
    new ones; `left` are those that are left over.
    """

    run: fields.RunId
    weights: fields.Sha256
    missing: Annotated[list[fields.Text], Field(max_length=1000)]
    left: Annotated[list[fields.Text], Field(max_length=1000)]


class Provenance(Part):
    """Command, time and tuning of a run."""

    command: fields.Command
    finished: fields.Moment
    tuning: Tuning | None = None  # where the settings were chosen from a grid


def _once(pairs: list[tuple[str, Any]]) -> None:
    """Refuse a name that an object has twice, of which readers take the one or the other."""
    if len(dict(pairs)) < len(pairs):
        name, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"{name!r} is twice in an object")


def _bounded(config: RunConfig) -> RunConfig:
    """Return the settings if their size is bounded; equal parts of many records are one object."""
    parts = {"model": config.model, "train": config.train, "eval": config.eval}
    bounded(config.model_dump(exclude=parts.keys()))
    return config.replace(**{name: _shared(part) for name, part in parts.items()})


@lru_cache(1000)
def _shared(part: Settings) -> Settings:
    bounded(part.model_dump())
    return part


@lru_cache(1000)
def _fields(names: frozenset[str]) -> set[str]:
    """Return one set for the parts of many records that have these fields: 3 KB of 19 a record."""
    return set(names)


def _hash(settings: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]


@lru_cache(1000)  # thousands of records share a few
def _shared_hash(config: RunConfig) -> str:
    return _hash(config.model_dump(mode="json", exclude=_FREE))


class Record(Part):
    """One run: its settings, its results, where it ran, and the command that repeats it."""

    schema_: Annotated[Literal[1], Field(alias="schema")]
    run: fields.RunId
    status: Literal["done", "failed"]
    reason: fields.Cleaned | None = None
    protocol: fields.ProtocolName
    task: fields.TaskText
    encoding: fields.Text
    seed: fields.Seed
    config: Annotated[RunConfig, AfterValidator(_bounded)]
    backbone_hash: fields.Text | None = None
    data_hash: fields.Text | None = None
    chance: fields.Share | None = None
    best_step: fields.Count | None = None
    start: Start | None = None
    scores: Scores
    # The same weights, evaluated in another way.
    modes: Annotated[dict[fields.Name, Scores], Field(max_length=20, default_factory=dict)]
    # The last model on further test sets of the task, by name; see `experiment.config.Eval`.
    sets: Annotated[
        dict[fields.Name, Annotated[list[Score], Field(max_length=1000)]],
        Field(max_length=100, default_factory=dict),
    ]
    learning: Annotated[list[Lesson], Field(max_length=100_000, default_factory=list)]
    cost: Cost
    env: Env
    provenance: Provenance

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.status == "done" and not self.scores.last:
            raise ValueError("a run that is done needs scores.last")
        low, high = self.config.train.lengths
        for scores in (part for both in self.by_mode.values() for part in (both.last, both.best)):
            if len({score.length for score in scores}) < len(scores):
                raise ValueError("scores name a length twice")
            for score in scores:
                if score.length >= low and score.seen != (score.length <= high):
                    raise ValueError(
                        f"length {score.length} has seen={score.seen}, but training "
                        f"lengths were {low} to {high}"
                    )
        return self

    @classmethod
    def parse(cls, text: bytes | str, once: bool = True) -> Self:
        """The record in a JSON text.

        Errors: ValidationError; ValueError for a name that an object has twice, which takes as long
        to find as the rest: not where `once` is False.
        """
        record = cls.model_validate_json(text, strict=True)
        own = record, record.config, record.scores, record.provenance
        for part in (*own, *record.modes.values()):
            same = _fields(frozenset(part.model_fields_set))
            object.__setattr__(part, "__pydantic_fields_set__", same)
        if once:
            json.loads(text, object_pairs_hook=_once)
        return record

    @classmethod
    def of(cls, data: dict[str, Any]) -> Self:
        """A record that is in memory, as if it had been read from its file."""
        return cls.parse(json.dumps(data))

    @property
    def last_step(self) -> int:
        """Return the number of steps trained, which `train.learned` lets validations decide."""
        train = self.config.train
        validations = ((point.step, point.least or 0.0) for point in self.learning)
        return train.last_step(train.ending(validations))

    def data(self) -> dict[str, Any]:
        """Return the record as JSON data."""
        own = self.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude={"config"})
        return own | {"config": self.config.model_dump(mode="json")}

    def text(self) -> str:
        """Return the record as JSON on one line, without what is null or empty."""
        own = self.model_dump_json(by_alias=True, exclude_defaults=True, exclude={"config"})
        return f'{own[:-1]},"config":{self.config.model_dump_json()}}}\n'

    @property
    def by_mode(self) -> dict[str, Scores]:
        """The scores of every evaluation mode; "" is the mode that training used."""
        return {"": self.scores, **dict(sorted(self.modes.items()))}

    def tested(self) -> list[tuple[str, str, list[Score]]]:
        """Return (place in the record, test set or "", scores) for all single checkpoints."""
        found = []
        for mode, both in self.by_mode.items():
            place = f"modes.{mode}.scores" if mode else "scores"
            found += [(f"{place}.last", "", both.last), (f"{place}.best", "", both.best)]
        return found + [(f"sets.{name}", name, scores) for name, scores in self.sets.items()]

    @property
    def train_length(self) -> int:
        """The longest length in training."""
        return self.config.train.lengths[1]

    @property
    def finished(self) -> datetime:
        return datetime.fromisoformat(self.provenance.finished)

    @property
    def for_tuning(self) -> bool:
        """True for a run of a sweep, which has test examples of its own."""
        return self.config.eval.examples == EXAMPLES

    def shared(self) -> dict[str, Any]:
        """The settings that all runs of one table have in common; of what was tuned, the grid."""
        settings = self.config.model_dump(mode="json", exclude=_FREE)
        if (tuning := self.provenance.tuning) is None:
            return settings
        fixed = {key: value for key, value in settings["train"].items() if key not in tuning.grid}
        return settings | {"train": fixed, "tuned": {"grid": tuning.grid, "seeds": tuning.seeds}}

    @cached_property
    def shared_hash(self) -> str:
        """Eight hexadecimal digits; equal only where runs may be compared."""
        if self.provenance.tuning is None:
            return _shared_hash(self.config.replace(**dict.fromkeys(_OWN)))
        return _hash(self.shared())
