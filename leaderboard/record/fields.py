"""The types of a record's fields: visible text, numbers in range, bounded settings."""

import math
import re
from datetime import datetime
from functools import lru_cache
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from leaderboard.escape import hidden, shown


def _hides(text: str) -> bool:
    return not text.isprintable() and any(hidden(char) for char in text)


@lru_cache(4096)  # equal texts of many records are one object
def _visible(text: str) -> str:
    if _hides(text):
        raise ValueError("holds control or invisible characters")
    return text


def _moment(text: str) -> str:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("needs a time zone, as in 2026-01-01T00:00:00+00:00")
    if not 1 < moment.year < 9999:  # in UTC it may be in no year that Python knows
        raise ValueError(f"expected a year after 1 and before 9999, got {moment.year}")
    return text


_ENDS = {0.0: 0.0, 1.0: 1.0}  # most shares, of which all records have one object


def _unsigned(share: float) -> float:
    if not share and math.copysign(1, share) < 0:
        raise ValueError("-0.0 is not a share")
    return _ENDS.get(share, share)


def _task(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_+-]{0,63}(\([A-Za-z0-9_=,.+/-]{1,100}\))?", text):
        raise ValueError(
            "expected a task's name of up to 64 letters, digits and _+-, and its options, of up to "
            "100 letters, digits and _=,.+/-, in parentheses; to a path with others, make a link"
        )
    return text


def bounded(value: Any) -> None:
    """Check the texts and numbers of settings. Errors: ValueError."""
    if isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            bounded(item)
    elif isinstance(value, str) and (len(value) > 2000 or _hides(value)):
        raise ValueError("a text among the settings is too long or holds invisible characters")
    elif isinstance(value, int | float) and not abs(value) <= 2**63:
        raise ValueError("a number among the settings is not finite or beyond 2**63")


Text = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_visible)]
Command = Annotated[str, Field(max_length=2000), AfterValidator(_visible)]
Cleaned = Annotated[str, Field(max_length=100_000), AfterValidator(shown)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_+-]{0,63}$")]
TaskText = Annotated[str, AfterValidator(_task)]
ProtocolName = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}(\+[0-9a-f]{6})?(\+tune-[0-9a-f]{8}|\+tuning)?$"
    ),
]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
RunId = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
Moment = Annotated[str, Field(max_length=40), AfterValidator(_visible), AfterValidator(_moment)]
Share = Annotated[float, Field(ge=0, le=1), AfterValidator(_unsigned)]
Loss = Annotated[float, Field(ge=-1e12, le=1e12)]
Amount = Annotated[float, Field(ge=0, le=1e12)]
Count = Annotated[int, Field(ge=0, le=10**12)]
Positive = Annotated[int, Field(ge=1, le=10**12)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Length = Annotated[int, Field(ge=0, le=10**7)]
CHECKED = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)


class Part(BaseModel):
    """Base class of a record's parts: strict types, finite numbers, unknown fields dropped."""

    model_config = ConfigDict(**CHECKED, frozen=True)
