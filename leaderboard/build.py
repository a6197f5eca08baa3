"""Everything at once: read the records, write the page, the site and the pictures."""

import gc
from dataclasses import dataclass
from pathlib import Path

from leaderboard.catalog import Catalog
from leaderboard.record.read import kept_predictions, load
from leaderboard.render import site
from leaderboard.render.markdown import write_markdown
from leaderboard.stats.tables import tables


@dataclass(frozen=True)
class BuildReport:
    """Result of a build. `problems` are lines `path: reason` about files that were left out."""

    paths: tuple[Path, ...]
    records: int
    problems: tuple[str, ...]


def build(
    runs: Path | None,
    records: Path,
    out: Path,
    markdown: Path | None,
    built: site.Built | None = None,
    catalog: Catalog | None = None,
) -> BuildReport:
    """Read `records`, then `runs`, and write the site into the folder `out`.

    Predictions that runs have kept can be downloaded from it.

    `markdown` is the path of LEADERBOARD.md, or None to write none; `built` is the last line
    of the pages; `catalog` describes encodings, tasks and protocols, whose descriptions are left
    out without it. The same arguments give the same bytes. Bad files do not stop a build; the
    report names them.
    """
    catalog = catalog or Catalog()
    found, problems = load([records] if runs is None else [records, runs])
    refused, known = len(problems), {record.run for record in found}
    predictions = kept_predictions(runs, known, problems) if runs else {}
    gc.freeze()  # nobody needs to look through them for cycles
    try:
        every = tables(found, catalog)
        paths = site.build(every, found, out, refused, catalog, built, predictions)
        if markdown is not None:
            paths += write_markdown(every, markdown, catalog)
    finally:
        gc.unfreeze()
    return BuildReport(tuple(paths), len(found), tuple(problems))
