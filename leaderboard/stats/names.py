"""Short names for encodings with many options: a letter, with a legend."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from string import ascii_lowercase

from leaderboard.stats.rows import Row
from pezoo.spec import bare

LONGEST = 24  # letters of a name that is shown as it is


def aliases(rows: Iterable[Row]) -> dict[str, str]:
    """Return the short name of every label: `prism [a]` for one of more than LONGEST letters.

    Letters follow the sorted names of all rows; other modes and separate seeds share the letter of
    their encoding.
    """
    labels = {row.label: (row.plain, bare(row.encoding), row.aside) for row in rows}
    long: dict[str, set[str]] = defaultdict(set)
    for plain, name, _ in labels.values():
        if len(plain) > LONGEST and plain != name:
            long[name].add(plain)
    letters = {
        plain: f"{name} [{_letters(at)}]"
        for name, plains in long.items()
        for at, plain in enumerate(sorted(plains))
    }
    return {
        label: letters.get(plain, plain) + (f" ({aside})" if aside else "")
        for label, (plain, _, aside) in labels.items()
    }


def legend(rows: Iterable[Row], names: dict[str, str]) -> list[tuple[str, str]]:
    """Return (short name, label) of the rows whose names were shortened."""
    found = {names[row.label]: row.label for row in rows if not row.aside}
    return sorted((short, label) for short, label in found.items() if short != label)


def _letters(at: int) -> str:
    """
    >>> _letters(0), _letters(25), _letters(26)
    ('a', 'z', 'aa')
    """
    more, last = divmod(at, len(ascii_lowercase))
    return (_letters(more - 1) if more else "") + ascii_lowercase[last]
