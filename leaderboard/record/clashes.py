"""The ways in which records contradict each other."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from operator import ne
from pathlib import Path
from typing import Any

from leaderboard.escape import shown
from leaderboard.record.refusals import NUMBERS
from leaderboard.record.schema import Record, Score

TELLING = 8  # answers that are right, and as many that are wrong, say more than chance
# Of the losses: nearer curves are copies. The nearest of 50,000 pairs of seeds are at five times
# this, and those with equal scores at eight times.
NEAR = 2e-3
Alike = Callable[[Record, Record], bool]
Conflict = Callable[[Any, Any], bool]


def clashes(records: dict[Path, Record], alike: Alike) -> Iterator[tuple[Path, str]]:
    """Yield records that contradict each other, all of them, each with a reason.

    Nothing in a record tells which one is genuine: a date, for example, can be invented.
    """

    def copied(one: Record, other: Record) -> bool:
        if (one.seed, one.task) != (other.seed, other.task):
            return True
        return one.config.spec != other.config.spec and not alike(one, other)

    groups: dict[tuple[Any, ...], list[tuple[Path, Any]]] = defaultdict(list)
    for path, record in records.items():
        groups[f"run {record.run} is also in", ne].append((path, path))
        for words, conflict, what, value in _claims(record, copied):
            groups[words, conflict, what].append((path, value))
    found: dict[tuple[Path, str], Path] = {}
    for (words, conflict, *_), own in groups.items():
        for (path, one), (where, other) in combinations(own, 2):
            if conflict(one, other):
                found.setdefault((path, words), where)
                found.setdefault((where, words), path)
    for (path, words), where in found.items():
        yield path, f"{words} {path_text(where)}"


def path_text(path: Path) -> str:
    return shown(str(path)).replace(": ", ":")


def _claims(record: Record, copied: Conflict) -> Iterator[tuple[str, Conflict, object, object]]:
    """Yield (words, conflict, what, value): values of the same `what` must not conflict."""
    if record.status != "done":
        return
    config, table, seed, curve = record.config, record.shared_hash, record.seed, record.learning
    kind = table, config.spec, config.encoding_version
    yield f"seed {seed} has another result, and neither counts:", ne, (*kind, seed), record.run
    losses = [point.loss or 0.0 for point in curve]
    if max(losses, default=0) > NEAR:  # equal curves of zeros do not show a copy
        same = tuple((point.step, point.loss, point.exact) for point in curve)
        yield "the learning curve is that of", copied, same, record
    own = seed, losses, [*map(NUMBERS, record.scores.last)]
    yield "the learning curve is nearly that of", _near, table, own
    if telling := _telling(record.scores.last):
        yield "the scores are those of", copied, (table, telling), record
    if tuning := record.provenance.tuning:
        yield "the sweep differs from that of the same encoding in", ne, kind, tuning.cells
    machine = (record.env.platform or record.env.device).split()[-1]  # they round differently
    for name, where in (("data_hash", ""), ("backbone_hash", machine)):
        if value := getattr(record, name):
            words = f"{name} differs from that of the same settings and seed in"
            yield words, ne, (where, table, config.train, seed), value


def _near(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Return whether the curves of two seeds are nearer than chance brings them.

    Curves that hardly change are near by chance, as on a task that no run learns.
    """
    (seed, losses, scores), (another, own, numbers) = one, other
    if seed == another or not 2 < len(losses) == len(own):
        return False
    spread = max(losses) - min(losses)
    slack = NEAR * (1 + 2 * (scores == numbers))
    pairs = zip(losses, own, strict=True)
    return spread > 0 and all(abs(a - b) <= slack * min(max(a, b), spread) for a, b in pairs)


def _telling(scores: Sequence[Score]) -> tuple[object, ...]:
    """Return scores that no two runs share by chance: longer answers, partly right, twice."""
    found = tuple(
        NUMBERS(one)
        for one in scores
        if (one.tokens or 0) > 2 * (one.count or 0)
        and TELLING <= (one.correct or 0) <= (one.count or 0) - TELLING
    )
    return found if len(found) > 1 else ()
