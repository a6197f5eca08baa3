"""Parts of the page of one run, and the CSV of all runs.

There are thousands of both: what a template would repeat for every line is made here.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from html import escape
from typing import Any

from markupsafe import Markup

from experiment.config import RunConfig
from leaderboard.record.schema import Record, Score
from leaderboard.stats.frame import COLUMNS, OF_LENGTH, rows_of, run_values
from leaderboard.stats.tables import flat
from leaderboard.text import as_csv, percent, times, wilson_text

_escaped = lru_cache(4096)(escape)  # runs have few names, versions and settings
Part = tuple[str, str, list[Score]]  # an id, words for the heading, scores


def known(part: Any) -> list[tuple[str, str]]:
    """Return the names and values of a part of a record that are not None."""
    values = {name: getattr(part, name) for name in part.__dataclass_fields__}
    return list(flat("", {name: value for name, value in values.items() if value is not None}))


def settings(config: RunConfig) -> list[tuple[str, str]]:
    """Return the settings of a run as ("train.steps", "1500")."""
    return sorted(flat("", config.model_dump(mode="json")))


def pair_items(pairs: Iterable[tuple[str, str]]) -> Markup:
    """Return the items of a list of names and values."""
    return Markup("".join(f"<dt>{_escaped(name)}<dd>{_escaped(value)}\n" for name, value in pairs))


def learned(record: Record) -> list[list[float | None]]:
    """Return the learning curve as lines of step, loss and exact match."""

    def short(value: float | None) -> float | None:
        return None if value is None else float(f"{value:.4g}")

    return [[point.step, short(point.loss), short(point.exact)] for point in record.learning]


def parts_of_run(record: Record) -> list[Part]:
    """Return the scores that its page shows: of every mode, and the best where numbers differ."""
    found = []
    for mode, own in record.by_mode.items():
        more, words = (f"-{mode}", f", evaluated {mode}") if mode else ("", "")
        found.append((f"last{more}", f"last step{words}", own.last))
        if not mode and own.best and _numbers(own.best) != _numbers(own.last):
            found.append(("best", "best on training lengths", own.best))
    return [part for part in found if part[2]]


def _numbers(scores: Sequence[Score]) -> list[tuple[object, ...]]:
    return [(one.length, one.status, one.correct, one.token, one.bits) for one in scores]


def methods(scores: Iterable[Score]) -> str:
    """Return how these scores were computed."""
    return ", ".join(dict.fromkeys(score.method for score in scores if score.method))


def score_rows(scores: Iterable[Score], record: Record) -> Markup:
    """Return the rows of a table of scores by length; closing tags are left out."""
    return Markup("".join(_score_row(one, record) for one in scores))


def _score_row(score: Score, record: Record) -> str:
    trained = " (trained)" if score.seen else ""
    head = f"<tr><th scope=row>{score.length}<td>{times(score.length / record.train_length)}"
    if score.count is None or score.correct is None:
        words = f"{score.status}: {score.note}" if score.note else score.status
        return f"{head}{trained}<td class=words colspan=5>{escape(words)}\n"
    cells = (
        percent(score.exact),
        wilson_text(score.correct, score.count),
        score.correct,
        score.count,
        percent(score.token),
    )
    if score.bits is not None:
        gain = "-" if score.gain is None else f"{score.gain:.4f}"
        cells = (f"{score.bits:.4f}", gain, *cells[3:])
    return f"{head}{trained}{''.join(f'<td>{cell}' for cell in cells)}\n"


def answer_rows(scores: Iterable[Score]) -> Markup:
    """Return the rows of a table with the first wrong answer of every length."""
    return Markup(
        "".join(
            f"<tr><th scope=row>{score.length}<td>{_escaped(one.prompt)}"
            f"<td>{_escaped(one.expected)}<td>{escape(one.given)}\n"
            for score in scores
            for one in score.wrong[:1]
        )
    )


def runs_as_csv(records: Iterable[Record]) -> Iterator[bytes]:
    """Yield the rows of `leaderboard.frame(modes=True)` as CSV, without importing pandas.

    A part for each record: together they may take more memory than the records.
    """
    names = [*COLUMNS]
    own, ends = names[OF_LENGTH], (names[: OF_LENGTH.start], names[OF_LENGTH.stop :])
    yield as_csv(names, ()).encode()
    for record in records:
        values = run_values(record) | {"checkpoint": "last"}
        shared = as_csv((), ([values.get(name) for name in end] for end in ends))
        before, after = shared.splitlines()
        rows = rows_of(record, "last", modes=True, run={})
        lines = as_csv((), ([row.get(name) for name in own] for row in rows)).splitlines()
        yield "".join(f"{before},{line},{after}\n" for line in lines).encode()
