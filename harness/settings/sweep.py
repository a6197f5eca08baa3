"""Tuning: one grid of training settings for every encoding, with seeds of its own to choose on.

The runs of the sweep are ordinary runs with test examples of their own. `leaderboard.record.tuning`
has the rule that chooses a cell of the grid; every record of the comparison says what was tried.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import prod
from statistics import fmean
from typing import Any, get_origin

from pydantic import ValidationError

from experiment.config import ConfigError, Protocol, RunConfig, Train
from experiment.protocol import reason
from experiment.seeds import parse_seeds
from harness import tasks
from leaderboard.record.schema import Cost, Record
from leaderboard.record.tuning import (
    EXAMPLES,
    MOST_CELLS,
    RUNS,
    Trial,
    Value,
    best,
    cells,
    tuned_name,
)
from pezoo.spec import unknown

_UNTUNED = {"checkpoint_every", "precision"}  # how a run is saved and rounded
_UNTUNED |= {"draw", "context", "samples"}  # what it is trained on
_SINGLE = sorted(  # settings that are one value
    name
    for name, field in Train.model_fields.items()
    if get_origin(field.annotation) is not tuple and name not in _UNTUNED
)


@dataclass(frozen=True)
class Sweep:
    """A grid, its values sorted, and the seeds to choose on."""

    grid: dict[str, list[Value]]
    seeds: list[int]


@dataclass(frozen=True)
class Choice:
    """The sweep of one encoding and task, and its part of the records.

    `tuning` is None if nothing could be chosen; `complete`: every run has a record.
    """

    encoding: str
    task: str
    trials: list[Trial]
    complete: bool
    tuning: dict[str, Any] | None


def parse_sweep(
    options: Sequence[str], seeds: str, protocol: Protocol, compared: Sequence[int]
) -> Sweep:
    """Parse a grid from texts like "lr=1e-3,3e-3" and its seeds, none of which is `compared`.

    Errors: ConfigError for more than MOST_CELLS runs, an unknown setting, an impossible or repeated
    value, and for a seed of the comparison.
    """
    chosen_on = parse_seeds(seeds)
    if (size := prod(text.count(",") + 1 for text in options) * len(chosen_on)) > MOST_CELLS:
        raise ConfigError(
            f"--tune asks for {size:,} runs of each encoding, in every cell of the grid with every "
            f"seed; the most are {MOST_CELLS:,}"
        )
    grid: dict[str, list[Value]] = {}
    for option in options:
        name, equals, values = option.partition("=")
        name = name.strip().removeprefix("train.")
        if not equals:
            raise ConfigError(f"cannot read --tune {option!r}: expected for example lr=1e-3,3e-3")
        if name not in _SINGLE:
            raise ConfigError(unknown("setting to tune", name, _SINGLE))
        if name in grid:
            raise ConfigError(f"--tune {name} is given twice")
        grid[name] = _values(name, values, protocol.train)
    if both := sorted(set(chosen_on) & set(compared)):
        raise ConfigError(
            f"--tune-seeds {seeds} and --seeds share {', '.join(map(str, both))}: settings have to "
            f"be chosen on other seeds than those compared, for example {max(compared) + 1}"
        )
    return Sweep(dict(sorted(grid.items())), sorted(chosen_on))


def _values(name: str, text: str, train: Train) -> list[Value]:
    values = []
    for part in text.split(","):
        try:
            made = Train.model_validate(train.model_dump() | {name: part.strip()})
        except ValidationError as error:
            raise ConfigError(f"--tune {reason(error)}") from error
        value = getattr(made, name)
        if value in values:
            raise ConfigError(f"--tune {name} has the value {value} twice")
        values.append(value)
    return sorted(values)


def sweep_configs(sweep: Sweep, plain: Sequence[RunConfig]) -> list[RunConfig]:
    """Return the sweep's runs: every cell of the grid for each encoding and task.

    Errors: TaskError for a task that has nothing to choose on.
    """
    kinds = {(config.encoding, config.task): config for config in plain}.values()
    for task in map(tasks.make, {config.task for config in kinds if config.eval.set}):
        if task.tuning_set:
            task.check_test_set(task.tuning_set)
    return [
        config.replace(seed=seed, protocol=config.protocol + RUNS)
        .replace_train(**values)
        .replace_eval(examples=EXAMPLES)
        for seed in sweep.seeds
        for config in kinds
        for values in cells(sweep.grid)
    ]


def choose(sweep: Sweep, runs: Sequence[RunConfig], records: Sequence[Record]) -> list[Choice]:
    """Choose the best cell for each encoding and task from the records so far."""
    by_run = {record.run: record for record in records}
    kinds: dict[tuple[str, str], list[RunConfig]] = defaultdict(list)
    for config in runs:
        kinds[config.encoding, config.task].append(config)
    return [
        _choice(sweep, own, [by_run[c.hash] for c in own if c.hash in by_run])
        for own in kinds.values()
    ]


def tuned_configs(
    sweep: Sweep, choices: Sequence[Choice], plain: Sequence[RunConfig]
) -> list[tuple[RunConfig, dict[str, Any]]]:
    """Return the comparison's runs with the chosen settings, each with its part of the record."""
    found = {(choice.encoding, choice.task): choice.tuning for choice in choices}
    own = [(config, found[config.encoding, config.task]) for config in plain]
    return [(_tuned(config, sweep, part["chosen"]), part) for config, part in own if part]


