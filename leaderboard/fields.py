"""What the fields of a record are made of: texts that can be seen, numbers in range."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from leaderboard.files import hidden, shown


def _visible(text: str) -> str:
    if any(hidden(char) for char in text):
        raise ValueError("holds control or invisible characters")
    return text


def _moment(text: str) -> str:
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError("needs a time zone, as in 2026-01-01T00:00:00+00:00")
    return text


Text = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_visible)]
Command = Annotated[str, Field(max_length=2000), AfterValidator(_visible)]
Cleaned = Annotated[str, Field(max_length=100_000), AfterValidator(shown)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_+-]{0,63}$")]
Moment = Annotated[str, Field(max_length=40), AfterValidator(_visible), AfterValidator(_moment)]
Share = Annotated[float, Field(ge=0, le=1)]
Amount = Annotated[float, Field(ge=0, le=1e12)]
Count = Annotated[int, Field(ge=0, le=10**12)]
Length = Annotated[int, Field(ge=0, le=10**7)]
Version = Annotated[int, Field(ge=0, lt=2**63)] | Text
Lengths = Annotated[list[Length], Field(min_length=1, max_length=1000)]


class Part(BaseModel):
    """Whatever a record consists of: strict types, finite numbers, unknown fields dropped."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", allow_inf_nan=False)
