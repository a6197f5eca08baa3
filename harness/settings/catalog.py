"""Describe the encodings, tasks and protocols of this checkout for the leaderboard's pages.

Files are read as text: no class is imported, and no torch is needed. Plug-ins are not described.
"""

import json
from collections.abc import Iterator
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any

import pezoo
from experiment.config import Protocol
from experiment.protocol import PROTOCOLS, read_settings
from experiment.seeds import parse_seeds
from harness import tasks
from leaderboard.catalog import HOOKS, Catalog, ClassDoc, PRFMaps, ProtocolDoc
from pezoo.class_text import named_classes
from pezoo.spec import bare

# The relations of all encodings, which `python -m harness.show.prf` computes and writes.
PRF_MAPS = Path(__file__).with_name("prf_maps.json")
# What a class itself says: the fields that have defaults.
DESCRIBED = {one.name for one in fields(ClassDoc) if one.default is not MISSING}


def read_catalog(protocols: Path = PROTOCOLS) -> Catalog:
    """Return the catalog of pezoo/encodings, harness/tasks and a folder of protocols."""
    maps = _prf_maps()
    encodings = [
        replace(one, prf_maps=maps.get(one.name))
        for one in _classes(Path(pezoo.__file__).parent / "encodings")
    ]
    docs = _classes(Path(tasks.__file__).parent)
    return Catalog(
        {one.name: one for one in encodings},
        {one.name: one for one in docs},
        {one.name: one for one in _protocols(protocols)},
    )


def _prf_maps() -> dict[str, PRFMaps]:
    """Return the values of the positional relation functions, by encoding.

    Errors: ValueError for a file that is damaged.
    """
    try:
        return {
            name: PRFMaps(tuple((head, tuple(map(tuple, rows))) for head, rows in panels), words)
            for name, (panels, words) in json.loads(PRF_MAPS.read_text("utf-8")).items()
        }
    except (ValueError, TypeError, AttributeError) as error:
        made = "is damaged; `python -m harness.show.prf` writes it"
        raise ValueError(f"{PRF_MAPS} {made}: {error}") from error


def _classes(folder: Path) -> Iterator[ClassDoc]:
    """Yield the encodings or tasks in a folder."""
    package = folder.parent.name
    for name, found in named_classes(folder).items():
        path, one = found.path, found.text
        if one is not None:
            known: dict[str, Any] = {k: v for k, v in one.constants.items() if k in DESCRIBED}
            if known.get("picture"):
                known["picture"] = _picture(folder.parent.parent / "docs", *known["picture"])
            own = ClassDoc(
                name=name,
                cls=one.name,
                module=f"{package}.{folder.name}.{path.stem}",
                path=f"{package}/{folder.name}/{path.name}",
                source=path.read_text(encoding="utf-8"),
                doc=one.doc,
                hooks=tuple(h for h in HOOKS if one.methods.get(h, "Encoding") != "Encoding"),
                **known,
            )
            yield own
            for second, spec in one.constants.get("also", ()):
                summary = f"a second name for {bare(spec)} with other options"
                yield replace(own, name=second, summary=summary)


def _picture(docs: Path, name: str, words: str) -> tuple[str, ...]:
    """Return an SVG of the checkout and its caption; () where pezoo is installed without docs."""
    path = docs / name
    return (path.read_text("utf-8"), words) if path.is_file() else ()


def _protocols(folder: Path) -> Iterator[ProtocolDoc]:
    old = sorted(folder.glob("earlier/*.toml"), key=_age, reverse=True)
    earlier = [Protocol.model_validate(read_settings(path, path.parent)) for path in old]
    for path in sorted(folder.glob("*.toml")):
        raw = read_settings(path, folder)
        now = Protocol.model_validate(raw)
        versions = (now, *(one for one in earlier if one.name == now.name))
        yield ProtocolDoc(now.name, now.description, len(parse_seeds(now.seeds)), raw, versions)


def _age(path: Path) -> tuple[int, str]:
    """Sort quick-10 after quick-9."""
    return len(path.name), path.name