def possible_configs(sweep: Sweep, plain: Sequence[RunConfig]) -> list[RunConfig]:
    """Return the comparison's runs with every cell of the grid; each encoding gets one of them."""
    return [_tuned(config, sweep, values) for config in plain for values in cells(sweep.grid)]


def costliest(sweep: Sweep, plain: Sequence[RunConfig]) -> list[RunConfig]:
    """Return the comparison's runs with the slowest cell: most steps, then the largest batch."""
    values = max(cells(sweep.grid), key=lambda v: (v.get("steps", 0), v.get("batch", 0)))
    return [config.replace_train(**values) for config in plain]


def _tuned(config: RunConfig, sweep: Sweep, values: dict[str, Value]) -> RunConfig:
    name = tuned_name(config.protocol, sweep.grid, sweep.seeds)
    return config.replace(protocol=name).replace_train(**values)


def blank_tuning(sweep: Sweep) -> dict[str, Any]:
    """Return a record's part about a sweep, at full length, before anything has run."""
    blank = dict.fromkeys(("exact", "validation", "loss", "token", "bits"), 1 / 3)
    blank |= {"runs": ["0" * 16] * len(sweep.seeds)}
    trials = [{"values": values} | blank for values in cells(sweep.grid)]
    return _tuning(sweep, trials, trials[0]["values"], [])


def _tuning(
    sweep: Sweep, trials: list[dict[str, Any]], chosen: dict[str, Value], costs: Sequence[Cost]
) -> dict[str, Any]:
    return {
        "grid": sweep.grid,
        "seeds": sweep.seeds,
        "chosen": chosen,
        "cells": trials,
        "cpu_seconds": _sum(costs, "cpu_seconds", "eval_cpu_seconds"),
        "seconds": _sum(costs, "train_seconds", "eval_seconds"),
    }


def _choice(sweep: Sweep, runs: Sequence[RunConfig], records: Sequence[Record]) -> Choice:
    trials = [_trial(values, records) for values in cells(sweep.grid)]
    first, winner, complete = runs[0], best(trials), len(records) == len(runs)
    tuning = None
    if winner and complete:
        costs = [record.cost for record in records]
        tuning = _tuning(sweep, [asdict(trial) for trial in trials], winner.values, costs)
    return Choice(first.encoding, first.task, trials, complete, tuning)


def _trial(values: dict[str, Value], records: Sequence[Record]) -> Trial:
    """Return one cell: means over its runs, None if one of them failed."""
    own = [r for r in records if all(getattr(r.config.train, k) == v for k, v in values.items())]
    runs = [record.run for record in own]
    if not own or any(record.status == "failed" for record in own):
        return Trial(values=values, exact=None, validation=None, loss=None, runs=runs)
    track = own[0].config.track
    return Trial(
        values=values,
        exact=fmean(_mean(record, "exact") for record in own),
        token=fmean(_mean(record, "token") for record in own) if track == "encoder" else None,
        bits=fmean(_mean(record, "bits") for record in own) if track == "text" else None,
        validation=fmean(record.learning[-1].exact or 0.0 for record in own),
        loss=fmean(record.learning[-1].loss or 0.0 for record in own),
        runs=runs,
    )


def _mean(record: Record, measure: str) -> float:
    """Return the mean over the test lengths that the encoding can represent."""
    numbers = [getattr(s, measure) for s in record.scores.last if s.status == "ok"]
    return fmean(numbers) if numbers else 0.0


def _sum(costs: Sequence[Cost], *names: str) -> float:
    return round(sum(getattr(cost, name) or 0.0 for cost in costs for name in names), 2)
