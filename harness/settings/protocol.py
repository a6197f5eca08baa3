"""A protocol is a TOML file of settings, which resolves to runs."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

import experiment
from experiment.config import (
    OF_TASKS,
    ConfigError,
    Eval,
    Model,
    Protocol,
    RunConfig,
    TaskSettings,
    Train,
)
from experiment.reader import read_settings
from harness import tasks
from leaderboard.record.tuning import base
from pezoo.registry import check, entries
from pezoo.spec import Spec, bare, parse, unknown

PROTOCOLS = Path(experiment.__file__).parent / "protocols"
_WHOLE = r"""(?:"[^"]*"|'[^']*'|\([^()]*\)"""  # in which neither "=" nor "." divides
_OVERRIDE = re.compile(rf"(?P<key>{_WHOLE}|[^=])*?)=(?P<value>.*)", re.DOTALL)
_PART = re.compile(rf"{_WHOLE}|[^.])+")
_WORDS = {  # for those of pydantic
    "tuple_type": "expected a list, such as [5, 6]",
    "string_pattern_mismatch": "expected letters, digits, _, + and -",
}


def protocol_names() -> list[str]:
    """The protocols that come with the harness."""
    return sorted(path.stem for path in PROTOCOLS.glob("*.toml"))


def load_protocol(name: str, overrides: tuple[str, ...] = ()) -> Protocol:
    """A protocol by name or by the path of a TOML file, with `key.sub=value` overrides.

    An override of all tasks, as `eval.lengths`, replaces what the file has for one task; one of
    that task, as `tasks.copy.eval_lengths`, is stronger.
    One of the names here stands for the settings here alone: a file that has the name and other
    settings is `name+hash`, as one with overrides is.
    Errors: ConfigError says which key or value is wrong and what is nearest.
    """
    path = Path(name) if name.endswith(".toml") else PROTOCOLS / f"{name}.toml"
    if not path.is_file():
        raise ConfigError(unknown("protocol", name, protocol_names()))
    raw = read_settings(path, PROTOCOLS)
    if path.parent != PROTOCOLS:  # those here are tested: to load their tasks takes a second
        _check_tasks(raw.get("tasks"))
    for override in sorted(overrides, key=lambda text: text.startswith("tasks.")):
        _override(raw, override)
    if isinstance(raw["name"], str):
        raw["name"] = base(raw["name"])
    known = raw["name"] in protocol_names()
    if overrides or (known and raw != read_settings(PROTOCOLS / f"{raw['name']}.toml", PROTOCOLS)):
        decisive = {key: value for key, value in raw.items() if key != "chosen_on"}
        text = json.dumps(decisive, sort_keys=True, default=str)
        raw["name"] = f"{raw['name']}+{hashlib.sha256(text.encode()).hexdigest()[:6]}"
    try:
        return Protocol.model_validate(raw)
    except ValidationError as error:
        raise ConfigError(f"protocol {name}, {_reason(error)}") from error


def _reason(error: ValidationError) -> str:
    """Where the first mistake is, and what it is."""
    first = error.errors()[0]
    *path, last = [str(part) for part in first["loc"]] or [""]
    if first["type"] == "extra_forbidden" and (known := _fields(path)):
        return unknown(_setting(path), last, sorted(known))
    where = ".".join([*path, last]) or "its settings"
    said = _WORDS.get(first["type"], first["msg"].removeprefix("Value error, "))
    given = "" if isinstance(first["input"], dict) else f", was {str(first['input'])[:60]!r}"
    return f"{where}: {said}{given}"


