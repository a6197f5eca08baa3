"""The PRFs of all encodings in a small file, so that building the leaderboard imports no torch.

The file names the code that it was made from; with any other code it is made again.
"""

import json
from contextlib import suppress
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

import pezoo
from experiment.files import write
from leaderboard.render.grids import PRFMaps, PRFMapsOf

FILE = Path(__file__).with_name("prf.json")
SOURCES = "*.py", "encodings/*.py", "cursors/*.py"


def kept_prf_maps(file: Path = FILE) -> PRFMapsOf | None:
    """Return a function that maps an encoding to its PRF; None without the file and torch."""
    key = _key()
    with suppress(OSError, ValueError, KeyError):
        kept = json.loads(file.read_text("utf-8"))
        if kept["key"] == key:
            return {name: _maps(*own) for name, own in kept["maps"].items()}.get
    if find_spec("torch") is None:
        return None
    from harness.show.prf import prf_maps
    from pezoo.registry import names

    maps = {name: found for name in names() if (found := prf_maps(name))}
    lines = {name: [own.panels, own.words] for name, own in maps.items()}
    with suppress(OSError):  # an installed package may be read-only
        write(file, json.dumps({"key": key, "maps": lines}, separators=(",", ":")) + "\n")
    return maps.get


def _key() -> str:
    """Return a hash of the code that the PRFs follow from."""
    root = Path(pezoo.__file__).parent
    paths = [path for pattern in SOURCES for path in sorted(root.glob(pattern))]
    texts = [path.read_bytes() for path in (*paths, Path(__file__).with_name("prf.py"))]
    return sha256(b"\0".join(texts)).hexdigest()


def _maps(panels: list[tuple[str, list[list[int]]]], words: str) -> PRFMaps:
    return PRFMaps(tuple((head, tuple(map(tuple, rows))) for head, rows in panels), words)
