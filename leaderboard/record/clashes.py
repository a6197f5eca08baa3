"""The ways in which records contradict each other."""

from array import array
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from hashlib import blake2b
from operator import eq
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiment.config import RunConfig
from leaderboard.escape import shown
from leaderboard.record.refusals import NUMBERS
from leaderboard.record.schema import Record, Score

TELLING = 8  # answers that are right, and as many that are wrong, say more than chance
# Of the losses: nearer curves are copies. The nearest of 50,000 pairs of seeds are at five times
# this, and those with equal scores at eight times.
NEAR = 2e-3
MOST_NEAR = 3 * NEAR  # with equal scores
Alike = Callable[[RunConfig, RunConfig], bool]
Same = Callable[[Any, Any], bool]


class Curve(NamedTuple):
    """The losses of a run, and a hash of its scores."""

    path: Path
    seed: int
    losses: "array[float]"
    scores: bytes


class Claims:
    """The parts of records that others may contradict, about 2 KB of each record.

    `alike` says whether the encodings of two runs with equal results train alike.
    """

    def __init__(self, alike: Alike) -> None:
        self._alike = alike
        self._groups: dict[Hashable, list[tuple[Path, Any]]] = defaultdict(list)
        self._curves: dict[Hashable, list[Curve]] = defaultdict(list)

    def note(self, path: Path, record: Record) -> None:
        """Keep the claims of a record."""
        self._groups[f"run {record.run} is also in", eq].append((path, path))
        if record.status != "done":
            return
        for words, same, what, value in self._of(record):
            self._groups[words, same, what].append((path, value))
        losses = array("d", (point.loss or 0.0 for point in record.learning))
        if len(losses) > 2 and max(losses) > min(losses):
            scores = _digest([*map(NUMBERS, record.scores.last)])
            own = Curve(path, record.seed, losses, scores)
            self._curves[record.shared_hash, len(losses)].append(own)

    def clashes(self) -> Iterator[tuple[Path, str]]:
        """Yield records that contradict each other, all of them, each with a reason.

        Nothing in a record tells which one is genuine: a date, for example, can be invented.
        """
        found: dict[tuple[Path, str], Path] = {}
        for (words, same, *_), own in self._groups.items():
            for path, other in _unequal(own, same):
                found.setdefault((path, words), other)
        for curves in self._curves.values():
            for path, other in _near(curves):
                found[path, "the learning curve is nearly that of"] = other
        for (path, words), other in found.items():
            yield path, f"{words} {path_text(other)}"

    def _of(self, record: Record) -> Iterator[tuple[str, Same, object, object]]:
        """Yield (words, same, what, value): values of the same `what` must be the same."""
        config, table, seed = record.config, record.shared_hash, record.seed
        kind = table, config.spec, config.encoding_version
        yield f"seed {seed} has another result, and neither counts:", eq, (*kind, seed), record.run
        if max((point.loss or 0.0 for point in record.learning), default=0) > NEAR:
            same = _digest([(point.step, point.loss, point.exact) for point in record.learning])
            yield "the learning curve is that of", self._one_run, same, config
        if telling := _telling(record.scores.last):
            yield "the scores are those of", self._one_run, (table, _digest(telling)), config
        if tuning := record.provenance.tuning:
            cells = _digest(tuning.cells)
            yield "the sweep differs from that of the same encoding in", eq, kind, cells
        machine = (record.env.platform or record.env.device).split()[-1]  # they round differently
        for name, where in (("data_hash", ""), ("backbone_hash", machine)):
            if value := getattr(record, name):
                words = f"{name} differs from that of the same settings and seed in"
                yield words, eq, (where, table, config.train, seed), value

    def _one_run(self, one: RunConfig, other: RunConfig) -> bool:
        """Return whether two runs may have equal results."""
        if (one.seed, one.task) != (other.seed, other.task):
            return False
        return one.spec == other.spec or self._alike(one, other)


def path_text(path: Path) -> str:
    return shown(str(path)).replace(": ", ":")


def _digest(value: object) -> bytes:
    return blake2b(repr(value).encode(), digest_size=16).digest()


def _unequal(own: Sequence[tuple[Path, Any]], same: Same) -> Iterator[tuple[Path, Path]]:
    """Yield (path, path of another value) for each, if not all values are the same as the first."""
    (first, value), *rest = own
    others = [path for path, each in rest if not same(value, each)]
    if others:
        apart = {*others}
        yield from ((path, first if path in apart else others[0]) for path, _ in own)


def _near(curves: Sequence[Curve]) -> Iterator[tuple[Path, Path]]:
    """Yield (path, path of a near curve): curves of two seeds, nearer than chance brings them.

    Curves that hardly change are near by chance, as on a task that no run learns. Only those are
    compared that are near at the last point.
    """
    curves = sorted(curves, key=lambda curve: curve.losses[-1])
    losses, seeds = np.array([c.losses for c in curves]), np.array([c.seed for c in curves])
    scores = np.unique([c.scores.hex() for c in curves], return_inverse=True)[1]
    spread, last = np.ptp(losses, 1), losses[:, -1]
    partner = np.full(len(curves), -1)
    for at, stop in enumerate(np.searchsorted(last, last / (1 - MOST_NEAR), "right")):
        there = np.arange(at + 1, stop)
        there = there[seeds[there] != seeds[at]]
        slack = np.where(scores[there] == scores[at], MOST_NEAR, NEAR)
        for column in losses.T[::-1]:
            if not len(there):
                break
            top = np.minimum(np.maximum(column[there], column[at]), spread[there])
            close = abs(column[there] - column[at]) <= slack * np.minimum(top, spread[at])
            there, slack = there[close], slack[close]
        if len(there):
            partner[there[partner[there] < 0]] = at
            partner[at] = there[0] if partner[at] < 0 else partner[at]
    for at in np.flatnonzero(partner >= 0):
        yield curves[at].path, curves[partner[at]].path


def _telling(scores: Sequence[Score]) -> tuple[object, ...]:
    """Return scores that no two runs share by chance: longer answers, partly right, twice."""
    found = tuple(
        NUMBERS(one)
        for one in scores
        if (one.tokens or 0) > 2 * (one.count or 0)
        and TELLING <= (one.correct or 0) <= (one.count or 0) - TELLING
    )
    return found if len(found) > 1 else ()
