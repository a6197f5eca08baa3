"""Answers of the page "Which one?": one sentence for a kind of task and a budget."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import inf
from statistics import fmean

from leaderboard.catalog import Catalog
from leaderboard.render.front import CHOSEN, GENERAL, Entry, TaskFront
from leaderboard.render.styles import SETTINGS
from leaderboard.stats.costs import by_encoding
from leaderboard.stats.ranks import BETTER, matrix
from leaderboard.stats.tables import Table
from pezoo.spec import bare

CHEAP = 1.25  # times the cost of the reference
ENOUGH = 5  # seeds: fewer lose to as many
BUDGETS = {"any": "any", "low": "at most 1.25 times rope's training"}


@dataclass(frozen=True)
class Answer:
    """The encoding for a kind of task: what it does on each task of one protocol, best first.

    `own` is () where no encoding has such a cost.
    """

    family: str
    budget: str
    own: tuple[tuple[TaskFront, Entry], ...]

    @property
    def entry(self) -> Entry:
        return self.own[0][1]

    @property
    def cost(self) -> float | None:
        return _cost(self.entry)

    @property
    def solved(self) -> list[tuple[TaskFront, Entry]]:
        return [(one, entry) for one, entry in self.own if entry.solves and entry.bits is None]

    @property
    def unsolved(self) -> list[TaskFront]:
        """The tasks of the kind that it does not solve."""
        return [one for one, entry in self.own if not entry.solves]

    @property
    def rivals(self) -> int:
        """The number of encodings with as many seeds and such a cost on the first task."""
        entries = self.own[0][0].of(GENERAL, CHOSEN)
        return sum(_seeds(one) >= _seeds(self.entry) and _fits(one, self.budget) for one in entries)

    @property
    def beaten(self) -> list[str]:
        """The encodings that paired tests find worse on the first task."""
        found = matrix([row for row in self.own[0][0].table.rows if row.competes])
        words = next((own for row, own in found if row.label == self.entry.row.label), [])
        return [row.label for (row, _), word in zip(found, words, strict=False) if word == BETTER]

    @property
    def marked(self) -> bool:
        """True where the encoding's options were chosen on one of the tasks."""
        return any(entry.group == CHOSEN for _, entry in self.own)


def _seeds(entry: Entry) -> int:
    return min(len(entry.row.seeds), ENOUGH)


def _cost(entry: Entry) -> float | None:
    """Return the cost of training in the entry's protocol, else the measured one."""
    known = by_encoding().get(entry.row.label)
    return entry.cost or (known and known.train)


def _fits(entry: Entry, budget: str) -> bool:
    return budget == "any" or (_cost(entry) or CHEAP + 1) <= CHEAP


def by_family(tables: Sequence[Table], catalog: Catalog) -> dict[str, list[TaskFront]]:
    """Return the tasks of each kind; a kind counts in the first protocol that has it.

    Those with a tab on the first screen come first.
    """
    families: dict[str, list[TaskFront]] = {}
    tabs = [*SETTINGS["tabs"]]
    first = sorted(tables, key=lambda table: table.base not in tabs)
    for _, own in groupby(first, key=lambda table: table.base):
        found: dict[str, list[TaskFront]] = defaultdict(list)
        for table in own:
            task = catalog.tasks.get(bare(table.first.task))
            found[(task and task.family) or "other"].append(TaskFront(table, catalog))
        for family, tasks in found.items():
            families.setdefault(family, tasks)
    return families


def answers(tables: Sequence[Table], catalog: Catalog) -> Iterator[Answer]:
    """Yield the answers, by kind of task."""
    every = [
        Answer(family, budget, _best(tasks, budget))
        for family, tasks in sorted(by_family(tables, catalog).items())
        for budget in BUDGETS
    ]
    yield from sorted(every, key=lambda answer: -len(answer.solved))


def _best(tasks: Sequence[TaskFront], budget: str) -> tuple[tuple[TaskFront, Entry], ...]:
    """Return the tasks of the encoding that solves most of them; () if none has learned one.

    Fewer than ENOUGH seeds lose to more. Among those that solve as many with as many seeds, the
    cheapest; where none is solved, the best mean to a hundredth, then the cheapest.
    """
    by_label: dict[str, list[tuple[TaskFront, Entry]]] = defaultdict(list)
    for one in tasks:
        for entry in one.of(GENERAL, CHOSEN):
            if _fits(entry, budget):
                by_label[entry.row.label].append((one, entry))

    def merit(own: list[tuple[TaskFront, Entry]]) -> tuple[float, ...]:
        seeds = min(_seeds(entry) for _, entry in own)
        cheap = -round(_cost(own[0][1]) or inf, 1)
        if own[0][1].row.in_bits:
            bits = [entry.bits for _, entry in own if entry.bits is not None]
            mean = -fmean(bits or [inf])
            return len(bits), seeds, round(mean, 2), cheap, mean
        mean = sum(entry.row.unseen.mean for _, entry in own if entry.row.unseen)
        solved = sum(entry.solves for _, entry in own)
        rest = (cheap, mean) if solved else (round(mean, 2), cheap, mean)
        return seeds, solved, *rest

    learned = [own for own in by_label.values() if not all(one.row.unlearned for _, one in own)]
    best = max(learned, key=merit, default=[])
    return tuple(sorted(best, key=lambda pair: pair[1].merit, reverse=True))
