"""Every encoding in one table: what it is, what it costs, and how far it carries on."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean

from tabulate import tabulate

from leaderboard.catalog import Catalog, ClassDoc
from leaderboard.escape import markdown_text
from leaderboard.render.front import CHOSEN, ENOUGH, Entry, TaskFront, by_family
from leaderboard.stats.costs import Measured, by_encoding
from leaderboard.stats.overview import overview, with_column
from leaderboard.stats.rows import NOT_LEARNED
from leaderboard.stats.tables import Table
from leaderboard.text import fewer, receives_text
from pezoo.spec import bare

# The part of attention that a hook changes, first match first.
PARTS = {
    "weights": "softmax",
    "scores": "logits, replaced",
    "bias_form": "logits",
    "bias": "logits",
    "transform": "queries, keys",
    "embed": "embeddings",
}
# How a fused kernel computes the encoding, by the same hooks.
FUSED = {
    "weights": "no", "ways": "passes", "scores": "no",
    "bias_form": "score_mod", "bias": "dense bias",
}  # fmt: skip

LEGEND = {  # what the columns hold
    "rows": "in the order of the first protocol's table; what receives a hint, oracles and "
    "controls last",
    "kinds of tasks": "means over the tasks of a kind in the first protocol that has it; raised: "
    "seeds, where a task has fewer than five; (3 of 5): over the tasks that it has learned",
    "training, decoding": "time of a step, and of one more token with a cache, over rope's, as "
    "`pezoo perf` measures it in quick",
    "own parameters": "those of the encoding in quick, else in the first protocol with runs",
    "cache": "decoding with a key-value cache equals the full pass",
    "flash": "yes: FlashAttention computes it; score_mod: FlexAttention does; passes: it "
    "does, once for each product; dense bias: it needs a tensor of all pairs; no: it does not "
    "reduce to a bias",
    "-": "not run, not tested that far, not representable; or it depends on what is wrapped",
}


@dataclass(frozen=True)
class Choice:
    """One encoding: its classes, outermost first, and its results by kind of task."""

    label: str
    parts: tuple[ClassDoc, ...]
    results: Mapping[str, Sequence[Entry]]

    @property
    def entries(self) -> list[Entry]:
        return [one for own in self.results.values() for one in own]

    def cells(self, families: Sequence[str], costs: Mapping[str, Measured]) -> dict[str, str]:
        """Return the cells by head; sizes are those of the first protocol that has them."""
        hooks = {hook for part in self.parts for hook in part.hooks}
        changed = "; ".join(dict.fromkeys(w for hook, w in PARTS.items() if hook in hooks))
        fused = next((how for hook, how in FUSED.items() if hook in hooks), "yes")
        if any(part.wraps for part in self.parts):  # its hooks call those of another
            changed = next((part.changes for part in self.parts if part.changes), "-")
            fused = {"softmax": "no", "logits": "dense bias"}.get(changed, "-")
        cost = costs.get(self.label)
        size = next((entry.row.encoding_parameters for entry in self.entries), None)
        marked = any(entry.group == CHOSEN for entry in self.entries)
        told = next((receives_text(entry.row) for entry in self.entries), "")
        return {
            "encoding": self.label + " †" * marked + told,
            **{family: _shown(self.results.get(family, ())) for family in families},
            "training": f"{cost.train:.1f}x" if cost else "-",
            "decoding": f"{cost.decode[0]:.1f}x" if cost and cost.decode else "-",
            "own parameters": "-" if size is None else f"{size:,}",
            "reads": ", ".join(dict.fromkeys(part.reads for part in self.parts if part.reads)),
            "changes": changed or "nothing",
            "cache": "yes" if all(part.prefix_stable for part in self.parts) else "no",
            "flash": fused,
            "its paper reports": self.parts[0].reports if self.parts else "",
        }


def choices(tables: Sequence[Table], catalog: Catalog) -> list[dict[str, str]]:
    """Return the cells of each encoding by head, by the records of decoders.

    A kind of task counts in the first protocol that has it. LEGEND has the order of encodings.
    """
    decoders = [table for table in tables if not table.of_encoders]
    main = with_column(decoders)
    own = by_family(main, catalog)
    others = by_family([table for table in decoders if table not in main], catalog)
    costs = by_encoding()
    first = overview([table for table in main if table.base == decoders[0].base])
    places = {line.label: at for at, line in enumerate(first)}

    def order(one: Choice) -> tuple[object, ...]:
        told = any(entry.row.receives for entry in one.entries)
        return told, not one.entries, places.get(one.label, len(places)), one.label

    rows = sorted(_choices(own, others, catalog), key=order)
    return [row.cells([*own | others], costs) for row in rows]


def as_markdown(rows: Sequence[dict[str, str]]) -> str:
    """Return the rows as a table."""
    cells = [row | {"encoding": markdown_text(row["encoding"])} for row in rows]
    return tabulate(cells, "keys", tablefmt="pipe", disable_numparse=True)


def _choices(
    families: Mapping[str, Sequence[TaskFront]],
    others: Mapping[str, Sequence[TaskFront]],
    catalog: Catalog,
) -> Iterator[Choice]:
    """Yield the encodings with runs, then the classes of the catalog without.

    One that ran with options alone stands with these; one that ran only `others`, with those.
    """
    found: dict[str, dict[str, list[Entry]]] = {}
    known: set[str] = set()  # of what counts more
    for part, kind in product((families, others), ("entries", "with_options")):
        every = [
            (name, one) for name, tasks in part.items() for t in tasks for one in getattr(t, kind)
        ]
        new = [(name, one) for name, one in every if bare(one.row.encoding) not in known]
        for family, entry in new:
            found.setdefault(entry.row.label, {}).setdefault(family, []).append(entry)
        known |= {bare(entry.row.encoding) for _, entry in new}
    ran: set[str] = set()
    for label, results in found.items():
        encoding = next(iter(results.values()))[0].row.encoding
        parts = tuple(catalog.parts(encoding))
        ran |= {part.cls for part in parts[:1]}
        yield Choice(label, parts, results)
    rest = {doc.cls: doc for doc in reversed(catalog.encodings.values()) if doc.cls not in ran}
    for doc in rest.values():
        yield Choice(doc.name, (doc,), {})


def _mean(results: Sequence[Entry], at: int) -> float | None:
    """Return the mean over the tasks that it has learned, at the near (0) or the far length; None
    if one of these has no score."""
    scores = [one.means[at] for one in results if not one.row.unlearned]
    return None if not scores or None in scores else fmean(scores)


def _shown(results: Sequence[Entry]) -> str:
    """Return the means at the near and the far length: `55 / 0 ³` in percent, of a text bits.

    `55 / 0 ³ (3 of 5)` where they are over the 3 tasks that it has learned, of 5.
    """
    text = any(one.row.in_bits for one in results)
    means = [_mean(results, at) for at in (0, 1)]
    learned = [one for one in results if not one.row.unlearned]
    if None in means:
        return NOT_LEARNED if results and not learned else "-"
    near, far = (f"{mean:.2f}" if text else f"{100 * mean:.0f}" for mean in means)
    fewest = min((one.row for one in results), key=lambda row: len(row.seeds))
    far = "-" if all(one.ends_near for one in results) else far
    some = f"({len(learned)} of {len(results)})" * (len(learned) < len(results))
    return " ".join(part for part in (near, "/", far, fewer(fewest, ENOUGH), some) if part)
