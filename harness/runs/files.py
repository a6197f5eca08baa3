"""Files that are whole or absent, whenever the process is killed."""

import hashlib
import json
from pathlib import Path
from typing import Any

from experiment.files import write_whole


class WriteError(OSError):
    """A file could not be written, usually because the disk is full; the old file is intact."""


def write(path: Path, content: bytes) -> str:
    """Write a file that survives a power cut. Returns its SHA-256. Errors: WriteError."""
    try:
        write_whole(path, content, durable=True)
    except OSError as error:
        reason = f"cannot write {path} ({len(content)} bytes): {error.strerror}"
        raise WriteError(error.errno, reason) from error
    return hashlib.sha256(content).hexdigest()


def read(path: Path) -> bytes:
    """Read a file. Errors: OSError, also for a pipe or a device, which might never end."""
    if path.exists() and not path.is_file():
        raise OSError(f"{path} is not a regular file")
    return path.read_bytes()


def write_json(path: Path, value: Any) -> str:
    """Write readable, sorted JSON. Returns its SHA-256. Errors: WriteError."""
    return write(path, json_bytes(value))


def read_json(path: Path) -> Any | None:
    """Return the content of a JSON file, None if it is missing or damaged."""
    try:
        return json.loads(read(path))
    except (OSError, ValueError, RecursionError):
        return None


def write_sealed(path: Path, value: Any) -> None:
    """Write JSON together with its own checksum. Errors: WriteError."""
    write(path, _sealed(value))


def read_sealed(path: Path) -> Any | None:
    """Return the value, None if any byte of the file has changed."""
    try:
        content = read(path)
        value = json.loads(content)["value"]
        return value if content == _sealed(value) else None
    except (OSError, ValueError, TypeError, LookupError, RecursionError):
        return None


def _sealed(value: Any) -> bytes:
    return json_bytes({"sha256": hashlib.sha256(json_bytes(value)).hexdigest(), "value": value})


def json_bytes(value: Any) -> bytes:
    """Return readable, sorted JSON. Errors: ValueError for NaN and infinity."""
    return json.dumps(value, indent=1, sort_keys=True, allow_nan=False).encode() + b"\n"
