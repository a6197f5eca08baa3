"""Write files atomically, under safe names."""

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path


def write(path: Path, content: str | bytes | Iterator[bytes]) -> Path:
    """Write a file and the folders above it, as `write_whole`; return the path.

    A file that holds this already is left alone: replacing thousands of files takes minutes.
    """
    if not path.parent.is_dir():
        path.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode("utf-8") if isinstance(content, str) else content
    if isinstance(data, Iterator) or not path.is_file() or path.read_bytes() != data:
        write_whole(path, data)
    return path


def write_whole(path: Path, content: bytes | Iterator[bytes], durable: bool = False) -> None:
    """Write a temporary file beside `path` and rename it: `path` is old or new, never half.

    `durable`: return when the file and its name survive a power cut.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(temporary, "wb") as file:
            file.writelines([content] if isinstance(content, bytes) else content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno and not error.filename:  # a full disk
            error.filename = str(path)
        raise
    if durable:
        flush_folder(path.parent)


def tidy(written: Iterable[Path]) -> None:
    """Delete what killed processes have left beside these files, which no other machine writes."""
    ours = {*written}
    for path in [one for folder in {one.parent for one in ours} for one in folder.glob(".*.*")]:
        name, _, writer = path.name[1:].rpartition(".")
        if writer.isdecimal() and path.with_name(name) in ours and not is_alive(int(writer)):
            path.unlink(missing_ok=True)


def is_alive(pid: int) -> bool:
    """Return whether this machine has a process with that number."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True


def flush_folder(folder: Path) -> None:
    """Make the folder's list of names survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def slug(text: str) -> str:
    """A file name for any text: equal only for equal texts, also where case does not count.

    >>> slug("rope")
    'rope'
    """
    clean = re.sub(r"[^a-z0-9_+]+", "-", text.lower()).strip("-")[:60]
    if clean == text and clean:
        return clean
    return f"{clean or 'x'}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
