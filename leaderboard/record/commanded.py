"""What a record's command may be: a bench of its encoding, task, protocol, seed and settings."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiment.protocol import base
from experiment.seeds import parse_seeds
from leaderboard.catalog import Catalog
from leaderboard.record.schema import Record
from leaderboard.record.tuning import MARK, RUNS, Tuning
from pezoo.spec import Spec, bare, parse_list

# Those of `pezoo bench` that a recorded command keeps.
VALUED = ("--pe", "--task", "--protocol", "--seeds", "--device", "--attention", "--jobs")
VALUED += ("--threads", "--stack", "--precision", "--set", "--tune", "--tune-seeds", "--format")
FLAGS = ("--compile", "--fresh", "--wide")
FOLDERS = ("protocols", "earlier")  # of a checkout, with the files of protocols

Given = Mapping[str, Sequence[str]]


def options_of(command: str) -> Given:
    """The values of each option of a command, as in --pe rope and --pe=rope; "" of a flag.

    Errors: ValueError for what no recorded command has.
    """
    words = shlex.split(command)
    if words[:2] != ["pezoo", "bench"]:
        raise ValueError("it is no pezoo bench, which makes records")
    given: dict[str, list[str]] = {}
    rest = iter(words[2:])
    for word in rest:
        name, _, value = word.partition("=")
        if word not in FLAGS and name not in VALUED:
            raise ValueError(f"{name!r} is no option of a bench that is recorded")
        if word in VALUED and (value := next(rest, "")) == "":
            raise ValueError(f"{name} needs a value")
        given.setdefault(name, []).append(value)
    return given


def overrides_of(given: Given) -> tuple[str, ...]:
    """The settings that a command changes, as --set has them."""
    sets = (*given.get("--set", ()),)
    if (precision := _last(given, "--precision", "float32")) != "float32":
        sets += (f"train.precision={precision}",)
    return sets + ("train.compile=true",) * ("--compile" in given)


def plain_name(protocol: str) -> str:
    """The protocol's name without what tells a sweep.

    >>> plain_name("quick+ab12cd+tune-27014962"), plain_name("quick+tuning")
    ('quick+ab12cd', 'quick')
    """
    return protocol.partition(MARK)[0].removesuffix(RUNS)


def refusals(record: Record, catalog: Catalog) -> Iterator[str]:
    """Why the record cannot come from its command."""
    try:
        given = options_of(record.provenance.command)
        yield from _seeds(record, given, catalog)
        yield from _tuned(record, given)
        yield from _names(record, given, catalog)
    except ValueError as error:
        yield f"provenance.command: {error}"
        return
    yield from _protocol(record, given)
    for option, usual in (("--device", "auto"), ("--attention", "auto")):
        own, typed = getattr(record.config, option[2:]), _last(given, option, usual)
        if typed != own and (option, typed) != ("--device", "auto"):
            yield f"config.{option[2:]} is {own}, but the command runs {option} {typed}"


def _names(record: Record, given: Given, catalog: Catalog) -> Iterator[str]:
    """The encoding and the task, with their options, are among those that the command names."""
    second = dict(pair for one in catalog.encodings.values() for pair in one.also)
    known = catalog.tasks.get(bare(record.task))
    usual = known.usual if known else {}
    for option, own in (("--pe", record.encoding), ("--task", record.task)):
        typed = _last(given, option)
        specs = parse_list(typed)
        if option == "--task":  # options that have their usual values are left out
            specs = [_short(spec, usual) for spec in specs]
        meant = {second[spec.name] for spec in specs if spec.name in second}
        if own not in map(str, specs) and bare(own) not in meant:
            yield f"{option[2:]} is {own}, but the command runs {option} {typed}"


def _short(spec: Spec, usual: Mapping[str, Any]) -> Spec:
    options = {k: v for k, v in spec.options.items() if k not in usual or usual[k] != v}
    return replace(spec, options=options)


def _protocol(record: Record, given: Given) -> Iterator[str]:
    """It is the record's, and changes settings where the record's name says so."""
    typed, own = _last(given, "--protocol", "quick"), plain_name(record.protocol)
    file, name = Path(typed), typed
    if is_file := file.suffix == ".toml":
        earlier = file.parent.name == "earlier"
        name = re.sub(r"-\d+$", "", file.stem) if earlier else file.stem
    if base(own) != name:
        yield f"protocol is {record.protocol}, but the command runs --protocol {typed}"
    elif is_file and file.parent.name not in FOLDERS:
        yield f"--protocol {typed} is a file that other machines do not have"
    changed = overrides_of(given)
    if "+" not in own and changed:
        yield f"protocol {own} has its own settings, but the command changes {', '.join(changed)}"
    elif "+" in own and not changed and not is_file:
        yield f"protocol {own} has changed settings, but the command changes none"


def _tuned(record: Record, given: Given) -> Iterator[str]:
    """A grid is tried where the record is tuned, or serves to tune, and it is the record's."""
    tuning, texts = record.provenance.tuning, given.get("--tune", ())
    if bool(texts) != bool(tuning or record.for_tuning):
        does = f"has --tune {' '.join(texts)}" if texts else "has no --tune"
        yield f"protocol is {record.protocol}, but the command {does}"
    elif tuning and (_grid(texts) != _sorted(tuning) or _tune_seeds(given) != tuning.seeds):
        seeds = ", ".join(map(str, tuning.seeds))
        yield (
            f"{tuning.grid_words()} were tried on seeds {seeds}, but the command has --tune "
            f"{' '.join(texts)} on seeds {_last(given, '--tune-seeds', '100')}"
        )


def _grid(texts: Sequence[str]) -> dict[str, list[str]]:
    pairs = (text.partition("=") for text in texts)
    return {
        name.strip().removeprefix("train."): sorted(map(_plain, values.split(",")))
        for name, _, values in pairs
    }


def _sorted(tuning: Tuning) -> dict[str, list[str]]:
    return {name: sorted(_plain(str(one)) for one in own) for name, own in tuning.grid.items()}


def _plain(value: str) -> str:
    """One text for 0.001 and 1e-3."""
    try:
        return repr(float(value))
    except ValueError:
        return value.strip()


def _tune_seeds(given: Given) -> list[int]:
    return sorted(parse_seeds(_last(given, "--tune-seeds", "100")))


def _last(given: Given, option: str, usual: str = "") -> str:
    return (given.get(option) or [usual])[-1]


def _seeds(record: Record, given: Given, catalog: Catalog) -> Iterator[str]:
    """The seeds that the command names, or else its protocol's, must have the record's."""
    sets = (text.partition("=") for text in given.get("--set", ()))
    changed = [value.strip("\"' ") for key, _, value in sets if key.strip() == "seeds"]
    named = given.get("--tune-seeds" if record.for_tuning else "--seeds") or changed
    known = catalog.protocols.get(base(record.protocol))
    if not named and (record.for_tuning or known is None):
        return
    usual = [version.seeds for version in known.versions] if known else []
    texts = [*named][-1:] if named else usual
    seeds = {seed for text in texts for seed in parse_seeds(text)}
    if (seed := record.config.seed) not in seeds:
        yield f"config.seed is {seed}, but the command runs {' or '.join(dict.fromkeys(texts))}"
