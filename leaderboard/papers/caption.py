"""Captions of filled tables, and commands for their empty cells."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import cache
from itertools import chain

from experiment.config import Settings
from leaderboard.papers.cells import Cell, Filled, counted
from leaderboard.papers.paper import PaperTable, lines_of
from leaderboard.stats.rows import PASS
from leaderboard.text import span_text
from pezoo.registry import parse
from pezoo.spec import Spec

# Settings that stand elsewhere in the caption, or change no result.
ELSEWHERE = {"train.lr", "train.checkpoint_every"}
ELSEWHERE |= {f"eval.{name}" for name in ("lengths", "curve_lengths", "every", "sets")}


def budgets(filled: Filled) -> list[str]:
    """Return the budget of the paper and of the runs, and each setting that differs."""
    lines = [f"Paper: {filled.paper.budget}.", f"Ours: {_ours(filled)}."]
    if changes := _changes(filled):
        protocol = filled.part.protocols[0]
        lines.append(f"Changed, with the values of protocol {protocol} in brackets: {changes}.")
    return lines


def _ours(filled: Filled) -> str:
    name, runs = filled.protocol.name, filled.runs
    if not runs:
        other = f"; {filled.others} of its records on these tasks have other settings or versions"
        return f"no record of protocol {name} fills a cell{other * bool(filled.others)}"
    at, samples = defaultdict[str, set[int]](set), set[int]()
    for run in runs:
        for score in counted(run, filled.part, filled.lengths):
            if score.count:
                at[run.task].add(score.length)
                samples.add(score.count)
    machines = ""
    if filled.part.measure == "hours":
        envs = {run.env.cpu or "cpu" if run.env.device == "cpu" else run.env.device for run in runs}
        machines = f", on {' and '.join(sorted(envs))}"
    seeds, rates = {run.seed for run in runs}, {run.config.train.lr for run in runs}
    per_cell = span_text(len(cell.runs) for cell in filled.cells if cell.runs)
    named = {"exact": "exact match", "token": "token accuracy"}.get(filled.part.measure)
    cells = f". Cells: mean {named} over these lengths, in percent"
    return (
        f"protocol {name} with seed{'s' * (len(seeds) > 1)} {numbers(seeds)} and learning "
        f"rate{'s' * (len(rates) > 1)} {numbers(rates)}, {per_cell} run{'s' * (per_cell != '1')} "
        f"in each cell{machines}; tested on {span_text(samples)} samples of each of "
        f"the lengths {_lengths(at)}"
        f"{cells if named and not filled.part.gains else ''}"
    )


def _lengths(at: Mapping[str, Set[int]]) -> str:
    """
    >>> _lengths({"copy": {20, 30}, "reverse": {20, 30, 40}})
    '20, 30, 40'
    >>> _lengths({"copy": {20}, "reverse": {20}, "sort": {8}})
    '8 (sort) and 20 (copy, reverse)'
    """
    every = set().union(*at.values())
    if len(every) < 2 or any(len(lengths) > 1 for lengths in at.values()):
        return numbers(every)
    tasks = {one: [task for task in at if one in at[task]] for one in sorted(every)}
    return " and ".join(f"{one} ({', '.join(named)})" for one, named in tasks.items())


def _changes(filled: Filled) -> str:
    """Return the settings that differ from the paper's, as `train.steps 1,500 (2,000,000)`."""
    reference = filled.reference or filled.protocol
    lines = () if filled.part.gains else lines_of(filled.paper, filled.part)
    rows = {column.task(line.task) for line in lines for column in filled.part.columns}
    found: dict[str, tuple[set[str], set[str]]] = defaultdict(lambda: (set(), set()))
    kinds = {  # seeds differ in none of this
        (run.task, run.encoding, one.spec, one.model, one.train, one.eval): None
        for run in filled.runs
        for one in (run.config,)
    }

    @cache
    def unlike(task: str, *parts: Settings) -> dict[str, tuple[str, str]]:
        own, theirs = _settings(*parts), _settings(*reference.settings(task))
        changed = (n for n, value in theirs.items() if own[n] != value and n not in ELSEWHERE)
        return {name: (_value(own[name]), _value(theirs[name])) for name in changed}

    for task, encoding, text, *parts in kinds:
        both = unlike(task, *parts)
        if task in rows:  # a row of a smaller protocol may have an encoding of its own
            spec, there = parse(text), reference.fill(task, parse(encoding))
            if (ours := _unlike(spec, there)) != (theirs := _unlike(there, spec)):
                both = both | {"encoding": (ours, theirs)}
        for name, values in both.items():
            for known, value in zip(found[name], values, strict=True):
                known.add(value)
    return ", ".join(
        f"{name} {' or '.join(sorted(ours))} ({' or '.join(sorted(theirs))})"
        for name, (ours, theirs) in found.items()
    )


