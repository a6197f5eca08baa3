"""The parts of a table: a row per encoding, a point per length, and short names.

An encoding with many options is shown as its name and a letter, with a legend.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from statistics import fmean
from string import ascii_lowercase

from leaderboard.stats.intervals import Stat
from pezoo.spec import bare

LONGEST = 24  # letters of a name that is shown as it is
EXACT, TOKENS, BITS = "exact match", "token accuracy", "bits per byte"  # fewer bits are better
MEASURES = {"decoder": (EXACT, TOKENS), "encoder": (TOKENS, EXACT), "text": (BITS, TOKENS)}
BIT_STEP = 0.001  # the last digit of bits that pages show
PASS = 0.9  # what a seed needs to pass a length
SOLVED = 0.8  # of the seeds pass a length that counts: 4 of 5
SEEDS = 3  # at least, for a task to count as solved
NOT_LEARNED = "not learned"


@dataclass(frozen=True, kw_only=True)
class Point:
    """One encoding at one length, over its seeds.

    `status` is "ok", or words to show instead of a number: "cannot represent", "no instance",
    "not tested", "failed"; NOT_LEARNED beyond training where the training length is not learned.
    """

    length: int
    seen: bool  # in training
    status: str = "ok"
    main: Stat | None = None  # of the row's metric
    median: float | None = None
    beside: float | None = None  # the mean of its other measure
    seeds: tuple[tuple[int, float], ...] = ()  # (seed, the metric)
    correct: int = 0  # whole answers, over all seeds
    count: int = 0
    gain: float | None = None  # of text: bits saved by context beyond the training length
    gain_error: float | None = None  # its standard error over the texts, which seeds share
    gain_half: float | None = None  # half of its 95 % interval
    saved: int = 0  # seeds that such context saves bits, by a paired test
    ends: float | None = None  # the share of the scored tokens that end an answer


@dataclass(frozen=True, kw_only=True)
class Row:
    """One encoding in one table.

    `reach` is the effective length: the longest tested length, as a multiple of the training
    length, up to which SOLVED of the seeds pass every tested length from the training length on; of
    text, up to which context beyond the training length saves bits, by a paired test. None where
    the row has not `learned`; 0 for an evaluation mode that fails at the training length.
    `reach_open`: every tested length passed, so the true reach may be larger.

    `learned`: SOLVED of the seeds pass the longest training length, in the mode of training.
    """

    protocol: str
    task: str
    settings: str  # a hash; equal only where runs may be compared
    track: str = "decoder"
    encoding: str
    spec: str
    version: str
    label: str = ""
    mode: str = ""  # the evaluation mode, where it is not the one of training
    apart: str = ""  # as "seeds 40-44": seeds that few encodings of the table have
    receives: str = ""  # "oracle", "control", or what it receives besides the sequence: no rank
    custom: bool = False  # options were typed with the name: it was tuned by hand
    train_length: int
    cells: tuple[Point, ...]
    unseen: Stat | None  # the metric over the lengths beyond training
    unseen_note: str | None  # why there is no such mean
    unseen_beside: float | None
    by_seed: tuple[tuple[int, float], ...]  # each seed's mean over the unseen lengths
    step: float  # what one more right answer adds to such a mean, at most; of bits BIT_STEP
    rank: int | None = None  # by `unseen`
    ranks: tuple[int, int] | None = None  # first and last place that the tests leave possible
    learned: bool
    reach: float | None
    reach_open: bool
    steps_until_learned: float | None  # until validation is .98, median over seeds
    trained: float | None  # exact match over all training lengths, at the last step
    steps_per_second: float | None
    cpu_seconds: float | None
    cpu_range: tuple[float, float] | None = None  # least and most of a seed
    peak_memory_mb: float | None
    parameters: int | None
    encoding_parameters: int | None
    seeds: tuple[int, ...]  # of the runs that are done
    failures: tuple[tuple[int, str], ...]  # (seed, reason)
    runs: tuple[str, ...]
    notes: tuple[str, ...]
    decoded: bool = False  # scored by decoding token by token
    tried: tuple[str, ...] = ()  # in a table of tuned encodings: the settings to choose from
    chosen: str = ""
    tuning_seconds: float | None = None  # CPU-seconds of the sweep

    def at(self, length: int) -> Point | None:
        """Return its results at a length."""
        return next((cell for cell in self.cells if cell.length == length), None)

    def reached(self, length: int) -> tuple[int, int]:
        """Count the seeds that pass a length, and all seeds; 0 of 0 where it was not tested."""
        cell = self.at(length)
        if cell is None or cell.status not in ("ok", NOT_LEARNED):
            return 0, 0
        return passing(cell, self.track), self.every_seed

    def mean_at(self, length: int) -> float | None:
        """Return the mean of its main measure at a length."""
        cell = self.at(length)
        return cell.main.mean if cell and cell.main else None

    @property
    def aside(self) -> str:
        """The mode and seeds that set it apart from its encoding's ranked row, or ""."""
        return ", ".join(words for words in (self.mode, self.apart) if words)

    @property
    def competes(self) -> bool:
        """True for a ranked row: no typed options, the training mode, seeds that count."""
        return not self.custom and not self.aside

    @property
    def set_apart(self) -> bool:
        """True for a row that others are ranked and tested without."""
        return not self.competes or bool(self.receives)

    @property
    def plain(self) -> str:
        """The label of its encoding's ranked row."""
        return self.label.removesuffix(f" ({self.aside})")

    @property
    def every_seed(self) -> int:
        """Number of seeds, with those whose runs all failed."""
        return len({*self.seeds, *(seed for seed, _ in self.failures)})

    @property
    def unlearned(self) -> bool:
        """True where runs are done, but too few seeds pass the training length."""
        return bool(self.seeds) and not self.learned

    @property
    def tiebreak(self) -> float:
        """Sort key of rows with equal means, and of rows without a mean."""
        return self.reach or 0

    @property
    def metric(self) -> str:
        """The compared measure: whole answers of decoders, tokens of encoders, bits of text."""
        return MEASURES[self.track][0]

    @property
    def in_bits(self) -> bool:
        """True for bits, of which fewer are better."""
        return in_bits(self.track)

    @property
    def other(self) -> str:
        """The other measure."""
        return MEASURES[self.track][1]


