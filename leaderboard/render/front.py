"""The first screen: how far the encodings of a protocol carry on, and at what cost."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from math import inf

from leaderboard.catalog import CONTROL, ORACLE, Catalog
from leaderboard.charts.styles import SETTINGS, usual
from leaderboard.stats.costs import training_costs
from leaderboard.stats.overview import chosen
from leaderboard.stats.rows import PASS, SEEDS, Row, enough, merit
from leaderboard.stats.tables import Table
from leaderboard.text import span_text, times
from pezoo.spec import bare

GENERAL, CHOSEN, TOLD = "general", "options chosen on this task †", "given a hint"
ROWS = 12  # of the table of a task
ENOUGH = 5  # seeds: more do not count for more
NEAR, FAR = 2, 10  # test lengths, as multiples of the training length


@dataclass(frozen=True)
class Entry:
    """One encoding on one task: (seeds that pass, all seeds) at a near and a far length."""

    row: Row
    group: str
    near: tuple[int, int]
    far: tuple[int, int]
    cost: float | None  # of training, relative to the reference's
    means: tuple[float | None, float | None]  # at both: a share of right answers, or bits of text
    multiple: float  # the far length over the training length
    ends_near: bool  # no length beyond the near one is tested

    @property
    def near_bits(self) -> float | None:
        return self.means[0] if self.row.in_bits else None

    @property
    def bits(self) -> float | None:
        """Bits per byte of a text at the far length."""
        return self.means[1] if self.row.in_bits else None

    @property
    def solves(self) -> bool:
        """True if enough of three or more seeds pass, at the far length and at all before it."""
        if self.far[1] < SEEDS:
            return False
        if self.row.in_bits:
            return enough(*self.far)
        return (self.row.reach or 0) >= self.multiple - 1e-9

    @property
    def merit(self) -> tuple[float, ...]:
        """Sort key, best last: SEEDS, reach, seeds that pass, mean, and the cheaper of two."""
        mean = merit(self.row)
        if self.row.in_bits:
            return (-inf if self.bits is None else -self.bits,)
        reach = len(self.row.seeds) >= SEEDS, self.row.reach or 0.0
        return *reach, self.far[0], self.near[0], round(mean, 2), -(self.cost or 0.0), mean


class TaskFront:
    """One task on the first screen."""

    def __init__(self, table: Table, catalog: Catalog) -> None:
        self.table, self.task = table, table.first.task
        train = table.first.train_length
        lengths = [cell.length for cell in table.rows[0].cells] or [train]
        self.near = next((n for n in lengths if n >= NEAR * train), lengths[-1])
        most = inf if table.rows[0].in_bits else FAR * train
        self.far = max((n for n in lengths if n <= most), default=lengths[-1])
        self.far -= self.far - 1 in lengths and self.far % train > 0  # 100, of 100 and 101
        self.heads = [times(n / train) for n in (self.near, self.far)]
        marks = chosen([table], catalog)
        costs = training_costs(table, SETTINGS["reference"])

        def entry(row: Row) -> Entry:
            return Entry(
                row,
                _group(row, row.label in marks),
                *(row.reached(n) for n in (self.near, self.far)),
                costs.get(row.label),
                (row.mean_at(self.near), row.mean_at(self.far)),
                self.far / train,
                self.near == self.far,
            )

        found = [entry(row) for row in table.rows if row.competes]
        self.entries = sorted(found, key=lambda entry: entry.merit, reverse=True)
        self.with_options = [entry(row) for row in table.rows if row.custom and not row.aside]

    def of(self, *groups: str) -> list[Entry]:
        """Return the entries of these groups, best first."""
        return [entry for entry in self.entries if entry.group in groups]

    @cached_property
    def shown(self) -> list[tuple[str, list[Entry]]]:
        """The best of each group, and the reference, in ROWS lines."""
        best = {group: self.of(group)[:1] for group in (CHOSEN, TOLD, ORACLE)}
        general, room = self.of(GENERAL), ROWS - sum(map(len, best.values()))
        reference = [one for one in general[room:] if one.row.label == SETTINGS["reference"]]
        return [(GENERAL, general[: room - len(reference)] + reference), *best.items()]

    @property
    def fewest(self) -> float:
        """The fewest bits of an encoding, which are the darkest."""
        bits = [entry.bits for entry in self.entries if entry.bits]
        return min(bits, default=1.0)

    @property
    def curves(self) -> list[Row]:
        """The rows of its chart."""
        rows = [entry.row for _, entries in self.shown for entry in entries]
        return usual([row for row in rows if any(cell.main for cell in row.cells)], self.table.rows)


class Front:
    """The first screen of one protocol: a tab."""

    def __init__(self, tables: Sequence[Table], names: Mapping[str, str], catalog: Catalog) -> None:
        first = tables[0].first
        self.names, self.base = names, tables[0].base
        self.tasks = [TaskFront(table, catalog) for table in tables]
        # The task that most runs solve comes first.
        self.tasks.sort(key=lambda one: (-sum(e.far[0] for e in one.entries), one.task))
        encoders, self.text = tables[0].of_encoders, first.config.track == "text"
        self.title = SETTINGS["tabs"].get(self.base, "Encoders: " * encoders + self.base)
        unit = SETTINGS["units"].get(self.base, "symbols")
        ends = Counter((one.table.first.train_length, one.far) for one in self.tasks)
        train, far = ends.most_common(1)[0][0]
        self.headline = (
            f"Train on {train} {unit}, test on {far:,}: which positional encoding still works?"
        )
        every = [e for one in self.tasks for e in one.of(GENERAL, CHOSEN, TOLD)]
        ran = {entry.row.label for entry in every if entry.row.seeds}
        seeds = span_text(
            len(e.row.seeds) for one in self.tasks for e in one.entries if e.row.seeds
        )
        model, passes = first.config.model, _passing(train, encoders, self.text)
        self.setting = (
            f"{len(ran)} encoding{'s' * (len(ran) != 1)} in the same Transformer ({model.layers} "
            f"layers, width {model.width}), {len(tables)} task{'s' * (len(tables) > 1)}, {seeds} "
            f"seed{'s' * (seeds != '1')} each. A seed passes {passes}."
        )


def _passing(train: int, encoders: bool, text: bool) -> str:
    """Say when a seed passes a length."""
    if text:
        return f"where context beyond {train} bytes saves bits, by a paired test"
    return f"with {100 * PASS:.0f} % {'token accuracy' if encoders else 'whole answers right'}"


def fronts(
    parts: Sequence[Sequence[Table]], names: Mapping[str, str], catalog: Catalog
) -> Iterator[Front]:
    """Yield the tab of each protocol."""
    for tables in parts:
        if any(row.competes for table in tables for row in table.rows):
            yield Front([t for t in tables if any(r.competes for r in t.rows)], names, catalog)


def _group(row: Row, marked: bool) -> str:
    if row.receives:
        return row.receives if row.receives in (ORACLE, CONTROL) else TOLD
    return CHOSEN if marked else GENERAL


def family_of(table: Table, catalog: Catalog) -> str:
    """Return the kind of a table's task."""
    task = catalog.tasks.get(bare(table.first.task))
    return (task and task.family) or "other"


def by_family(tables: Sequence[Table], catalog: Catalog) -> dict[str, list[TaskFront]]:
    """Return the tasks of each kind; a kind counts in the first protocol that has it.

    Those with a tab on the first screen come first; models that were extended are left out.
    """
    families: dict[str, list[TaskFront]] = {}
    tabs = [*SETTINGS["tabs"]]
    trained = [table for table in tables if not table.first.config.start]
    first = sorted(trained, key=lambda table: table.base not in tabs)
    for _, own in groupby(first, key=lambda table: table.base):
        found: dict[str, list[TaskFront]] = defaultdict(list)
        for table in own:
            found[family_of(table, catalog)].append(TaskFront(table, catalog))
        for family, tasks in found.items():
            families.setdefault(family, tasks)
    return families
