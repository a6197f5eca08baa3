"""Advice of the page "Which one?": what solves the tasks of a kind, over the records of every
protocol."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from urllib.parse import urlencode

from leaderboard.catalog import Catalog
from leaderboard.render.front import CHOSEN, ENOUGH, GENERAL, Entry, TaskFront, family_of
from leaderboard.stats.ranks import ALIKE, BETTER, WORSE, matrix
from leaderboard.stats.rows import SEEDS, merit
from leaderboard.stats.tables import Table
from pezoo.spec import bare

CHEAP = 1.25  # times the cost of the reference, and costs so close are equal
CLOSE = 0.05  # bits at the far length
BUDGETS = {"any": "any", "low": "at most 1.25 times rope's training"}
DECODER, ENCODER, EXTENDED = "decoder", "encoder", "extended"
EVERY = "every kind"
QUESTIONS = {  # of the first screen
    "have a model trained with RoPE and longer texts": (EXTENDED, "text", "any"),
    "train on text, and read longer ones": (DECODER, "text", "any"),
    "look things up in the prompt": (DECODER, "retrieval", "any"),
    "train on algorithms, for example copying": (DECODER, "copying", "any"),
    "do not want to pay more than for rope": (DECODER, EVERY, "low"),
}


@dataclass(frozen=True)
class Verdict:
    """One task: the encodings that solve it, by seeds, then by cost; or the best, where none does.

    Of bits, those that have the fewest or are not told from these by a paired test solve it.

    `alike` are the others that a paired test does not tell from the best, cheapest first; None
    where the best was compared with no other. `tested` counts encodings, `learned` those that have
    learned the task; `typed` is one with typed options and a better mean.
    """

    one: TaskFront
    solvers: tuple[Entry, ...]
    best: Entry | None
    alike: tuple[Entry, ...] | None
    tested: int
    learned: int
    typed: Entry | None

    @property
    def merit(self) -> tuple[float, ...]:
        """Sort key, best last: protocols that show more come later."""
        seeds = min(ENOUGH, self.solvers[0].far[0]) if self.solvers else 0
        return seeds, (self.best and self.best.row.reach) or 0, self.learned, self.tested


@dataclass(frozen=True)
class Answer:
    """Encodings for a kind of task: `use` solve most of the tasks that half of all ran, on most
    seeds, cheapest first; `dearer` as many, at more than CHEAP times the cost."""

    model: str
    family: str
    budget: str
    verdicts: tuple[Verdict, ...]
    use: tuple[Entry, ...]
    dearer: tuple[Entry, ...]

    @property
    def solved(self) -> list[tuple[Verdict, Entry]]:
        """The tasks that the first of `use` solves."""
        return [
            (verdict, entry)
            for verdict in self.verdicts
            for entry in verdict.solvers
            if entry.row.label == self.use[0].row.label
        ]


def answers(tables: Sequence[Table], catalog: Catalog) -> Iterator[Answer]:
    """Yield the answers, by kind of model and task; those that solve most first."""
    kinds: dict[tuple[str, str], list[TaskFront]] = defaultdict(list)
    for table in tables:
        model = ENCODER if table.of_encoders else DECODER
        model = EXTENDED if table.first.config.start else model
        one = TaskFront(table, catalog)
        kinds[model, family_of(table, catalog)].append(one)
        if model == DECODER:
            kinds[model, EVERY].append(one)
    every = [
        _answer(model, family, budget, tasks)
        for (model, family), tasks in sorted(kinds.items())
        for budget in (BUDGETS if model != EXTENDED else ("any",))
    ]
    yield from sorted(every, key=lambda own: (own.model, -len(own.solved) if own.use else 0))


@dataclass(frozen=True)
class Advice:
    """One line of the first screen: who asks, and the answer; None without records."""

    question: str
    answer: Answer | None

    @property
    def address(self) -> str:
        own = self.answer
        where = {"model": own.model, "kind": own.family, "budget": own.budget} if own else {}
        return f"which.html#{urlencode(where or {'model': EXTENDED})}"


def advice(found: Sequence[Answer]) -> list[Advice]:
    """Return the lines of the first screen."""
    by_kind = {(own.model, own.family, own.budget): own for own in found}
    return [Advice(words, by_kind.get(kind)) for words, kind in QUESTIONS.items()]


def _answer(model: str, family: str, budget: str, tasks: Sequence[TaskFront]) -> Answer:
    found: dict[str, list[Verdict]] = defaultdict(list)
    for one in tasks:
        # Models that were extended by other protocols differ; else one protocol shows a task best.
        key = f"{one.table.base} {one.task}" if model == EXTENDED else bare(one.task)
        found[key].append(_verdict(one, budget))
    verdicts = tuple(max(own, key=lambda verdict: verdict.merit) for own in found.values())
    # Tasks that few encodings ran decide where no other is solved.
    least = max(verdict.tested for verdict in verdicts) / 2
    wide = [one for one in verdicts if one.tested >= least and one.solvers] or verdicts
    by_label: dict[str, list[Entry]] = defaultdict(list)
    for entry in (entry for verdict in wide for entry in verdict.solvers):
        by_label[entry.row.label].append(entry)

    def solved(own: Sequence[Entry]) -> tuple[int, int]:
        passed = (min(ENOUGH, entry.far[0]) for entry in own if not entry.row.in_bits)
        return len(own), sum(passed)

    most = max(map(solved, by_label.values()), default=None)
    leaders = sorted((own[0] for own in by_label.values() if solved(own) == most), key=_cheaper)
    limit = CHEAP * (leaders[0].cost or inf) if leaders else inf
    if model == EXTENDED:  # which is not trained
        limit, leaders = inf, sorted(leaders, key=lambda entry: entry.bits or inf)
    use = [entry for entry in leaders if (entry.cost or inf) <= limit]
    dearer = [entry for entry in leaders if entry not in use]
    return Answer(model, family, budget, verdicts, tuple(use), tuple(dearer))


def _verdict(one: TaskFront, budget: str) -> Verdict:
    """Judge the encodings of a table whose cost fits the budget."""
    every = [entry for entry in one.of(GENERAL, CHOSEN) if _fits(entry, budget) and entry.row.seeds]
    solvers = [entry for entry in every if entry.solves and not entry.row.in_bits]
    solvers.sort(key=lambda entry: (-entry.far[0], _cheaper(entry)))
    learned = [entry for entry in every if entry.row.unseen and not entry.row.unlearned]
    sure = [entry for entry in learned if len(entry.row.seeds) >= SEEDS] or learned
    best = next(iter(sure), None)
    alike = _alike(one, best, sure) if best else None
    if best and best.row.in_bits:  # of bits there are only fewer and more
        solvers = [best, *(alike or ())]
    typed = max(one.with_options, key=lambda entry: entry.merit, default=None)
    better = typed and typed.row.learned and (not best or merit(typed.row) > merit(best.row))
    return Verdict(
        one, tuple(solvers), best, alike, len(every), len(learned), typed if better else None
    )


def _alike(one: TaskFront, best: Entry, others: Sequence[Entry]) -> tuple[Entry, ...] | None:
    rows = [row for row in one.table.rows if row.competes]
    found = matrix(rows)
    words = next((own for row, own in found if row.label == best.row.label), [])
    signs = {row.label: word for (row, _), word in zip(found, words, strict=False)}
    if not any(sign in (BETTER, WORSE, ALIKE) for sign in signs.values()):
        return None
    like = [entry for entry in others if signs.get(entry.row.label) == ALIKE]
    if best.bits is not None:  # the test is of the mean over lengths
        like = [entry for entry in like if (entry.bits or inf) <= best.bits + CLOSE]
    return tuple(sorted(like, key=_cheaper))


def _cheaper(entry: Entry) -> tuple[float, str]:
    return entry.cost or inf, entry.row.label


def _fits(entry: Entry, budget: str) -> bool:
    return budget == "any" or (entry.cost or inf) <= CHEAP
