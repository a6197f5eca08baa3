"""The configuration of a record, recomputed from its command."""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click

from experiment.config import ConfigError, RunConfig
from experiment.protocol import PROTOCOLS, base
from harness.cli import bench
from harness.cli.train import recorded_command
from harness.cli.verify.build import Facts, encoding_of
from harness.model.transformer import shape_of
from harness.settings.protocol import Request, resolve
from harness.settings.sweep import Sweep, possible_configs, sweep_configs
from leaderboard.record.schema import Record
from leaderboard.record.tuning import MARK, best, cells
from leaderboard.stats.tables import flat

# The value of an option that is a path to anywhere but a folder below.
_OUTSIDE = re.compile(r"=[\s\"']*(/|~|[^,()]*\.\.)")
VERSIONS = ("task_version", "encoding_version")
Requests = list[tuple[Request, Sweep | None]]


@lru_cache(1000)
def parse_command(text: str, protocols: tuple[Path, ...] = ()) -> tuple[Requests, dict[str, Any]]:
    """Parse a recorded `pezoo bench`, and build every encoding and task in it.

    Returns a request, and its sweep, for each version of its protocol that takes its options, and
    the options. Errors: ValueError.
    """
    words = shlex.split(text)
    if words[:2] != ["pezoo", "bench"] or "--help" in words:
        raise ValueError("expected a pezoo bench, which makes records")
    try:
        typed = bench.command.make_context("bench", words[2:]).params
    except click.ClickException as error:
        raise ValueError(error.format_message()) from error
    if typed["dry_run"] or words != shlex.split(recorded_command(words[1:])):
        raise ValueError("it has options that records do not keep, such as --runs or --dry-run")
    for part in (typed["pe"], typed["task"], *typed["set"]):
        if _OUTSIDE.search(part):
            raise ValueError(f"{part[:100]} reads outside of this folder: name a file in it")
    requests: Requests = []
    errors = []
    for version in _versions(typed["protocol"], protocols):
        try:
            request, sweep = bench.requested(SimpleNamespace(**typed | {"protocol": version}))
        except ConfigError as error:
            errors.append(error)
            continue
        if requests and requests[0][0].protocol.name == base(request.protocol.name):
            named = request.protocol.model_copy(update={"name": base(request.protocol.name)})
            request = replace(request, protocol=named)  # as when its file was the current one
        requests.append((request, sweep))
    if not requests:
        raise errors[0]
    request, attention = requests[0][0], typed["attention"]
    first, *others = request.encodings
    for task in request.tasks:
        resolve(request.protocol, task, first, 0, "cpu", attention)
    for one in others:
        config = resolve(request.protocol, request.tasks[0], one, 0, "cpu", attention)
        encoding_of(config.spec, shape_of(config.model, 8))
    return requests, typed


def _versions(protocol: str, own: Sequence[Path]) -> list[str]:
    """Return the names or files of a protocol's versions, the current one first."""
    file = Path(protocol)
    if file.suffix == ".toml":
        if same := [str(path) for path in own if path.name == file.name]:
            return same[:1]
        folder = file.parent.name
        if folder not in ("protocols", "earlier"):
            raise ConfigError(
                f"--protocol {protocol} is a file that other machines do not have: "
                f"repeat it here, as --protocol {protocol}"
            )
        protocol = re.sub(r"-\d+$", "", file.stem) if folder == "earlier" else file.stem
    earlier = PROTOCOLS.glob("earlier/*.toml")
    same = [str(one) for one in earlier if re.fullmatch(rf"{re.escape(protocol)}-\d+", one.stem)]
    return [protocol, *sorted(same)]


def config_faults(own: RunConfig, text: str, protocols: tuple[Path, ...]) -> Iterator[str]:
    """Compare the configuration with those that the command makes, by the closest of them."""
    typed = parse_command(text, protocols)[1]
    configs = _configs(text, protocols, own.task, own.encoding)
    newest = configs[0][0]
    for one, new in {own: newest, own.first: newest.first}.items():
        for name in VERSIONS:
            given, now = getattr(one, name), getattr(new, name)
            if given != now:  # nothing of it could be recomputed
                yield f"{name} is {given}: the code is at {now}"
    device = own.device if typed["device"] == "auto" else typed["device"]
    differing = min((_differing(own, *made, device) for made in configs), key=len)
    for name, (given, made) in [*differing.items()][:3]:
        yield f"config.{name} is {given}, but the command makes {made}"


@lru_cache(5000)
def _configs(
    text: str, protocols: tuple[Path, ...], task: str, encoding: str
) -> list[tuple[RunConfig, list[int]]]:
    """Return a command's runs of one task and encoding: those of a seed, and all their seeds."""
    requests, typed = parse_command(text, protocols)
    configs: list[tuple[RunConfig, list[int]]] = []
    errors = []
    for request, sweep in requests:
        spec = next(one for one in request.encodings if str(one) == encoding)
        try:
            made = [resolve(request.protocol, task, spec, 0, "cpu", typed["attention"])]
        except ConfigError as error:
            errors.append(error)
            continue
        if sweep is not None:
            tried = sweep_configs(Sweep(sweep.grid, sweep.seeds[:1]), made)
            configs += [(config, sweep.seeds) for config in tried]
            made = possible_configs(sweep, made)
        configs += [(config, request.seeds) for config in made]
    if not configs:
        raise errors[0]
    return configs


def _differing(
    own: RunConfig, made: RunConfig, seeds: list[int], device: str
) -> dict[str, tuple[str | None, str | None]]:
    """Return (value, value made) of each setting that differs, but for the versions."""
    made = made.replace(seed=own.seed if own.seed in seeds else seeds[0], device=device)
    made = made.replace(**{name: getattr(own, name) for name in VERSIONS})
    if made.start and own.start:
        versions = {name: getattr(own.start, name) for name in VERSIONS}
        made = made.replace(start=made.start.replace(**versions))
    if own == made:
        return {}
    one, two = dict(flat("", own.model_dump())), dict(flat("", made.model_dump()))
    return {k: (one.get(k), two.get(k)) for k in one | two if one.get(k) != two.get(k)}


def sweep(record: Record, text: str, protocols: tuple[Path, ...]) -> Facts:
    """Return what the record says of its sweep, and what the command gives."""
    config, tuning = record.config, record.provenance.tuning
    sweep = parse_command(text, protocols)[0][0][1] if MARK in config.protocol else None
    if sweep is None or tuning is None:
        return {"a sweep in provenance": (tuning is not None, sweep is not None)}
    plain = config.replace(protocol=config.protocol.partition(MARK)[0])
    runs, values = [run.hash for run in sweep_configs(sweep, [plain])], cells(sweep.grid)
    done = [cell for cell in tuning.cells if cell.exact is not None]
    measures = {(cell.token is not None, cell.bits is not None) for cell in done}
    chosen = {name: getattr(config.train, name) for name in sweep.grid}
    tried = [(each, runs[at :: len(values)]) for at, each in enumerate(values)]
    return {
        "sweep": ((tuning.grid, tuning.seeds), (sweep.grid, sweep.seeds)),
        "cells": ([(cell.values, cell.runs) for cell in tuning.cells], tried),
        "cells with token accuracy, with bits": (
            measures,
            {(config.track == "encoder", config.track == "text")},
        ),
        "chosen": (tuning.chosen, chosen),
        "the best cell": (chosen, getattr(best(tuning.cells), "values", None)),
    }