@dataclass(frozen=True, kw_only=True)
class Line:
    """One encoding over the tasks of one protocol, in the order of `leaderboard.stats.overview`.

    `unseen` is the mean over the tasks that count, None unless each of them has a number.
    """

    label: str
    rows: tuple[Row | None, ...]  # by task; None: not run
    counts: tuple[bool, ...]  # by task: whether it enters the mean
    unseen: Stat | None
    by_seed: tuple[tuple[int, float], ...]  # of the seeds that all of these tasks have
    step: float
    rank: int | None = None
    ranks: tuple[int, int] | None = None

    @property
    def own(self) -> tuple[Row, ...]:
        """The tasks that were run."""
        return tuple(row for row in self.rows if row is not None)

    @property
    def custom(self) -> bool:
        return self.own[0].custom

    @property
    def aside(self) -> str:
        return self.own[0].aside

    @property
    def receives(self) -> str:
        return self.own[0].receives

    @property
    def competes(self) -> bool:
        return self.own[0].competes

    @property
    def set_apart(self) -> bool:
        return self.own[0].set_apart

    @property
    def encoding(self) -> str:
        return self.own[0].encoding

    @property
    def in_bits(self) -> bool:
        return self.own[0].in_bits

    @property
    def plain(self) -> str:
        return self.label.removesuffix(f" ({self.aside})")

    @property
    def main(self) -> tuple[Row, ...]:
        """The tasks that were run, of those that count."""
        both = zip(self.rows, self.counts, strict=True)
        return tuple(row for row, counts in both if counts and row is not None)

    @property
    def counted(self) -> int:
        """Number of counting tasks that have a mean."""
        return sum(row.unseen is not None for row in self.main)

    @property
    def reciprocal_rank(self) -> float | None:
        """The mean over the tasks that count of 1 / rank; None without a rank on each of them."""
        ranks = [row.rank for row in self.main if row.rank is not None]
        if self.unseen is None or len(ranks) < sum(self.counts):
            return None
        return fmean(1 / rank for rank in ranks)

    @property
    def learned(self) -> int:
        """Number of tasks that it has learned."""
        return sum(row.learned for row in self.own)

    @property
    def tiebreak(self) -> float:
        """Sort key of lines with equal means, and of lines without a mean."""
        return self.learned


@dataclass(frozen=True)
class Points:
    """A curve that is not a row of a table; `length` is the position on its axis."""

    label: str
    cells: tuple[Point, ...]
    metric: str
    train_length: int | None  # None: no place on the axis
    mode: str = ""


def passing(cell: Point, track: str) -> int:
    """Count the seeds that pass a length; of text, those that longer context saves bits."""
    if track == "text":
        return cell.saved
    return sum(value >= PASS - 1e-9 for _, value in cell.seeds)


def enough(passed: int, seeds: int) -> bool:
    """Return whether SOLVED of the seeds pass."""
    return seeds > 0 and passed >= SOLVED * seeds - 1e-9


def in_bits(track: str) -> bool:
    """Return True if the compared measure is bits, of which fewer are better."""
    return MEASURES[track][0] == BITS


def top(track: str) -> float:
    """Return the largest value that the compared measure may have."""
    return inf if in_bits(track) else 1.0


def merit(row: Row | Line) -> float:
    """Return the mean, negative where less is better; -inf without a mean."""
    if row.unseen is None:
        return -inf
    return -row.unseen.mean if row.in_bits else row.unseen.mean


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