def _unlike(spec: Spec, other: Spec) -> str:
    """
    >>> _unlike(parse("prism(cursors=1,gamma=2.0)"), parse("prism(cursors=4,gamma=2.0)"))
    'prism(cursors=1)'
    """
    own = {key: value for key, value in spec.options.items() if other.options.get(key) != value}
    return str(replace(spec, options=own))


def _settings(*parts: Settings) -> dict[str, object]:
    """Return the settings of model, training and evaluation as {"train.steps": 1500}."""
    both = zip(("model", "train", "eval"), parts, strict=True)
    return {f"{name}.{key}": value for name, part in both for key, value in part}


def _value(value: object) -> str:
    """
    >>> _value(0.0), _value(10_000), _value((1, 20)), _value(None), _value("")
    ('0', '10,000', '1 to 20', 'none', 'none')
    """
    if value is None or isinstance(value, bool) or value in ((), ""):
        return str(value or None).lower()
    if isinstance(value, tuple):
        return " to ".join(map(_value, value))
    if isinstance(value, Settings):
        return " ".join(f"{key} {_value(own)}" for key, own in value)
    if isinstance(value, float):
        return f"{value:g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def numbers(values: Iterable[float]) -> str:
    """
    >>> numbers([0.001, 2000, 3])
    '0.001, 3, 2,000'
    >>> numbers(range(41, 501))
    '41-500'
    """
    ordered = sorted(values)
    if len(ordered) > 2 and ordered == list(range(int(ordered[0]), int(ordered[-1]) + 1)):
        return f"{ordered[0]}-{ordered[-1]}"
    return ", ".join(f"{value:,}" for value in ordered) or "none"


ALONG = "These runs were tested along training: those of other tables are not among them."


def caption(filled: Filled) -> list[str]:
    """Return the lines above a table: title, budgets, when runs reached PASS, and remarks."""
    paper, part, cells = filled.paper, filled.part, filled.cells
    there = sum(cell.ours is not None for cell in cells)
    return [
        f"{paper.authors} ({paper.year}), {part.label}, {part.place}: {part.title}.",
        *budgets(filled),
        f"We have numbers for {there} of {len(cells)} cells; {_difference(cells)}.",
        *(_crossings(cell, part) for cell in cells if part.along and cell.used),
        *([ALONG] if part.along else ()),
        *part.remarks,
        *(paper.remarks if part.measure != "hours" else ()),
        *selection(filled),
    ]


def selection(filled: Filled) -> list[str]:
    """Return how evaluations were selected; [] where all numbers are those of the last step."""
    selected = any(one.checkpoint != "last" for one in filled.part.columns)
    return [filled.paper.selection] if selected else []


def _difference(cells: Sequence[Cell]) -> str:
    if all(cell.paper is None for cell in cells):
        return "the paper prints no numbers"
    if not any(cell.comparable for cell in cells):
        return "budgets and machines differ, so the paper's are not compared"
    return "diff is ours minus the paper's, in percentage points"


def _crossings(cell: Cell, part: PaperTable) -> str:
    """Say when each run first reached PASS along training."""
    found: dict[str, list[int]] = defaultdict(list)
    for run in cell.used:
        passed = [one for one in run.learning if (getattr(one, part.measure) or 0.0) >= PASS]
        at = passed[0] if passed else None
        when = f"after {at.seconds or 0:,.0f} s and {at.step:,} steps" if at else "never"
        found[when].append(run.seed)
    each = (f"{when} (seed{'s' * (len(own) > 1)} {numbers(own)})" for when, own in found.items())
    return f"{cell.task}, {cell.column}: {100 * PASS:.0f} % {', '.join(each)}."


def requests(filled: Filled) -> Iterator[str]:
    """Yield the options of `pezoo bench` for the cells without a run.

    Runs of other settings are apart, and so are encodings that lack other tasks; of more than two
    such parts it is one request for all of their encodings and tasks.
    """
    train, test = filled.protocol.train, filled.protocol.eval
    sets = ""
    if filled.part.along:
        lengths = ",".join(map(str, test.curve_lengths or ()))
        sets = f" --set 'eval.curve_lengths=[{lengths}]'"
    kinds: dict[tuple[bool, bool], dict[tuple[str, ...], list[str]]] = defaultdict(dict)
    for column in filled.part.columns:
        rows = [cell.task for cell in filled.cells if cell.column == column.name and not cell.runs]
        if rows:
            tasks = tuple(dict.fromkeys(map(column.task, rows)))
            kinds[column.long, column.unaligned].setdefault(tasks, []).extend(column.encodings)
    for (long, _), parts in sorted(kinds.items()):
        if len(parts) > 2:
            parts = {tuple(dict.fromkeys(chain(*parts))): [*chain(*parts.values())]}
        more = f" --set 'train.lengths=[{train.lengths[0]},{max(test.lengths)}]'" if long else ""
        for tasks, encodings in parts.items():
            named = ",".join(dict.fromkeys(filled.paper.texts(one)[0] for one in encodings))
            yield f'--pe "{named}" --task "{",".join(tasks)}"{sets}{more}'