def resolve(
    protocol: Protocol, task: str, encoding: Spec, seed: int, device: str, attention: str
) -> RunConfig:
    """One run of a protocol. Errors: ConfigError, TaskError or SpecError."""
    task, made, encoding = tasks.canonical(task), tasks.make(task), check(encoding)
    model, train, test = protocol.settings(task)
    low, high = train.lengths
    if not made.lengths(low, high):
        raise ConfigError(f"task {task} has no instance of length {low} to {high}")
    if train.draw == "instances" and made.instances(made.lengths(low, high)[0]) is None:
        raise ConfigError(
            f'train.draw = "instances" needs a task that lists its instances; {task} does not: '
            f'take "lengths"'
        )
    if protocol.track == "encoder" and (train.context or test.window):
        raise ConfigError("train.context and eval.window are of decoders; this protocol's are not")
    for name in filter(None, (test.set, *(one.name for one in test.sets))):
        made.check_test_set(name)
    full = check(protocol.fill(task, encoding))
    for name in _names(full):
        if protocol.track == "encoder" and entries()[name].load().causal_only:
            raise ConfigError(
                f"{name} means nothing without a causal mask: protocol {protocol.name} trains "
                f"encoders"
            )
    return RunConfig(
        protocol=protocol.name,
        task=task,
        task_version=made.version,
        label=str(encoding),
        encoding=str(full),
        encoding_version=version_of(full),
        seed=seed,
        device=device,
        attention=attention,
        track=protocol.track,
        model=model,
        train=train,
        eval=test,
    )


def _names(spec: Spec) -> Iterator[str]:
    """An encoding and what it wraps, from the outside."""
    wraps = entries()[spec.name].load().wraps
    yield spec.name
    if inner := spec.inner or (parse(wraps) if wraps else None):
        yield from _names(inner)


def version_of(spec: Spec) -> int:
    """One number for the versions of an encoding and of what it wraps."""
    total = 0
    for name in _names(spec):
        total = total * 1000 + entries()[name].load().version
    return total


def _override(raw: dict[str, Any], text: str) -> None:
    pair = _OVERRIDE.fullmatch(text)
    if not pair:
        raise ConfigError(f"cannot read --set {text!r}: expected key=value, e.g. train.steps=500")
    value = pair["value"]
    *path, last = [part.strip(" \"'") for part in _PART.findall(pair["key"])] or [""]
    if not all([*path, last]) or not re.fullmatch(r"x(\.x)*", _PART.sub("x", pair["key"])):
        raise ConfigError(f"--set {text!r} has an empty name: expected e.g. train.steps=500")
    if path[:1] == ["tasks"]:
        tables, name, *rest = [*path, last]
        *path, last = [tables, _task(name), *rest]
    table = raw
    for name in path:
        if not isinstance(table.get(name), dict):
            if path[0] not in ("encodings", "tasks"):
                tables = sorted(key for key, value in raw.items() if isinstance(value, dict))
                raise ConfigError(unknown("setting", name, tables))
            table[name] = {}
        table = table[name]
    if path[:1] == ["encodings"] and bare(name := [*path, last][1]) not in entries():
        raise ConfigError(unknown("encoding", name, sorted(entries())))
    allowed = _fields(path)
    if allowed is not None and last not in allowed:
        raise ConfigError(unknown(_setting(path), last, sorted(allowed)))
    try:
        table[last] = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        table[last] = value
    if path in (["train"], ["eval"]):
        _for_all_tasks(raw.get("tasks"), path[0], last)


def _check_tasks(own: Any) -> None:
    """Errors: ConfigError for a task that no run would have by this name."""
    for name in own if isinstance(own, dict) else ():
        if name != (known := _task(name)):
            raise ConfigError(f"a protocol names tasks as runs do: {known!r}, not {name!r}")


def _task(name: str) -> str:
    """A task as runs name it. Errors: ConfigError."""
    try:
        known = tasks.canonical(name)
        if known != bare(known):
            tasks.make(known)
        return known
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _for_all_tasks(own: Any, part: str, name: str) -> None:
    """Drop what tasks have in place of this setting; what is malformed is refused later."""
    for task in own.values() if isinstance(own, dict) else ():
        if isinstance(task, dict):
            task.pop(OF_TASKS[part].get(name, ""), None)
            more = task.get(part)
            if isinstance(more, dict):
                more.pop(name, None)


def _setting(path: Sequence[str]) -> str:
    return f"setting in {'.'.join(path) or 'the protocol'}"


def _fields(path: Sequence[str]) -> list[str] | None:
    """The settings below a path, or None where any name may stand."""
    models = {"model": Model, "train": Train, "eval": Eval}
    match path:
        case []:
            return list(Protocol.model_fields)
        case ["tasks", _]:
            return list(TaskSettings.model_fields)
        case [("model" | "train" | "eval") as part] | ["tasks", _, ("train" | "eval") as part]:
            return list(models[part].model_fields)
    return None
