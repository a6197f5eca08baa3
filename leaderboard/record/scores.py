"""Scores of a run: per test length, and along training."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator
from pydantic.dataclasses import dataclass

from leaderboard.escape import shown
from leaderboard.record.fields import (
    CHECKED,
    Amount,
    Cleaned,
    Count,
    Length,
    Loss,
    Part,
    Positive,
    Share,
)

AnswerText = Annotated[str, Field(max_length=2000), AfterValidator(shown)]


@dataclass(config=CHECKED, frozen=True, slots=True, kw_only=True)
class Answer:
    """A wrong answer. `given` goes up to its first wrong symbol; "…" stands for what follows."""

    prompt: AnswerText
    expected: AnswerText
    given: AnswerText


@dataclass(config=CHECKED, frozen=True, slots=True, kw_only=True)
class Score:
    """The score of one checkpoint at one length; only status "ok" has numbers."""

    length: Length
    seen: bool
    status: Literal["ok", "cannot represent", "no instance"]
    exact: Share | None = None
    correct: Count | None = None
    count: Positive | None = None
    token: Share | None = None
    tokens: Positive | None = None  # scored, the ends of answers included
    method: Literal["teacher-forced", "decoded", "one pass"] | None = None
    note: Cleaned | None = None
    wrong: Annotated[tuple[Answer, ...], Field(max_length=10)] = ()

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
        if len(self.wrong) > self.count - self.correct:
            raise ValueError(
                f"{len(self.wrong)} wrong answers, but {self.correct} of {self.count} are right"
            )
        if abs(self.exact - self.correct / self.count) > 1e-3:
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
    over these lengths, on the examples of the test; None where one of them has no number.
    """

    step: Count
    loss: Loss | None = None
    exact: Share | None = None
    seconds: Amount | None = None
    test_token: Share | None = None
    test_exact: Share | None = None
