"""Records for the tests, as fixtures."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from made_records import failed_record, raw_record


@pytest.fixture(scope="module", autouse=True)
def made_up_settings_are_a_protocols_own() -> Iterator[None]:
    """That they must be is shown in test_reliability_protocols.py."""
    from leaderboard import check as record_check
    from leaderboard.catalog import Catalog

    with pytest.MonkeyPatch.context() as patch:  # for sites that are built once per module, too
        patch.setattr(Catalog, "foreign", lambda self, record: False)
        patch.setattr(record_check, "history", lambda root: "")  # their commit is made up
        yield


@pytest.fixture(scope="session")
def raw() -> Callable[..., dict[str, Any]]:
    return raw_record


@pytest.fixture
def failed() -> Callable[..., dict[str, Any]]:
    return failed_record


@pytest.fixture
def record() -> Callable[..., Any]:
    from leaderboard.record.read import Record

    return lambda *args, **changes: Record.of(raw_record(*args, **changes))


@pytest.fixture
def save(tmp_path: Path) -> Callable[..., Path]:
    """Write records into a folder as one file each, and return the folder."""

    def write(*records: Any, folder: str = "records") -> Path:
        for at, one in enumerate(records):
            path = tmp_path / folder / f"{at:03}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(one if isinstance(one, str) else json.dumps(one), encoding="utf-8")
        return tmp_path / folder

    return write
