"""Records in, tables and pages out. `leaderboard.frame()` gives the records as a DataFrame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leaderboard.stats.frame import frame

__all__ = ["frame"]


def __getattr__(name: str) -> Any:
    if name == "frame":
        from leaderboard.stats.frame import frame  # pandas takes half a second to import

        return frame
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
