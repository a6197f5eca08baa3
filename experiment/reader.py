"""A protocol's TOML file as plain settings, on top of the protocol that it extends."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from experiment.config import ConfigError


def read_settings(path: Path, folder: Path) -> dict[str, Any]:
    """The settings of a file. `extends = "quick"`: those of quick.toml in `folder`, and its own.

    Tables are merged key by key; any other value replaces what it extends. The name is the file's
    own. Errors: ConfigError for what is not TOML, and for a protocol to extend that does not exist
    or extends another; OSError.

    >>> read_settings(Path("mine.toml"), Path("protocols"))     # doctest: +SKIP
    {'name': 'mine', 'train': {'steps': 500, 'batch': 64, ...}, ...}
    """
    own = _read(path)
    if "extends" not in own:
        return {"name": path.stem} | own
    name = own.pop("extends")
    base = folder / f"{name}.toml"
    if base.stem != name or not base.is_file():
        names = ", ".join(sorted(file.stem for file in folder.glob("*.toml")))
        raise ConfigError(f"protocol {path} extends {name!r}; it can extend one of {names}")
    settings = _read(base)
    if "extends" in settings:
        raise ConfigError(f"protocol {path} extends {name}, which extends {settings['extends']}")
    return _merged(settings, {"name": path.stem} | own)


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"protocol {path} is not TOML: {error}") from error


def _merged(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """
    >>> _merged({"train": {"steps": 9, "lr": 1}}, {"train": {"steps": 5}})
    {'train': {'steps': 5, 'lr': 1}}
    """
    both = dict(base)
    for key, value in own.items():
        inner = both.get(key)
        tables = isinstance(inner, dict) and isinstance(value, dict)
        both[key] = _merged(inner, value) if tables else value
    return both
