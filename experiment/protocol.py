"""Read protocols: TOML files of settings, one of which may extend another."""

import hashlib
import json
import re
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from experiment.config import (
    OF_TASKS,
    ConfigError,
    Eval,
    Model,
    Protocol,
    Start,
    TaskSettings,
    Train,
)
from pezoo.registry import typed_names
from pezoo.spec import bare, unknown

PROTOCOLS = Path(__file__).parent / "protocols"
Settings = dict[str, Any]
DESCRIBED = ("description", "seeds", "chosen_on")  # settings that change no run
_WHOLE = r"""(?:"[^"]*"|'[^']*'|\([^()]*\)"""  # "=" and "." inside do not divide
_OVERRIDE = re.compile(rf"(?P<key>{_WHOLE}|[^=])*?)=(?P<value>.*)", re.DOTALL)
_PART = re.compile(rf"{_WHOLE}|[^.])+")
_MESSAGES = {  # in place of pydantic's
    "tuple_type": "expected a list, such as [5, 6]",
    "int_parsing": "expected a whole number",
    "int_from_float": "expected a whole number",
    "float_parsing": "expected a number",
    "bool_parsing": "expected true or false",
    "string_pattern_mismatch": "expected letters, digits, _, + and -",
}


def protocol_names() -> list[str]:
    """Return the names of the protocols in this package, sorted."""
    return sorted(path.stem for path in PROTOCOLS.glob("*.toml"))


def base(protocol: str) -> str:
    """Return the name of the protocol that an overridden or a tuned one started from.

    >>> base("quick+ab12cd")
    'quick'
    """
    return protocol.split("+")[0]


def read_protocol(
    name: str, overrides: tuple[str, ...] = (), task_name: Callable[[str], str] = str
) -> Protocol:
    """Read a protocol by name, or by the path of a TOML file, with `key.sub=value` overrides.

    An override for all tasks, such as `eval.lengths`, replaces what the file sets for single tasks;
    an override for one task, such as `tasks.copy.eval_lengths`, takes precedence over both.
    A protocol with overrides, or a file that uses the name of a packaged protocol with other
    settings, is named `name+hash`. `task_name` returns the canonical name of a task.

    Errors: ConfigError names the wrong key or value and the nearest valid one; OSError.
    """
    own = name.endswith(".toml")
    path = Path(name) if own else PROTOCOLS / f"{name}.toml"
    if not path.is_file() or not (own or name in protocol_names()):  # "../x/easy" is a file, too
        raise ConfigError(unknown("protocol", name, protocol_names()))
    raw = read_settings(path, PROTOCOLS)
    if path.parent != PROTOCOLS:  # packaged protocols are tested: loading tasks takes a second
        _check_tasks(raw.get("tasks"), task_name)
    for override in sorted(overrides, key=lambda text: text.startswith("tasks.")):
        _override(raw, override, task_name)
    if isinstance(raw["name"], str):
        raw["name"] = base(raw["name"])
    known = raw["name"] in protocol_names()
    if overrides or (known and raw != read_settings(PROTOCOLS / f"{raw['name']}.toml", PROTOCOLS)):
        decisive = {key: value for key, value in raw.items() if key not in DESCRIBED}
        text = json.dumps(decisive, sort_keys=True, default=str)
        raw["name"] = f"{raw['name']}+{hashlib.sha256(text.encode()).hexdigest()[:6]}"
    try:
        return Protocol.model_validate(raw)
    except ValidationError as error:
        raise ConfigError(f"protocol {name}, {reason(error)}") from error


def read_settings(path: Path, folder: Path) -> Settings:
    """Read a protocol's settings, merged with those of the protocol in `folder` that it extends.

    Tables are merged key by key; other values are replaced. `name` defaults to the file's name.

    >>> read_settings(Path("mine.toml"), Path("protocols"))     # doctest: +SKIP
    {'name': 'mine', 'train': {'steps': 500, 'batch': 64, ...}, ...}

    Errors: ConfigError for a file that is not TOML, and for a base protocol that does not exist or
    extends another one; OSError.
    """
    own = _read(path)
    if "extends" not in own:
        return {"name": path.stem} | own
    name = own.pop("extends")
    file = folder / f"{name}.toml"
    if file.stem != name or not file.is_file():
        names = ", ".join(sorted(file.stem for file in folder.glob("*.toml")))
        raise ConfigError(f"protocol {path} extends {name!r}; it can extend one of {names}")
    settings = _read(file)
    if "extends" in settings:
        raise ConfigError(f"protocol {path} extends {name}, which extends {settings['extends']}")
    return _merged(settings, {"name": path.stem} | own)


