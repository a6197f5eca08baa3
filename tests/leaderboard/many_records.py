"""CPU seconds and memory of building the leaderboard with many records.

    python tests/leaderboard/many_records.py --records 20000 --root FOLDER

The records are the committed ones with further seeds. They stay in FOLDER/records, so that
`/usr/bin/time -v pezoo leaderboard build --records FOLDER/records` can be run on them.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import click

from experiment.config import RunConfig
from experiment.files import slug, write
from harness.settings.catalog import read_catalog
from leaderboard.build import build
from leaderboard.processes import usable
from leaderboard.record.read import RECORDS


def make(number: int, folder: Path) -> None:
    """Write so many records, each with a seed that no other run of its settings has."""
    paths = sorted(RECORDS.rglob("*.json"))
    texts = [path.read_text(encoding="utf-8") for path in paths]
    for at in range(number):
        more, place = divmod(at, len(texts))
        record = json.loads(texts[place])
        config = RunConfig.model_validate(record["config"])
        config = config.replace(seed=config.seed + 1000 * more)
        record |= {"config": config.model_dump(mode="json"), "seed": config.seed}
        record["run"] = config.hash
        named = folder / record["protocol"] / record["task"] / slug(record["encoding"])
        write(named / f"{config.hash}.json", json.dumps(record))


@click.command()
@click.option("--records", "number", default=5000, show_default=True)
@click.option("--root", type=click.Path(path_type=Path), required=True, help="An empty folder.")
def main(number: int, root: Path) -> None:
    """Make records, build the site, print what that took."""
    make(number, root / "records")
    wall, cpu = time.perf_counter(), sum(os.times()[:4])
    page, known = root / "LEADERBOARD.md", read_catalog()
    where = None, root / "records", root / "site", page
    report = build(*where, catalog=known, processes=usable())
    wall, cpu = time.perf_counter() - wall, sum(os.times()[:4]) - cpu
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    peak = int(status.partition("VmHWM:")[2].split()[0]) / 2**10
    click.echo(f"{report.records} records: {cpu:.1f} CPU-s, {wall:.1f} s, peak {peak:.0f} MB")


if __name__ == "__main__":
    main()
