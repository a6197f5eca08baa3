"""Files that are whole or absent, whenever the process is killed."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any


def write(path: Path, content: bytes) -> str:
    """Write to a temporary file, flush to disk, rename over `path`; the SHA-256 of the content."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return hashlib.sha256(content).hexdigest()


def write_json(path: Path, value: Any) -> str:
    """Readable, sorted, without NaN."""
    text = json.dumps(value, indent=1, sort_keys=True, allow_nan=False)
    return write(path, text.encode() + b"\n")


def read_json(path: Path) -> Any | None:
    """The content, or None for a file that is missing or damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