def _read(path: Path) -> Settings:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"protocol {path} is not TOML: {error}") from error


def _merged(settings: Settings, own: Settings) -> Settings:
    """
    >>> _merged({"train": {"steps": 9, "lr": 1}}, {"train": {"steps": 5}})
    {'train': {'steps': 5, 'lr': 1}}
    """
    both = dict(settings)
    for key, value in own.items():
        inner = both.get(key)
        tables = isinstance(inner, dict) and isinstance(value, dict)
        both[key] = _merged(inner, value) if tables else value
    return both


def _check_tasks(own: Any, task_name: Callable[[str], str]) -> None:
    """Errors: ConfigError for a task whose name is not canonical."""
    for name in own if isinstance(own, dict) else ():
        if name != (canonical := task_name(name)):
            raise ConfigError(f"task {name!r} in a protocol must be written {canonical!r}")


def _override(raw: Settings, text: str, task_name: Callable[[str], str]) -> None:
    """Apply one `key.sub=value` to the settings."""
    pair = _OVERRIDE.fullmatch(text)
    if not pair:
        raise ConfigError(f"cannot read --set {text!r}: expected key=value, e.g. train.steps=500")
    value = pair["value"]
    *path, last = [part.strip(" \"'") for part in _PART.findall(pair["key"])] or [""]
    if not all([*path, last]) or not re.fullmatch(r"x(\.x)*", _PART.sub("x", pair["key"])):
        raise ConfigError(f"--set {text!r} has an empty name: expected e.g. train.steps=500")
    if path[:1] == ["tasks"]:
        tables, name, *rest = [*path, last]
        *path, last = [tables, task_name(name), *rest]
    table = raw
    for name in path:
        if not isinstance(table.get(name), dict):
            table[name] = {}
        table = table[name]
    if path[:1] == ["encodings"] and bare(name := [*path, last][1]) not in typed_names():
        raise ConfigError(unknown("encoding", name, typed_names()))
    try:
        table[last] = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        table[last] = value
    if path in (["train"], ["eval"]):
        _drop_task_settings(raw.get("tasks"), path[0], last)


def _drop_task_settings(own: Any, part: str, name: str) -> None:
    """Remove a setting from every task; malformed tables are refused later."""
    for task in own.values() if isinstance(own, dict) else ():
        if isinstance(task, dict):
            task.pop(OF_TASKS[part].get(name, ""), None)
            more = task.get(part)
            if isinstance(more, dict):
                more.pop(name, None)


def reason(error: ValidationError) -> str:
    """Describe the first error: its place, what is expected and what was found."""
    first = error.errors()[0]
    *path, last = [str(part) for part in first["loc"]] or [""]
    if first["type"] == "extra_forbidden" and (known := _fields(path)):
        table = ".".join(path) or "the protocol"
        within = [part for part in _TABLES if not path and last in _TABLES[part].model_fields]
        known = [f"{within[0]}.{last}"] if within else sorted(known)
        return unknown(f"setting in {table}", last, known)
    where = ".".join([*path, last]) or "its settings"
    message = _MESSAGES.get(first["type"], first["msg"].removeprefix("Value error, "))
    found = "" if isinstance(first["input"], dict) else f", was {str(first['input'])[:60]!r}"
    return f"{where}: {message}{found}"


def _fields(path: Sequence[str]) -> list[str]:
    """Return the valid names in a table, or [] where any name is valid."""
    match path:
        case []:
            return list(Protocol.model_fields)
        case ["tasks", _]:
            return list(TaskSettings.model_fields)
        case [part] | ["tasks", _, ("train" | "eval") as part] if part in _TABLES:
            return list(_TABLES[part].model_fields)
    return []


_TABLES: dict[str, type[Model | Train | Eval | Start]] = {
    "model": Model, "train": Train, "eval": Eval, "start": Start,
}  # fmt: skip
