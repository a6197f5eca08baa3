"""How the runs that fill a table were trained and tested, beside how the paper's were."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from leaderboard.papers.cells import Filled, alone, pairs_of
from leaderboard.papers.paper import lines_of
from leaderboard.record.schema import Record
from leaderboard.record.scores import Score
from leaderboard.render.text import span_text
from pezoo.spec import parse

# Settings of training that are said in words, or that change no result.
SAID = {"steps", "batch", "lengths", "curriculum", "lr", "checkpoint_every", "compile"}
UNSAID = {"window", "stride"}  # those of evaluation that no word says


def budgets(filled: Filled) -> list[str]:
    """The paper's and ours; what else is not the paper's; and lengths asked for but not tested."""
    lines = [f"Paper: {filled.paper.budget}.", f"Ours: {_ours(filled)}."]
    if filled.runs and (changes := ", ".join(dict.fromkeys(_changes(filled)))):
        lines[-1] += f" Unlike protocol {filled.paper.protocols[0]}: {changes}."
    return [*lines, *_lacking(filled)]


def _ours(filled: Filled) -> str:
    """Each part as the records have it."""
    name, runs = filled.protocol.name, filled.runs
    if not runs:
        none = f"no record of protocol {name} fills a cell"
        other = "of an earlier version, changed, or other options"
        count = filled.others
        return (
            f"{none}; {count} of it on these tasks have other settings ({other})" if count else none
        )
    first = ", short ones first" if any(run.config.train.curriculum for run in runs) else ""
    samples = span_text(
        score.count for run in runs for score in _tested(filled, run) if score.count
    )
    ((trained, tested), _), *others = _by_lengths(filled)
    more = (
        f"; {', '.join(tasks)}: lengths {low_high}, tested on {tested}"
        for (low_high, tested), tasks in others
    )
    return (
        f"protocol {name}, {numbers({run.config.train.steps for run in runs})} steps, "
        f"batch {numbers({run.config.train.batch for run in runs})}, lengths {trained}{first}; "
        f"{_seeds(filled)}; tested on {samples} samples of "
        + (f"length {tested}" if tested.isdecimal() else f"each of the lengths {tested}")
        + "".join(more)
        + (f"; on {_machines(runs)}" if filled.part.measure == "hours" else "")
    )


def _seeds(filled: Filled) -> str:
    """Seeds, rates and how many runs a cell has of them."""
    cells = [cell.runs for cell in filled.cells if cell.runs]
    seeds = {run.seed for run in filled.runs}
    rates = {run.config.train.lr for run in filled.runs}
    other = rates - {*filled.paper.rates} if filled.paper.rates else set()
    count = span_text(map(len, cells))
    which = "" if other == rates else f"{numbers(other)} "
    return (
        f"seed{'s' * (len(seeds) > 1)} {numbers(seeds)} "
        f"({span_text(len({run.seed for run in runs}) for runs in cells)} per cell) "
        f"at the rate{'s' * (len(rates) > 1)} {numbers(rates)}"
        + (f" ({which}none of the paper's)" if other else "")
        + f", {count} run{'s' * (count != '1')} per cell"
    )


def _by_lengths(filled: Filled) -> list[tuple[tuple[str, str], list[str]]]:
    """Lengths in training and in the test, with the tasks that have them; most tasks first."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for task in dict.fromkeys(run.task for run in filled.runs):
        runs = [run for run in filled.runs if run.task == task]
        trained = sorted({run.config.train.lengths for run in runs})
        low_high = " or ".join(f"{low} to {high}" for low, high in trained)
        found[low_high, tested_lengths(filled, runs)].append(task)
    return sorted(found.items(), key=lambda part: -len(part[1]))


def tested_lengths(filled: Filled, runs: Iterable[Record]) -> str:
    """The lengths over which the numbers of these runs are means."""
    return numbers({s.length for run in runs for s in _tested(filled, run) if s.count})


def _tested(filled: Filled, run: Record) -> list[Score]:
    """The scores of a run that count."""
    if filled.part.measure == "pairs":
        return [score for pair, score in pairs_of(run).items() if max(pair) > run.train_length]
    lengths = filled.lengths or alone(filled.part, run)
    return [
        score
        for score in run.scores.last
        if (not score.seen if lengths is None else score.length in lengths)
    ]


def _lacking(filled: Filled) -> list[str]:
    """Which of the lengths asked for were tested, where not all were."""
    if filled.lengths is None or not filled.runs:
        return []
    asked = numbers(filled.lengths)
    (first, _), *others = found = [(has, tasks) for (_, has), tasks in _by_lengths(filled)]
    if all(has == asked for has, _ in found):
        return []
    more = (f"; of {', '.join(tasks)} {has}" for has, tasks in others if has != first)
    return [f"Of the lengths asked for, {asked}, only these were tested: {first}{''.join(more)}."]


def _changes(filled: Filled) -> Iterator[str]:
    """Settings of runs that no other part says, each with the reference's in brackets."""
    reference = filled.reference or filled.protocol
    lines = lines_of(filled.paper, filled.part)
    rows = {column.task(line.task) for line in lines for column in filled.part.columns}
    for run in filled.runs:
        model, train, test = reference.settings(run.task)
        own = run.config
        for name, ours, theirs in (
            *((f"model.{name}", value, getattr(model, name)) for name, value in own.model),
            *((f"train.{n}", v, getattr(train, n)) for n, v in own.train if n not in SAID),
            *((f"eval.{n}", v, getattr(test, n)) for n, v in own.eval if n in UNSAID),
        ):
            if ours != theirs:
                yield f"{name} {_value(ours)} ({_value(theirs)})"
        encoding = str(reference.fill(run.task, parse(run.encoding)))
        if run.task in rows and encoding != own.encoding:  # not of rows that are a small one's own
            yield f"{own.encoding} ({encoding})"


def _value(value: object) -> str:
    """
    >>> _value(0.0), _value(10_000), _value("cosine"), _value(None)
    ('0', '10,000', 'cosine', 'none')
    """
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return f"{value:,g}" if isinstance(value, int | float) else str(value)


def _machines(runs: Iterable[Record]) -> str:
    envs = [run.env for run in runs]
    return " and ".join(sorted({e.cpu or "cpu" if e.device == "cpu" else e.device for e in envs}))


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
