"""Everything at once: read the records, write the page, the site and the pictures."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from leaderboard.catalog import Catalog
from leaderboard.processes import in_processes
from leaderboard.record.read import kept_predictions, load, uncollected
from leaderboard.render import site
from leaderboard.render.markdown import write_markdown
from leaderboard.stats.tables import tables


@dataclass(frozen=True)
class BuildReport:
    """Result of a build. `problems` are lines `path: reason` about files that were left out."""

    paths: tuple[Path, ...]
    records: int
    problems: tuple[str, ...]


@uncollected()
def build(
    runs: Path | None,
    records: Path | Sequence[Path],
    out: Path,
    markdown: Path | None,
    built: site.Built | None = None,
    catalog: Catalog | None = None,
    processes: int = 1,
) -> BuildReport:
    """Read `records`, then `runs`, and write the site into the folder `out`.

    Predictions that runs have kept can be downloaded from it.

    `markdown` is the path of LEADERBOARD.md, or None to write none; `built` is the last line
    of the pages; `catalog` describes encodings, tasks and protocols, whose descriptions are left
    out without it; `processes` work on the files. The same arguments give the same bytes. Bad
    files do not stop a build; the report names them. Of a name that an object has twice the last
    counts: `check` refuses it.
    """
    catalog = catalog or Catalog()
    paths = [records] if isinstance(records, Path) else [*records]
    found, problems = load([*paths, runs] if runs else paths, once=False)
    refused, known = len(problems), {record.run for record in found}
    predictions = kept_predictions(runs, known, problems) if runs else {}
    every = tables(found, catalog)
    also = [partial(write_markdown, every, markdown, catalog)] if markdown else []

    def share(work: Sequence[site.Work]) -> list[list[Path]]:
        return in_processes([*work[:1], *also, *work[1:]], processes)

    written = site.build(every, found, out, refused, catalog, built, predictions, share)
    return BuildReport(tuple(written), len(found), tuple(problems))
